package memcache

import "testing"

// An item that was used at one server before the other was flushed counts as flushed, at any offset of the seconds
// of the machine's clock and of the two servers'. An item that was used five seconds later doesn't.
func TestAFlushIsKnownByClocksOfWholeSeconds(t *testing.T) {
	const tenth, second = 1, 10
	seconds := func(tenths int64) int64 { return tenths / second }
	for used := int64(1000); used < 1000+second; used += tenth {
		for of := range int64(second) { // how much the clock of its server is ahead
			for flushOf := range int64(second) {
				for read := range int64(3 * second) {
					for asked := range int64(3 * second) {
						check := func(flushed int64, want bool) {
							// memcached has the second before the flush, and counts from its start.
							oldest := seconds(flushed+flushOf) - 1
							at := serverClock{seconds(flushed+asked) - seconds(flushed+asked+flushOf)}.at(oldest)
							answered := max(used, flushed) + read
							accessed := seconds(answered) - (seconds(answered+of) - seconds(used+of))
							if isFlushed(accessed, at) != want {
								t.Fatalf("used at %d.%d, flushed at %d.%d; by the clocks at %d and %d", used/second, used%second, flushed/second, flushed%second, accessed, at)
							}
						}
						check(used, true)
						check(used-5*second, false)
					}
				}
			}
		}
	}
}
