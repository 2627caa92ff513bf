// Package wait ends the waits of tests: by what they wait for, or else shortly before the test
// binary's own time-out (go test -timeout), with a message that says what did not come. No wait has a
// bound of its own, since a machine may be busy.
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

// Deadline is when waits give up: a twentieth of the time-out, half a minute at most, before the
// binary is ended. It is far away if there is no time-out.
func Deadline() time.Time {
	timeout := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if timeout == 0 {
		return started.Add(Long)
	}
	return started.Add(timeout - min(timeout/20, 30*time.Second))
}

// Context ends at the Deadline. It is not the test's, so cleanups may use it, too.
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

// AtSomeSpeed is for code that bounds a wait, with a test that makes it wait for about as long: rest,
// of which the bound is a multiple. A busy machine is late by a time of its own, so the test tries longer
// rests until one succeeds, and ends with the last error if half a minute does not.
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
