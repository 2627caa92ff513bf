// Package harness has what the programs share that measure or show something: test/bench, router, scale,
// latency, continuity and demo. Package harness starts processes and measures them, runs clients in closed
// and open loops, computes percentiles, and prints tables.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Patience bounds each wait for a process, and for an answer.
const Patience = time.Minute

// Main runs a program until it is done, or has been told to end, and prints its error.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Sleep returns an error if the context ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// never marks an error after which Until gives up.
type never struct{ error }

func (n never) Unwrap() error { return n.error }

// Never is an error of which Until knows that another try can't succeed; nil stays nil.
func Never(err error) error {
	if err == nil {
		return nil
	}
	return never{err}
}

// Until repeats the check at each interval until it succeeds, returns an error of Never, or the context ends.
func Until(ctx context.Context, interval time.Duration, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if errors.As(err, new(never)) {
			return fmt.Errorf("it doesn't come true that %s: %w", what, err)
		}
		if ended := Sleep(ctx, interval); ended != nil {
			return fmt.Errorf("it doesn't come true that %s: %w (%w)", what, err, ended)
		}
	}
}

// InTurn measures all in each round. Other work of the machine then slows all of them.
func InTurn[T any](rounds int, all []T, measure func(T) error) error {
	for range rounds {
		for _, one := range all {
			if err := measure(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// Highest samples a value at each interval until highest is called.
func Highest[T cmp.Ordered](interval time.Duration, sample func() T) (highest func() T) {
	quit, most := make(chan struct{}), make(chan T)
	go func() {
		top := sample()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				top = max(top, sample())
			case <-quit:
				most <- top
				return
			}
		}
	}()
	return func() T {
		close(quit)
		return <-most
	}
}
