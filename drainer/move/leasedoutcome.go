package move

import (
	"fmt"
	"strings"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
)

// heard handles the answer to the present step. The last step and its result determine the outcome of the
// key.
func (l *KeyMover) heard(m *keyMove, answer []byte) error {
	result, why := m.request.Result(m.step, answer)
	if result.Code == ringchange.Failed && why == nil {
		return fmt.Errorf("%w: %.80q", memcache.ErrProtocol, answer)
	}
	k := m.key
	switch at := m.step; {
	case result.Code == ringchange.Occupied:
		m.step = at.Peek()
		return nil
	case result.Code == ringchange.Failed:
		k.Outcome, k.Why = keyRefused, strings.TrimSpace(string(why))
	case at.Action == ringchange.Fetch:
		result.Code = l.fetch(m, result, answer)
	case at.Action == ringchange.Copy:
		l.heardCopy(m, result)
	case (at.Action == ringchange.Look || at.Action == ringchange.Peek) && at.Place == ringchange.Old && result.Code == ringchange.Absent:
		k.Outcome = keyPresent
	case at.Action == ringchange.EraseIf && at.Place == ringchange.Old && result.Code != ringchange.Changed:
		k.Outcome = keyPresent
		if m.fetched.Value != nil { // it was copied, even if a client has deleted it at the old owner since then
			m.moved()
		}
	}
	if m.step = m.mover.Next(result); m.step.Action == ringchange.Done {
		m.fetched.Value = nil
	}
	return nil
}

// moved records that the item is at its new owner.
func (m *keyMove) moved() {
	m.key.Outcome, m.key.Bytes = keyMoved, int64(len(m.key.Key)+len(m.fetched.Value)-len("\r\n"))
}

// fetch takes the item. An item that can't be moved counts as absent, so its lease is given back.
func (l *KeyMover) fetch(m *keyMove, result ringchange.Result, answer []byte) ringchange.Code {
	k := m.key
	fetched, lives := m.request.Fetched(answer)
	m.accessed = l.asked - fetched.Idle
	switch {
	case result.Code == ringchange.Leased:
		return ringchange.Absent // another client's lease, which expires soon
	case result.Code == ringchange.Found && lives && l.latest[ringchange.New].Removes(m.accessed):
		l.outdated = append(l.outdated, copied{key: k, cas: result.CAS})
		k.Outcome = keyFlushed
		return ringchange.Absent
	case result.Code == ringchange.Found && lives:
		m.fetched = fetched
		return ringchange.Found
	}
	switch k.Outcome = keyGone; {
	case m.request.Outdated(answer):
		k.Outcome = keyOutdated
	case m.copied > 0: // it had changed after its copy, and is gone now
		m.moved()
	}
	return ringchange.Absent
}
