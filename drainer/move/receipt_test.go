package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/item"
)

// A drainer that was stopped may have moved items of a running member, or replayed them.
func TestADrainerThatWasStoppedDoesNotCallItselfADrain(t *testing.T) {
	r := Failed("source", fmt.Errorf("read: %w", context.Canceled))
	const want = "a signal ended the drainer before the source was read to its end"
	if r.Message != want || r.Reason != "Interrupted" || r.ExitCode != contract.ExitFailed {
		t.Errorf("got %+v, want %q", r, want)
	}
}

// A writer still sends values of the source's pages, and finds that they can't be read.
func TestAFaultIsTheSources(t *testing.T) {
	e := &Engine{Servers: drainertest.MustParse(t, []string{"host:1"})}
	err := e.withServer(0, fmt.Errorf("send: %w", item.ErrFault))
	if r := Failed("source", err); strings.Contains(r.Message, "survivor") || r.Reason != reasonFailed || r.ExitCode != contract.ExitFailed {
		t.Errorf("%+v", r)
	}
}
