package observe

import (
	"time"
)

// Waits is when a cluster has to be looked at again, though no event may come: the
// Shortest of all the times that its reconcile has found.
type Waits struct{ Shortest time.Duration }

// AtMost looks again after that time at the latest; 0 stands for no such time.
func (w *Waits) AtMost(d time.Duration) {
	if d > 0 && (w.Shortest == 0 || d < w.Shortest) {
		w.Shortest = d
	}
}

// When looks again after that time if the condition holds.
func (w *Waits) When(condition bool, d time.Duration) {
	if condition {
		w.AtMost(d)
	}
}
