package move

import (
	"strings"
	"testing"
)

func TestWaitsAreNamedUntilTheyEnd(t *testing.T) {
	var log strings.Builder
	w := waits{Sources: []string{"a"}, Log: &log}
	if message, _, _ := w.Message(); message != "" {
		t.Errorf("no server is waited for: %q", message)
	}
	for _, name := range []string{"e", "d", "c", "b"} {
		w.Set(name, "refused")
		w.Set(name, "refused")
	}
	if message, _, source := w.Message(); message != "waiting for b (refused), c (refused), d (refused), and 1 more" || source {
		t.Errorf("%q, %t", message, source)
	}
	w.Set("a", "silent")
	for _, name := range []string{"e", "d", "c", "b"} {
		w.Set(name, "")
	}
	if message, _, source := w.Message(); message != "waiting for a (silent)" || !source {
		t.Errorf("%q, %t", message, source)
	}
	if got := log.String(); strings.Count(got, "\n") != 9 || !strings.Contains(got, "waiting for source a: silent\n") || !strings.Contains(got, "survivor b answers again\n") {
		t.Errorf("%q", got)
	}
}
