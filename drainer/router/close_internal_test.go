package router

import (
	"testing"
	"time"
)

// Connections are closed evenly: the first one after a while, the last one when the time is over.
func TestConnectionsAreClosedOneAfterTheOther(t *testing.T) {
	for _, test := range []struct {
		all         int
		over, since time.Duration
		want        int
	}{
		{4, 4 * time.Second, 0, 4},
		{4, 4 * time.Second, time.Second - 1, 4},
		{4, 4 * time.Second, time.Second, 3},
		{4, 4 * time.Second, 4*time.Second - 1, 1},
		{4, 4 * time.Second, 4 * time.Second, 0},
		{4, 4 * time.Second, time.Hour, 0},
		{10_000, 5 * time.Second, 2500 * time.Millisecond, 5000},
		{0, time.Second, 0, 0},
		{4, 0, 0, 0},
	} {
		e := &ends{over: test.over, all: test.all}
		if got := e.stay(test.since); got != test.want {
			t.Errorf("of %d, after %v of %v: %d, want %d", test.all, test.since, test.over, got, test.want)
		}
	}
	// Two loops close theirs in turn.
	first, second := &ends{over: 4 * time.Second, all: 2}, &ends{over: 4 * time.Second, all: 2, ahead: time.Second}
	for second4, want := range []int{4, 3, 2, 1, 0} {
		since := time.Duration(second4) * time.Second
		if got := first.stay(since) + second.stay(since); got != want {
			t.Errorf("of two loops, after %v: %d, want %d", since, got, want)
		}
	}
}
