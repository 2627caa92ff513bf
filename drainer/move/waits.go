package move

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// waits has the servers that a move waits for, why, and since when. Several goroutines may use it.
type waits struct {
	// Sources are the servers whose items are moved or copied. All others are survivors.
	Sources []string
	// Log gets a line when a wait begins, and when it ends.
	Log io.Writer

	mu    sync.Mutex
	why   map[string]string
	since map[string]time.Time
}

// Set sets why the move waits for the server of that name; "" if it doesn't.
func (w *waits) Set(name, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, was := w.why[name]
	switch {
	case why == "" && !was, why == before && was:
		return
	case why == "":
		delete(w.why, name)
		delete(w.since, name)
		fmt.Fprintf(w.Log, "%s %s answers again\n", w.role(name), name)
		return
	case !was:
		fmt.Fprintf(w.Log, "waiting for %s %s: %s\n", w.role(name), name, why)
	}
	if w.why == nil {
		w.why, w.since = map[string]string{}, map[string]time.Time{}
	}
	if w.why[name] = why; !was {
		w.since[name] = time.Now()
	}
}

func (w *waits) role(name string) string {
	if slices.Contains(w.Sources, name) {
		return "source"
	}
	return "survivor"
}

// Message names the servers that the move waits for, "" if there are none, and the longest of these waits;
// source tells whether the source is one of them.
func (w *waits) Message() (message string, longest time.Duration, source bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for name, why := range w.why {
		parts = append(parts, name+" ("+why+")")
		longest = max(longest, time.Since(w.since[name]))
		source = source || slices.Contains(w.Sources, name)
	}
	if len(parts) == 0 {
		return "", 0, false
	}
	return "waiting for " + strings.Join(sortedFew(parts), ", "), longest, source
}

// sortedFew returns a sorted list for a message, cut after three names.
func sortedFew(names []string) []string {
	const few = 3
	slices.Sort(names)
	if len(names) > few {
		names = append(names[:few:few], fmt.Sprintf("and %d more", len(names)-few))
	}
	return names
}
