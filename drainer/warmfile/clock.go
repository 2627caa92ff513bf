package warmfile

import (
	"cmp"

	"example.com/memcached-operator/drainer/item"
)

// startedAt converts ProcessStarted to the clock of now, in Unix seconds. An item then has as much time left as
// it had by the clock of the memcached that wrote it. If that node's clock was ahead of this one, the time that
// has passed since is unknown, and counts as 0.
func (m *Image) startedAt(now int64) int64 {
	if m.Clock == 0 {
		return m.ProcessStarted // the clocks are unknown
	}
	return m.ProcessStarted - item.Ahead(m.Clock, min(m.NodeClock, now))
}

// Redated returns the image with times from which memcached resumes at the Unix time now, with the right clock.
// memcached only resumes from a save of an earlier second. If nothing has to change, Redated returns the image
// itself.
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
