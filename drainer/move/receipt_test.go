package move

import (
	"context"
	"fmt"
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

// TestADrainerThatWasStoppedDoesNotCallItselfADrain: it may have moved items of a running
// member, or replayed them.
func TestADrainerThatWasStoppedDoesNotCallItselfADrain(t *testing.T) {
	r := Failed("source", fmt.Errorf("read: %w", context.Canceled))
	const want = "a signal ended the drainer before the source was read to its end"
	if r.Message != want || r.Reason != "Interrupted" || r.ExitCode != contract.ExitFailed {
		t.Errorf("got %+v, want %q", r, want)
	}
}
