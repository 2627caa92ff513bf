package pull

import (
	"fmt"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router/change"
)

// heard is the answer to the present step. What the last step was, and how it ended, says what
// came of the key.
func (l *Lane) heard(m *move, answer []byte) error {
	result, why := m.request.Result(m.step, answer)
	if result.Code == change.Failed && why == nil {
		return fmt.Errorf("%w: %.80q", memcache.ErrProtocol, answer)
	}
	k := m.key
	switch at := m.step; {
	case result.Code == change.Failed:
		k.Outcome, k.Why = Refused, strings.TrimSpace(string(why))
	case at.Action == change.Fetch:
		result.Code = l.fetch(m, result, answer)
	case at.Action == change.Copy:
		l.heardCopy(m, result)
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
func (l *Lane) fetch(m *move, result change.Result, answer []byte) change.Code {
	k := m.key
	switch fetched, lives := m.request.Fetched(answer); {
	case result.Code == change.Leased:
		return change.Absent // it expires soon
	case result.Code == change.Found && lives && l.now[change.New].Removes(time.Now().Unix()-fetched.Idle):
		l.outdated = append(l.outdated, copied{key: k, cas: result.CAS})
		k.Outcome = Flushed
		return change.Absent
	case result.Code == change.Found && lives:
		m.fetched = fetched
		return change.Found
	}
	if k.Outcome = Gone; m.request.Outdated(answer) {
		k.Outcome = Outdated
	}
	return change.Absent
}
