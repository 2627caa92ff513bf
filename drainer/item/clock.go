package item

// clockSlack is how far apart, in seconds, two clocks may be and still count as equal. A
// memcached has a clock of its own, which starts a second or two late and loses up to
// another second in each warm restart. The absolute times in it were right all the same.
const clockSlack = 60

// Ahead returns how many seconds a memcached's clock is ahead of ours, given what the two
// say at one moment: 0 if they are as good as equal, and negative if it is behind. A
// clock that is further off was a node's that was wrong, and so are all times by it.
func Ahead(clock, ours int64) int64 {
	if d := clock - ours; d > clockSlack || d < -clockSlack {
		return d
	}
	return 0
}
