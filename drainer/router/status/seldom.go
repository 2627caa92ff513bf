package status

import "time"

// Seldom limits a log to one line a second.
type Seldom struct {
	said int64
	more int
}

// Says tells whether to log an event at now, in nanoseconds of any clock, and how many events were not logged
// since the last one.
func (s *Seldom) Says(now int64) (more int, say bool) {
	if s.said > 0 && now-s.said < int64(time.Second) {
		s.more++
		return 0, false
	}
	more = s.more
	*s = Seldom{said: max(now, 1)}
	return more, true
}
