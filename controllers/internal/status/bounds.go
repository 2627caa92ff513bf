package status

import (
	"fmt"
	"strings"
	"time"
)

const (
	// maxNodes bounds status.nodes: a cluster has no more members.
	maxNodes = 512
	// maxNamed bounds how many members one message names.
	maxNamed = 5
)

// someOf lists the first three names, and how many more there are.
func someOf(names []string) string {
	const most = 3
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// waits collects how long it takes until a status changes with time alone.
type waits struct {
	now  time.Time
	next time.Duration
}

// past tells whether the time t has come. If not, the status is computed again at t.
func (w *waits) past(t time.Time) bool {
	left := t.Sub(w.now)
	if left > 0 && (w.next == 0 || left < w.next) {
		w.next = left
	}
	return left <= 0
}
