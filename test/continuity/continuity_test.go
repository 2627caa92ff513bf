package main

import (
	"encoding/xml"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestACurveCountsWhatWasLost(t *testing.T) {
	c := &curve{began: time.Now(), event: 2 * time.Second}
	for n := range 10 {
		for range 100 {
			c.note(c.began.Add(time.Duration(n)*time.Second), func(s *second) {
				if s.latencies = append(s.latencies, time.Millisecond); n == 3 && s.lost < 25 {
					s.lost++
				} else {
					s.hits++
				}
			})
		}
	}
	c.note(c.began.Add(9*time.Second), func(s *second) { s.failed, s.connects = [kinds]int{reading: 2, deleting: 3}, 1 })
	if got := c.lostSeconds(); got < 0.22 || got > 0.26 {
		t.Errorf("%.3f seconds' worth of hits were lost, want 25 of 100 reads of one second", got)
	}
	got := row(&one{system: systems()[2], event: events()[0], list: followings()[0]}, c)
	if want := "| 3 to 2 | operator | at once | uniform | 75.0 | 0.23 | 0 | 0 | 2 | 0 | 3 | 1 | 1.0 |"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if lines := strings.Count(string(c.csv()), "\n"); lines != 12 {
		t.Errorf("%d lines of CSV", lines)
	}
	if err := xml.Unmarshal(draw("a <title> & more", c), new(struct{})); err != nil {
		t.Errorf("the drawing: %v", err)
	}
}

func TestZipfAsksForTheFirstKeysMost(t *testing.T) {
	w := &worker{random: rand.New(rand.NewPCG(1, 1)), keys: make([]key, 1000), sums: zipf(1000)}
	for i := range w.keys {
		w.keys[i].version = int64(i)
	}
	asked := make([]int, 1000)
	for range 100_000 {
		asked[w.pick().version]++
	}
	// By the law, the first key's share is 1/7.8 and the tenth's a tenth of that.
	if asked[0] < 12_000 || asked[0] > 14_000 || asked[9] < 1000 || asked[9] > 1700 || asked[999] > 60 {
		t.Errorf("asked %d, %d, %d times for the first, the tenth, the last of 1,000 keys", asked[0], asked[9], asked[999])
	}
}

func TestRunsAreChosenByName(t *testing.T) {
	runs, err := choose("operator", "3 to 2,SIGKILL", "at once,60 s late", "uniform")
	if err != nil || len(runs) != 3 {
		t.Errorf("%d runs, %v", len(runs), err) // SIGKILL changes no list
	}
	if _, err := choose("another", "3 to 2", "spread", "zipf"); err == nil || !strings.Contains(err.Error(), "plain StatefulSet") {
		t.Errorf("an unknown system: %v", err)
	}
	if _, err := choose("operator", "3 to 2", "spread", "random"); err == nil || !strings.Contains(err.Error(), "uniform nor zipf") {
		t.Errorf("an unknown load: %v", err)
	}
}
