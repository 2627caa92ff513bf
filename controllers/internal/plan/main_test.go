package plan

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage be collected seldom: there is much of it, and next to nothing else.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}
