//go:build linux

package member

import (
	"testing"
	"time"
)

// Each case has the state in each second, and when memcached is killed.
func TestAMemcachedHangsIfItNeitherAnswersNorWorks(t *testing.T) {
	works := func(v vitals, second int) vitals { v.cpu = time.Duration(second) * time.Second; return v }
	for name, test := range map[string]struct {
		seen func(second int) vitals
		at   int // the second; 0 for never
	}{
		"it answers":                    {func(s int) vitals { return works(vitals{}, s) }, 0},
		"it does nothing":               {func(int) vitals { return vitals{silent: true} }, 60},
		"its clock ticks":               {func(s int) vitals { return vitals{silent: true, cpu: time.Duration(s) * time.Millisecond} }, 60},
		"it works, and answers late":    {func(s int) vitals { return works(vitals{silent: s%500 != 0}, s) }, 0},
		"it works, and answers no more": {func(s int) vitals { return works(vitals{silent: true}, s) }, 600},
		"it waits for a disk":           {func(int) vitals { return vitals{silent: true, diskWait: true} }, 0},
		"it works now and then":         {func(s int) vitals { return works(vitals{silent: true}, s/50) }, 600},
	} {
		t.Run(name, func(t *testing.T) {
			j, at := judgement{after: time.Minute, most: 10 * time.Minute}, 0
			for second := 1; second < 2000 && at == 0; second++ {
				if j.look(test.seen(second), time.Second) {
					at = second
				}
			}
			if at != test.at {
				t.Errorf("killed at %d s, want %d", at, test.at)
			}
		})
	}
}
