package pull

import (
	"fmt"
	"strings"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router/change"
)

// heard is the answer to the present step. What the last step was, and how it ended, says what
// came of the key.
func (m *move) heard(answer []byte) error {
	result, why := m.request.Result(m.step, answer)
	if result.Code == change.Failed && why == nil {
		return fmt.Errorf("%w: %.80q", memcache.ErrProtocol, answer)
	}
	k := m.key
	switch at := m.step; {
	case result.Code == change.Failed:
		k.Outcome, k.Why = Refused, strings.TrimSpace(string(why))
	case at.Action == change.Fetch:
		result.Code = m.fetch(result.Code, answer)
	case at.Action == change.Look && at.Place == change.Old && result.Code == change.Absent:
		k.Outcome = Present
	case at.Action == change.EraseIf && at.Place == change.Old && result.Code != change.Changed:
		k.Outcome = Present
		if m.fetched.Value != nil { // also if others have deleted it since it was copied
			k.Outcome, k.Bytes = Moved, int64(len(k.Key)+len(m.fetched.Value)-len("\r\n"))
		}
	}
	if m.step = m.mover.Next(result); m.step.Action == change.Done {
		m.fetched.Value = nil
	}
	return nil
}

// fetch takes the item. What can't be moved counts as absent, so its lease is given back.
func (m *move) fetch(code change.Code, answer []byte) change.Code {
	if code == change.Found {
		var lives bool
		if m.fetched, lives = m.request.Fetched(answer); lives {
			return change.Found
		}
	}
	if m.key.Outcome = Gone; m.request.Outdated(answer) {
		m.key.Outcome = Outdated
	}
	return change.Absent
}
