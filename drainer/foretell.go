package drainer

import (
	"context"
	"encoding/json"
	"os"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// foretell keeps current, where the kubelet looks when the container has ended,
// whether a start after a crash would be cold. It is for one goroutine at a time.
func (s *supervisor) foretell() {
	if s.terminationLog == "" {
		return
	}
	need := memoryLimit(s.command)
	free, _, err := s.room(need)
	message := ""
	if err == nil && need > free {
		var b []byte
		const mib = 1 << 20 // what else writes to the disk moves it by less, mostly
		b, err = json.Marshal(contract.ColdStart{NeedBytes: need, FreeBytes: free / mib * mib})
		message = string(b)
	}
	if err == nil {
		err = s.leave(message)
	}
	if err != nil {
		s.logf("the termination message can't be kept: %v", err)
		s.terminationLog = ""
	}
}

// foretellStart says it of the first start in a new pod, from beside memcached:
// whether its version is too old for the save is the one thing not known here.
func (s *supervisor) foretellStart(ctx context.Context) {
	if s.saves() {
		s.foretellLoad()
		return
	}
	if missing(s.path(contract.WarmFile)) {
		return
	}
	s.awaitClock(ctx)
	refusal := readable(s.dir)
	if refusal == nil {
		_, refusal = acceptable(s.dir, s.command)
	}
	if refusal != nil && !unvouched(refusal) {
		s.foretell()
	}
}

// foretellLoad says of a warm file in memory, which needs no room to be replayed,
// whether the pod before this one took it away.
func (s *supervisor) foretellLoad() {
	_, err := warmfile.Generations(s.volume)
	if !isReason(err, warmfile.ReasonSaveOutdated) || !missing(s.path(contract.Manifest)) || s.terminationLog == "" {
		return
	}
	message, err := json.Marshal(contract.ColdStart{SaveOutdated: true})
	if err == nil {
		err = s.leave(string(message))
	}
	if err != nil {
		s.logf("the termination message can't be written: %v", err)
	}
}

// leave makes message the one that the kubelet finds.
func (s *supervisor) leave(message string) error {
	if message == s.left || s.terminationLog == "" {
		return nil
	}
	s.left = message
	return os.WriteFile(s.terminationLog, []byte(message), 0o644)
}
