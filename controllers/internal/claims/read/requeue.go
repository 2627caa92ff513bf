package read

import (
	"time"
)

// Again is when to reconcile again if no event comes earlier. Shortest is the shortest of
// all times that its reconcile has collected.
type Again struct{ Shortest time.Duration }

// AtMost asks for a reconcile after that time at the latest; 0 asks for none.
func (w *Again) AtMost(d time.Duration) {
	if d > 0 && (w.Shortest == 0 || d < w.Shortest) {
		w.Shortest = d
	}
}

// When asks for a reconcile after that time if the condition is true.
func (w *Again) When(condition bool, d time.Duration) {
	if condition {
		w.AtMost(d)
	}
}
