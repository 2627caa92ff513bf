package member

import (
	"strconv"
	"testing"
	"time"
)

func TestARequestOfTheSupervisorThatIsOnItsWayIsNoCall(t *testing.T) {
	var s silence
	at := func(commands int64) map[string]string {
		return map[string]string{"cmd_get": strconv.FormatInt(commands, 10), "cmd_set": "0", "cmd_touch": "0", "cmd_flush": "0", "delete_hits": "0", "delete_misses": "0", "incr_hits": "0", "incr_misses": "0", "decr_hits": "0", "decr_misses": "0", "cas_hits": "0", "cas_misses": "0", "cas_badval": "0"}
	}
	begun := time.Now().Add(-time.Hour)
	called := func(commands int64) bool {
		t.Helper()
		s.since = begun
		if s.look(at(commands)); s.since.IsZero() {
			t.Fatal("the statistics don't tell how many commands there were")
		}
		return s.since != begun
	}
	s.look(at(7))
	s.asks()
	for look, test := range []struct {
		commands int64
		called   bool
	}{
		{7, false}, {8, false}, // before it arrives, and after it
		{9, true}, {9, false}, // a client's
		{2, true}, {2, false}, {3, true}, // a client has reset the statistics
	} {
		if got := called(test.commands); got != test.called {
			t.Errorf("look %d, %d commands: a call is %v, want %v", look, test.commands, got, test.called)
		}
	}
	s.asks()
	if called(3) || !called(5) { // a client's, too, while it was on its way
		t.Error("a call beside a request of the supervisor is not seen")
	}
}
