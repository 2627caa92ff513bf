package contract

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// WorkKind is a long step of a member's supervisor.
type WorkKind string

// The long steps.
const (
	WorkSaving    WorkKind = "saving"
	WorkLoading   WorkKind = "loading"
	WorkReplaying WorkKind = "replaying"
)

// Work is how far a long step is: a line in the log of a member's supervisor.
type Work struct {
	Kind WorkKind
	// Done and Total are items of a replay, and MiB of a save or a load.
	Done, Total int64
	// Rate is the average so far, per second.
	Rate int64
}

// unit is the unit of Done and Total.
func (k WorkKind) unit() string {
	if k == WorkReplaying {
		return "items"
	}
	return "MiB"
}

// String is the line, for people and for ParseWork.
func (w *Work) String() string {
	unit := w.Kind.unit()
	return fmt.Sprintf("%s: %d of %d %s, at %d %s/s", w.Kind, w.Done, w.Total, unit, w.Rate, unit)
}

// mostWork is more items or MiB than a volume has.
const mostWork = 1 << 46

// ParseWork finds Work in a line of a log; nil in any other line.
func ParseWork(line string) *Work {
	for _, kind := range []WorkKind{WorkSaving, WorkLoading, WorkReplaying} {
		_, after, found := strings.Cut(line, string(kind)+": ")
		if !found {
			continue
		}
		w := Work{Kind: kind}
		if _, err := fmt.Sscanf(after, "%d of %d", &w.Done, &w.Total); err != nil {
			continue
		}
		if _, rate, found := strings.Cut(after, ", at "); found {
			_, _ = fmt.Sscanf(rate, "%d", &w.Rate)
		}
		if w.Total > 0 && w.Total <= mostWork && w.Done >= 0 && w.Done <= w.Total && w.Rate >= 0 && w.Rate <= mostWork && strings.HasSuffix(line, w.String()) {
			return &w
		}
	}
	return nil
}

// WorkLogged is how often a long step is in the log, at most.
const WorkLogged = 2 * time.Second

// LogWork returns a function that logs how far a long step is. Done and total are items of a replay, or bytes. Several
// goroutines may call it.
func LogWork(kind WorkKind, logf func(string, ...any)) func(done, total int64) {
	var mu sync.Mutex
	began, logged := time.Now(), time.Time{}
	return func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(logged) < WorkLogged {
			return
		}
		logged = time.Now()
		rate := int64(float64(done) / max(time.Since(began).Seconds(), 1e-3))
		w := Work{Kind: kind, Done: done, Total: total, Rate: rate}
		if kind != WorkReplaying {
			w.Done, w.Total, w.Rate = done>>20, (total+1<<20-1)>>20, rate>>20
		}
		logf("%s", &w)
	}
}
