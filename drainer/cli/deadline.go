package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
)

const reasonDeadline = contract.ReasonDeadlineExceeded

// errDeadline is the cause of a context that ended because of --deadline.
var errDeadline = errors.New("the deadline is exceeded")

// afterDeadline is how long a move may take to write its receipt, once the deadline has ended it. A move that
// hangs, because a disk doesn't answer, is not waited for: the process ends when the receipt is written.
const afterDeadline = 10 * time.Second

// withinDeadline runs do with a context that ends at the deadline.
func withinDeadline(ctx context.Context, m *contract.Transfer, do func(context.Context) contract.Receipt) contract.Receipt {
	if m.Deadline <= 0 {
		return do(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.Deadline, errDeadline)
	defer cancel()
	done := make(chan contract.Receipt, 1)
	go func() { done <- do(ctx) }()
	select {
	case r := <-done:
		return exceeded(ctx, m, r)
	case <-ctx.Done():
	}
	if !errors.Is(context.Cause(ctx), errDeadline) {
		return <-done // after a signal, the kubelet has a bound of its own
	}
	select {
	case r := <-done:
		return exceeded(ctx, m, r)
	case <-time.After(afterDeadline):
		return exceeded(ctx, m, move.Failed(m.SourceID, errDeadline))
	}
}

// exceeded sets the receipt's reason to DeadlineExceeded if the receipt failed after the deadline and a retry
// can help.
func exceeded(ctx context.Context, m *contract.Transfer, r contract.Receipt) contract.Receipt {
	if r.Reason == "" || !errors.Is(context.Cause(ctx), errDeadline) || slices.Contains(contract.NoRetry, int32(r.ExitCode)) {
		return r
	}
	r.Message = fmt.Sprintf("it was not done after %s (--%s): %s", m.Deadline, contract.FlagDeadline, r.Message)
	r.Reason, r.ExitCode = reasonDeadline, contract.ExitFailed
	return r
}
