package warmfile

import (
	"cmp"

	"example.com/memcached-operator/drainer/item"
)

// startedAt returns ProcessStarted in Unix seconds of the clock that now was read from. With times that count
// from it, an item has as much time left as by the clock of the memcached that wrote it. If that node's clock
// was ahead of ours, the time that has passed since is unknown, and counts as none.
func (m *Image) startedAt(now int64) int64 {
	if m.Clock == 0 {
		return m.ProcessStarted // an earlier manifest without clocks
	}
	return m.ProcessStarted - item.Ahead(m.Clock, min(m.NodeClock, now))
}

// Redated returns the image of a save from which memcached resumes at the Unix time now, with the right
// clock. memcached doesn't resume from a save that is not of an earlier second. Redated returns the image
// itself if nothing has to change.
func (m *Image) Redated(now int64) *Image {
	stop := min(m.StopTime, now-1)
	ahead := item.Ahead(cmp.Or(m.Clock, stop), stop)
	if stop == m.StopTime && ahead == 0 {
		return m
	}
	redated := *m
	redated.StopTime, redated.NodeClock = stop, stop
	redated.ProcessStarted -= ahead
	redated.Clock -= ahead
	return &redated
}
