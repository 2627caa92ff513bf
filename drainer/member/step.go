package member

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/volume"
)

// A member that has stepped out of the ring for its restart is told to start empty: what it still has could not be
// moved, and may be old when it returns. The supervisor ends memcached without a save, removes all files, notes
// that on the volume, and replaces itself by a new process. No flush does the same: movers obey flushes, and would
// not move the items that are stored before it.

// stepPeriod is how often the supervisor looks whether it is told.
const stepPeriod = 200 * time.Millisecond

// told returns the annotation's words, and its serial; 0 if there is none. A new pod has an empty file.
func (s *supervisor) told() (text string, serial int64) {
	b, err := os.ReadFile(s.StepFile)
	if err != nil || len(b) > contract.MaxStep {
		return "", 0
	}
	text = strings.TrimSpace(string(b))
	return text, contract.ParseStepOut(text)
}

// aside tells whether the member has started empty, and is not to be ready, so that its eviction is allowed.
func (s *supervisor) aside() bool {
	text, serial := s.told()
	return serial > 0 && serial == s.startedEmpty && contract.StepsAside(text)
}

// watchStep reports when the member is told to start empty.
func (s *supervisor) watchStep(ctx context.Context) {
	if s.StepFile == "" {
		return
	}
	for {
		if _, serial := s.told(); serial > 0 && serial != s.startedEmpty {
			select {
			case s.empties <- serial:
			case <-ctx.Done():
			}
			return
		}
		if pace.Sleep(ctx, stepPeriod) != nil {
			return
		}
	}
}

// beginEmpty ends memcached without a save, unless it is ending already.
func (s *supervisor) beginEmpty(serial int64) {
	if s.saving.Swap(true) {
		return
	}
	s.std.Logf("the member is out of the ring: it starts empty")
	s.emptying = serial
	s.stopReplay()
	s.endMemcached(syscall.SIGTERM)
}

// finishEmpty removes everything from which the member could restart.
func (s *supervisor) finishEmpty() error {
	if err := volume.Empty(s.Volume, s.Memory, s.emptying); err != nil {
		return fmt.Errorf("remove the items of a member that is out of the ring: %w", err)
	}
	return nil
}

// startAnew replaces this process by a new one, with the same arguments.
func startAnew() error {
	return fmt.Errorf("start again: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// answerStep reports whether memcached, which answers, has started empty.
func (s *supervisor) answerStep(w http.ResponseWriter, _ *http.Request) {
	text, _ := s.told()
	if !s.pulse.answers(time.Now()) {
		http.Error(w, "memcached does not answer", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(contract.Stepped{Told: text, Empty: s.startedEmpty})
}
