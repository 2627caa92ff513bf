package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/memcached-operator/test/cluster/internal/process"
)

// until repeats the check until it succeeds, the context ends, or one of the processes that it needs has ended.
func until(ctx context.Context, what string, needs []*process.Process, check func(context.Context) error) error {
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		for _, one := range needs {
			if err := one.Ended(); err != nil {
				return fmt.Errorf("%w; its last lines:\n%s", err, process.LastLines(one.Log, 15))
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready in time: %w; the logs are in %s%s", what, last, programs.Logs, tails(needs))
		}
	}
}

func tails(processes []*process.Process) string {
	var text string
	for _, one := range processes {
		text += fmt.Sprintf("\n--- %s\n%s", one.Log, process.LastLines(one.Log, 8))
	}
	return text
}

// inParallel runs the functions at the same time. The first failure cancels the others, and is the error.
func inParallel(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failures := make(chan error)
	for _, function := range functions {
		go func() { failures <- function(ctx) }()
	}
	var first error
	for range functions {
		if err := <-failures; err != nil && first == nil {
			first = err
			cancel(errors.New("another step failed"))
		}
	}
	return first
}
