package item

// clockSlack is how far apart, in seconds, two clocks may be and still count as equal. A memcached has its
// own clock, which starts a second or two late and loses up to another second in each warm restart. The
// absolute times in it are right all the same.
const clockSlack = 60

// Ahead returns how many seconds a memcached's clock is ahead of ours, given the time of both at one moment:
// 0 if they are nearly equal, and negative if it is behind. If the difference is larger, the clock of
// memcached's node was wrong, and so are all times by it.
func Ahead(clock, ours int64) int64 {
	if d := clock - ours; d > clockSlack || d < -clockSlack {
		return d
	}
	return 0
}
