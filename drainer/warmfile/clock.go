package warmfile

import (
	"cmp"

	"example.com/memcached-operator/drainer/item"
)

// startedAt is ProcessStarted by the clock that now was read from, in Unix seconds: times
// that count from it say how much time is left by the clock of the memcached that wrote
// them. If its node's clock was ahead of ours, nobody knows how much time has passed
// since: none, then.
func (m *Image) startedAt(now int64) int64 {
	if m.Clock == 0 {
		return m.ProcessStarted // a manifest of before
	}
	return m.ProcessStarted - item.Ahead(m.Clock, min(m.NodeClock, now))
}

// Redated is the image of a save from which memcached resumes at the Unix time now, with a
// clock that is right: it doesn't resume from a save that is not of an earlier second. It
// is the image itself if nothing has to change.
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
