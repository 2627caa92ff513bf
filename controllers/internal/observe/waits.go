package observe

import (
	"time"
)

// Waits is when to look at a cluster again if no event comes earlier. Shortest is the
// shortest of all times that its reconcile has collected.
type Waits struct{ Shortest time.Duration }

// AtMost looks again after that time at the latest; 0 means nothing.
func (w *Waits) AtMost(d time.Duration) {
	if d > 0 && (w.Shortest == 0 || d < w.Shortest) {
		w.Shortest = d
	}
}

// When looks again after that time if the condition is true.
func (w *Waits) When(condition bool, d time.Duration) {
	if condition {
		w.AtMost(d)
	}
}
