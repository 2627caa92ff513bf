package read

import (
	"time"
)

// Requeue is when to reconcile once more if no event comes earlier. Shortest is the shortest of
// all times that its reconcile has collected.
type Requeue struct{ Shortest time.Duration }

// AtMost asks for a reconcile after that time at the latest; 0 asks for none.
func (w *Requeue) AtMost(d time.Duration) {
	if d > 0 && (w.Shortest == 0 || d < w.Shortest) {
		w.Shortest = d
	}
}

// When asks for a reconcile after that time if the condition is true.
func (w *Requeue) When(condition bool, d time.Duration) {
	if condition {
		w.AtMost(d)
	}
}
