package member

import (
	"testing"
	"time"
)

func TestWhatCountsAsAHang(t *testing.T) {
	idle := vitals{silent: true, cpu: time.Hour}
	answers := vitals{}
	disk := vitals{silent: true, cpu: time.Hour, diskWait: true}
	for name, test := range map[string]struct {
		looks func(i int) (vitals, time.Duration)
		// at is the number of the look that tells, 0 for none of a hundred.
		at int
	}{
		"neither an answer nor work": {func(int) (vitals, time.Duration) { return idle, time.Second }, 61},
		"an answer":                  {func(int) (vitals, time.Duration) { return answers, time.Second }, 0},
		"an answer, late": {func(i int) (vitals, time.Duration) {
			if i%50 == 0 {
				return answers, time.Second
			}
			return idle, time.Second
		}, 0},
		"an answer, and none from then on": {func(i int) (vitals, time.Duration) {
			if i <= 10 {
				return answers, time.Second
			}
			return idle, time.Second
		}, 71},
		"work, of a hundredth of a CPU": {func(i int) (vitals, time.Duration) {
			return vitals{silent: true, cpu: time.Duration(i) * 10 * time.Millisecond}, time.Second
		}, 0},
		"the clock's work alone": {func(i int) (vitals, time.Duration) {
			return vitals{silent: true, cpu: time.Hour + time.Duration(i)*time.Millisecond}, time.Second
		}, 61},
		"it waits for a disk": {func(int) (vitals, time.Duration) { return disk, time.Second }, 0},
		"it waits for a disk at times": {func(i int) (vitals, time.Duration) {
			if i%50 == 0 {
				return disk, time.Second
			}
			return idle, time.Second
		}, 0},
		"the pod was frozen for a day": {func(i int) (vitals, time.Duration) {
			if i == 5 {
				return idle, 24 * time.Hour
			}
			return idle, time.Second
		}, 60},
		"the node has hardly any time for the pod": {func(int) (vitals, time.Duration) { return idle, 10 * time.Second }, 31},
	} {
		t.Run(name, func(t *testing.T) {
			j, at := judgement{after: time.Minute}, 0
			for i := 1; i <= 100 && at == 0; i++ {
				if v, since := test.looks(i); j.look(v, since) {
					at = i
				}
			}
			if at != test.at {
				t.Errorf("it hangs at look %d, want %d", at, test.at)
			}
		})
	}
}
