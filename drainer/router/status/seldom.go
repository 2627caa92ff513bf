package status

import "time"

// Seldom lets one line a second into a log.
type Seldom struct {
	said int64
	more int
}

// Says tells whether to log what happens now, in nanoseconds of any clock, and how much was not
// logged since the last time.
func (s *Seldom) Says(now int64) (more int, say bool) {
	if s.said > 0 && now-s.said < int64(time.Second) {
		s.more++
		return 0, false
	}
	more = s.more
	*s = Seldom{said: max(now, 1)}
	return more, true
}
