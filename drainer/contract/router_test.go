package contract

import (
	"testing"
	"time"
)

// Only a writer that knows the key can have written a number, and numbers of the future are refused.
func TestARingNumberIsReadIfARouterHasWrittenIt(t *testing.T) {
	now := NumberTime(1_000_000)
	for what, test := range map[string]struct {
		value string
		want  int64
	}{
		"a router's":           {RingNumber(1_000_000, "key"), 1_000_000},
		"of a clock ahead":     {RingNumber(1_000_050, "key"), 1_000_050},
		"of the future":        {RingNumber(1_000_000+2*86400, "key"), 0},
		"with another key":     {RingNumber(1_000_000, "other"), 0},
		"another number":       {"2" + RingNumber(1_000_000, "key")[1:], 0},
		"no proof":             {"1000000", 0},
		"zero":                 {RingNumber(0, "key"), 0},
		"negative":             {RingNumber(-1, "key"), 0},
		"the largest there is": {RingNumber(1<<63-1, "key"), 0},
		"words":                {"a number", 0},
		"nothing":              {"", 0},
		"something after it":   {RingNumber(1_000_000, "key") + " ", 0},
	} {
		if got := ParseRingNumber([]byte(test.value), "key", now); got != test.want {
			t.Errorf("%s: %q is %d, want %d", what, test.value, got, test.want)
		}
		if len(test.value) > MaxRingNumber {
			t.Errorf("%s: %q has %d bytes", what, test.value, len(test.value))
		}
	}
	if at := NumberTime(NumberAt(now.Add(time.Millisecond))); !at.Equal(now) {
		t.Errorf("%v is number %v", now, at)
	}
}
