// Package wait has the waits of tests. Each ends when its event comes, or shortly before the test binary's
// own time-out (go test -timeout), with a message that names the missing event. No wait has a bound of its
// own, since a machine may be busy.
package wait

import (
	"context"
	"flag"
	"testing"
	"time"
)

// Long is a time-out for code under test that no test should see, however busy the machine is.
const Long = 24 * time.Hour

// started is a moment before the first test begins.
var started = time.Now()

// Deadline is when waits give up: before the time-out ends the binary, by a twentieth of the time-out, or by
// half a minute if that is less. Deadline is far away if there is no time-out.
func Deadline() time.Time {
	timeout := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if timeout == 0 {
		return started.Add(Long)
	}
	return started.Add(timeout - min(timeout/20, 30*time.Second))
}

// Context ends at the Deadline. Context doesn't end with the test, so cleanups may use it, too.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithDeadline(context.Background(), Deadline())
	tb.Cleanup(cancel)
	return ctx
}

// Over receives at the Deadline.
func Over() <-chan time.Time { return time.After(time.Until(Deadline())) }

// For tries until it succeeds. At the Deadline it ends the test with the last error.
func For(tb testing.TB, what string, try func() error) {
	tb.Helper()
	began := time.Now()
	for rest := time.Millisecond; ; rest = min(2*rest, 20*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(Deadline()) {
			tb.Fatalf("waited %s for %s: %v", time.Since(began).Round(time.Second), what, err)
		}
		time.Sleep(rest)
	}
}

// Receive waits for a channel to be closed or to have something. At the Deadline it ends the test.
func Receive[T any](tb testing.TB, what string, from <-chan T) (got T) {
	tb.Helper()
	began := time.Now()
	select {
	case got = <-from:
	case <-Over():
		tb.Fatalf("waited %s for %s", time.Since(began).Round(time.Second), what)
	}
	return got
}

// AtSomeSpeed is for a test of code that bounds a wait. The test makes the code wait for a rest, and the
// bound is a multiple of it. A busy machine is late by a time that doesn't depend on the rest. So AtSomeSpeed
// tries longer rests until one succeeds. AtSomeSpeed fails with the last error if a rest of half a minute
// doesn't succeed.
func AtSomeSpeed(tb testing.TB, rest time.Duration, try func(rest time.Duration) error) {
	tb.Helper()
	for ; ; rest *= 4 {
		err := try(rest)
		if err == nil {
			return
		}
		if rest > 30*time.Second || time.Now().Add(16*rest).After(Deadline()) {
			tb.Fatalf("with rests of %s: %v", rest, err)
		}
		tb.Logf("with rests of %s: %v", rest, err)
	}
}
