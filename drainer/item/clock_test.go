package item

import "testing"

// A restart may set the clock of a young memcached back to before its beginning.
func TestTheUptimeOfAClockThatWasSetBackIsNegative(t *testing.T) {
	for printed, want := range map[string]int64{"0": 0, "7": 7, "2147483647": 1<<31 - 1, "4294967289": -7} {
		if got, err := Uptime(map[string]string{"uptime": printed}); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", printed, got, err, want)
		}
	}
	if _, err := Uptime(nil); err == nil {
		t.Error("no uptime is no error")
	}
}
