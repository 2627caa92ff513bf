package warmfile

import (
	"testing"
	"time"
)

// By our clock, times count from a start with which items have as much time left as by the clock of the
// memcached that wrote them.
func TestTimesByTheClockOfTheMemcached(t *testing.T) {
	const began, saved = 100_000, 150_000 // by the right clock
	for name, test := range map[string]struct {
		image     Image
		now, want int64
	}{
		"all clocks agree":                      {Image{ProcessStarted: began, Clock: saved, NodeClock: saved}, saved + 5000, began},
		"memcached's has lost some seconds":     {Image{ProcessStarted: began, Clock: saved - 10, NodeClock: saved}, saved + 5000, began},
		"the node's was set back an hour":       {Image{ProcessStarted: began + 3600, Clock: saved + 3600, NodeClock: saved}, saved + 5000, began},
		"the node's was set forward an hour":    {Image{ProcessStarted: began - 3600, Clock: saved - 3600, NodeClock: saved}, saved + 5000, began},
		"the node's was an hour ahead of ours":  {Image{ProcessStarted: began + 3600, Clock: saved + 3600, NodeClock: saved + 3600}, saved, began},
		"the same, and some time has passed":    {Image{ProcessStarted: began + 3600, Clock: saved + 3600, NodeClock: saved + 3600}, saved + 600, began + 600},
		"the node's was some seconds ahead":     {Image{ProcessStarted: began, Clock: saved, NodeClock: saved}, saved - 5, began},
		"a manifest of before has no such time": {Image{ProcessStarted: began + 3600}, saved, began + 3600},
	} {
		if got := test.image.startedAt(test.now); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// A flush that memcached had carried out is in effect, even if our clock is a few seconds behind. A flush
// that it had not carried out is not in effect.
func TestFlushedByTheClockOfTheMemcached(t *testing.T) {
	const began, saved = 100_000, 150_000
	for name, test := range map[string]struct {
		image Image
		now   int64
		want  bool
	}{
		"done, our clock is 20 s behind":       {Image{OldestLive: saved - began - 1, Clock: saved, NodeClock: saved}, saved - 20, true},
		"done, of a node an hour ahead":        {Image{OldestLive: saved - began - 1, Clock: saved, NodeClock: saved}, saved - 3600, true},
		"for later":                            {Image{OldestLive: saved - began + 1000, Clock: saved, NodeClock: saved}, saved + 10, false},
		"for later, and the time has come":     {Image{OldestLive: saved - began + 1000, Clock: saved, NodeClock: saved}, saved + 1000, true},
		"for later, of a node an hour behind":  {Image{OldestLive: saved - began + 1000, Clock: saved, NodeClock: saved + 3600}, saved + 3610, false},
		"for later, of a node an hour ahead":   {Image{OldestLive: saved - began + 1000, Clock: saved, NodeClock: saved}, saved - 3600, false},
		"never":                                {Image{Clock: saved, NodeClock: saved}, saved + 10, false},
		"done, by a manifest of before":        {Image{OldestLive: saved - began - 1}, saved + 10, true},
		"for later, by a manifest of before":   {Image{OldestLive: saved - began + 1000}, saved + 10, false},
		"ordered in the second that it is for": {Image{OldestLive: saved - began, Clock: saved, NodeClock: saved}, saved, true},
	} {
		test.image.ProcessStarted = began
		if got := test.image.Flushed(time.Unix(test.now, 0)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// memcached resumes from a redated .meta, with our clock.
func TestMemcachedResumesFromARedatedMeta(t *testing.T) {
	const began, saved = 100_000, 150_000
	for name, test := range map[string]struct {
		image, want Image
		now         int64
	}{
		"right":                       {Image{ProcessStarted: began, StopTime: saved, Clock: saved}, Image{ProcessStarted: began, StopTime: saved, Clock: saved}, saved + 1},
		"of this second":              {Image{ProcessStarted: began, StopTime: saved, Clock: saved}, Image{ProcessStarted: began, StopTime: saved - 1, Clock: saved}, saved},
		"of an hour later":            {Image{ProcessStarted: began + 3600, StopTime: saved + 3600, Clock: saved + 3600}, Image{ProcessStarted: began, StopTime: saved, Clock: saved}, saved + 1},
		"the node's was set back":     {Image{ProcessStarted: began + 3600, StopTime: saved, Clock: saved + 3600}, Image{ProcessStarted: began, StopTime: saved, Clock: saved}, saved + 500},
		"memcached's has lost a few":  {Image{ProcessStarted: began, StopTime: saved, Clock: saved - 9}, Image{ProcessStarted: began, StopTime: saved, Clock: saved - 9}, saved + 500},
		"no clock is known, of later": {Image{ProcessStarted: began, StopTime: saved}, Image{ProcessStarted: began, StopTime: saved - 101}, saved - 100},
	} {
		got := test.image.Redated(test.now)
		if got.ProcessStarted != test.want.ProcessStarted || got.StopTime != test.want.StopTime || got.Clock != test.want.Clock {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
