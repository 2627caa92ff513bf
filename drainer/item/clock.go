package item

import (
	"math"
	"strconv"
)

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

// Uptime returns the seconds that a memcached has run by its own clock, given its answer to "stats". memcached's clock
// begins at 62, and it prints 60 less as an unsigned number of 32 bits: if a restart has set a young one back, the number
// is negative, and would be one of 136 years.
//
// Source: memcached's memcached.c, server_stats.
func Uptime(stats map[string]string) (seconds int64, err error) {
	if seconds, err = strconv.ParseInt(stats["uptime"], 10, 64); seconds > math.MaxInt32 {
		seconds -= 1 << 32
	}
	return seconds, err
}
