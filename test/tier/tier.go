// Package tier decides which tests run. There are two tiers. `make test` has, for each promise (an
// invariant, a line of the README, a hard case, a protocol), one test that fails if it breaks.
// `make test-all` has everything: further modes, seeds, orders, libraries and versions as well.
//
// One variable of the environment says what runs:
//
//	TESTS           who sets it      the second tier   something a test needs is missing
//	unset           a developer      is skipped        the test is skipped
//	promises        make test        is skipped        the test fails
//	all             make test-all    runs              the test fails
package tier

import (
	"fmt"
	"os"
	"testing"
)

// Variable is the name of the variable.
const Variable = "TESTS"

// All tells whether the second tier runs.
func All() bool { return value() == "all" }

// Required tells whether a test fails if something that it needs is missing.
func Required() bool { return value() != "" }

func value() string {
	switch v := os.Getenv(Variable); v {
	case "", "promises", "all":
		return v
	default:
		panic(fmt.Sprintf("%s=%q: want promises or all, or leave it unset", Variable, v))
	}
}

// Second skips the test unless the second tier runs. shownBy is the test of the first tier that fails
// if the same promise breaks; package promises checks that it exists.
func Second(tb testing.TB, shownBy string) {
	tb.Helper()
	if !All() {
		tb.Skipf("make test-all runs it; in make test, %s shows the promise", shownBy)
	}
}

// Needs skips the test if err says that something is missing. If Required, it fails the test.
func Needs(tb testing.TB, what string, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case Required():
		tb.Fatalf("%s is needed: %v", what, err)
	default:
		tb.Skip(Missing(what, err))
	}
}

// Missing reports that something is missing, and the command to run instead.
func Missing(what string, err error) string {
	return fmt.Sprintf("skipped without %s (%v); make test installs it, and runs this", what, err)
}

// Clients is the folder of the client libraries that Debian doesn't have.
func Clients(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("CLIENTS")
	_, err := os.Stat(dir)
	Needs(tb, "the client libraries of `make clients` in the folder that CLIENTS names", err)
	return dir
}
