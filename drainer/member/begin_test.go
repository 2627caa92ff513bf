package member

import (
	"testing"
	"time"
)

// A large file on a slow disk is waited for, and so is a small CPU share, but nothing is waited for forever.
func TestAStartIsJudgedByWhatItDoes(t *testing.T) {
	t.Parallel()
	const after = 10 * time.Second
	for name, test := range map[string]struct {
		// second returns the stage after so many seconds.
		second func(n int) stage
		want   int // the second at which the start is over; 0 never
	}{
		"it works and maps nothing more":   {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second, mapped: 5} }, 11},
		"it works, and has all in memory":  {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second, mapped: 5, locked: true} }, 110},
		"it has all in memory, and rests":  {func(n int) stage { return stage{mapped: 5, locked: true} }, 11},
		"it does nothing":                  {func(n int) stage { return stage{mapped: 5} }, 11},
		"it maps more":                     {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second, mapped: int64(n)} }, 110},
		"it waits for the disk":            {func(n int) stage { return stage{diskWait: true} }, 0},
		"it reads again what was dropped":  {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second, mapped: 5, faults: int64(n)} }, 110},
		"it has a tenth of a CPU":          {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second / 10, mapped: int64(n / 30)} }, 110},
		"a tenth of a CPU, for nothing":    {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second / 10, mapped: 5} }, 101},
		"it works, and then does nothing":  {func(n int) stage { return stage{cpu: time.Duration(min(n, 5)) * time.Second, mapped: int64(min(n, 5))} }, 15},
		"it maps less, as memory is short": {func(n int) stage { return stage{cpu: time.Duration(n) * time.Second, mapped: int64(100 - n)} }, 11},
	} {
		j := startJudgement{after: after, most: 11 * after}
		got := 0
		for n := 1; n <= 1000 && got == 0; n++ {
			if j.look(test.second(n), time.Second) != "" {
				got = n
			}
		}
		if got != test.want {
			t.Errorf("%s: over after %d seconds, want %d", name, got, test.want)
		}
	}
}
