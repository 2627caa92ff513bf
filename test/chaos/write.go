package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// writeHot writes a key by its one writer. Direct clients overwrite keys only: a member's replay
// brings back what was deleted (docs/hazards.md).
func (l *load) writeHot(h *hot, random *rand.Rand) {
	m := l.views.asked(h.key)
	if m == nil {
		return
	}
	now := h.look()
	switch what := random.IntN(20); {
	case !l.views.routed:
		l.set(m, h)
	case now.gone && now.acknowledged > 0 && what >= 5: // it stays deleted for a while
	case now.gone && now.acknowledged > 0 && what == 4:
		l.remove(m, h)
	case now.gone:
		l.set(m, h)
	case what < 2:
		l.remove(m, h)
	case h.counts && what < 16:
		l.increment(m, h)
	case h.counts:
		l.set(m, h)
	case what < 6:
		l.swap(m, h)
	case what < 8:
		l.swapOutdated(m, h)
	default:
		l.set(m, h)
	}
}

// set stores the next number.
func (l *load) set(m *member, h *hot) bool {
	began := time.Now()
	_, number, ok := h.begin(false)
	if !ok {
		return false
	}
	if err := m.client.Set(&memcache.Item{Key: h.key, Value: h.value(number)}); err != nil {
		l.unanswered(h, err)
		return false
	}
	l.stored.Add(1)
	h.acknowledge(number, false, span{began, time.Now()})
	return true
}

// remove deletes the key.
func (l *load) remove(m *member, h *hot) {
	began := time.Now()
	before, number, ok := h.begin(true)
	if !ok {
		return
	}
	err := m.client.Delete(h.key)
	switch {
	case err == nil:
		if before.gone && !before.unsure { // there was nothing to delete
			l.found(h, old, &before, began, "found by a delete")
		}
	case errors.Is(err, memcache.ErrCacheMiss):
		l.found(h, judge(before, before, 0, false), &before, began, "deleted")
	default:
		l.unanswered(h, err)
		return
	}
	l.deleted.Add(1)
	h.acknowledge(number, true, span{began, time.Now()})
}

// increment increments a counter. The answer is one more than what a read would have found.
func (l *load) increment(m *member, h *hot) {
	began := time.Now()
	before, _, ok := h.begin(false)
	if !ok {
		return
	}
	got, err := m.client.Increment(h.key, 1)
	switch {
	case err == nil:
		number := int64(got)
		l.found(h, judge(before, before, number-1, true), &before, began, "incremented to %d", number)
		l.counted.Add(1)
		h.acknowledge(number, false, span{began, time.Now()})
	case errors.Is(err, memcache.ErrCacheMiss):
		l.found(h, judge(before, before, 0, false), &before, began, "incremented")
		h.refuse()
		l.set(m, h)
	default:
		l.unanswered(h, err)
	}
}

// swap replaces the value by the next one, by the value's token.
func (l *load) swap(m *member, h *hot) {
	if item := l.token(m, h); item != nil {
		l.compareAndSwap(m, h, item, right)
	}
}

// swapOutdated tries the token of a value that a set has replaced.
func (l *load) swapOutdated(m *member, h *hot) {
	if item := l.token(m, h); item != nil && l.set(m, h) {
		l.compareAndSwap(m, h, item, old)
	}
}

func (l *load) token(m *member, h *hot) *memcache.Item {
	before, began := h.look(), time.Now()
	item, err := m.client.Get(h.key)
	if l.judgeRead(h, &before, began, item, err) != nil {
		return nil
	}
	return item
}

// compareAndSwap stores the next number by the item's token. stored is the finding if it is stored.
func (l *load) compareAndSwap(m *member, h *hot, item *memcache.Item, stored finding) {
	began := time.Now()
	before, number, ok := h.begin(false)
	if !ok {
		return
	}
	item.Value = h.value(number)
	err := m.client.CompareAndSwap(item)
	switch {
	case err == nil:
		l.found(h, stored, &before, began, "swapped by token %d", item.CasID)
		l.swapped.Add(1)
		h.acknowledge(number, false, span{began, time.Now()})
	case errors.Is(err, memcache.ErrCASConflict):
		// A token of the present value may be refused, too: the item may have got another token.
		if stored == old {
			l.refused.Add(1)
		}
		h.refuse()
	case errors.Is(err, memcache.ErrCacheMiss):
		l.found(h, judge(before, before, 0, false), &before, began, "swapped")
		h.refuse()
	default:
		l.unanswered(h, err)
	}
}

// unanswered notes that a write has got no answer.
func (l *load) unanswered(h *hot, err error) {
	l.failed.Add(1)
	var resting time.Time
	if l.views.routed {
		resting = time.Now()
	}
	// After a time-out the write may be carried out at any time.
	var timeout net.Error
	h.unanswered(resting, errors.As(err, &timeout) && timeout.Timeout())
}

// readHot reads a hot key. readHot returns nil for a value, and for a miss that is right.
func (l *load) readHot(h *hot) error {
	m := l.views.asked(h.key)
	if m == nil {
		return memcache.ErrNoServers
	}
	before, began := h.look(), time.Now()
	item, err := m.client.Get(h.key)
	l.count(err)
	err = l.judgeRead(h, &before, began, item, err)
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// errGone is a miss of a key that may be gone.
var errGone = errors.New("the key is gone")

// judgeRead judges a read that began with the facts before.
func (l *load) judgeRead(h *hot, before *facts, began time.Time, item *memcache.Item, err error) error {
	switch {
	case err == nil:
		number, ok := h.numberOf(item.Value)
		if !ok {
			l.blame("%s: %q, which was never stored", h.key, item.Value)
			return nil
		}
		l.found(h, judge(*before, h.look(), number, true), before, began, "read as %d", number)
		return nil
	case !errors.Is(err, memcache.ErrCacheMiss):
		return err
	}
	what := judge(*before, h.look(), 0, false)
	if what == right {
		return errGone
	}
	l.found(h, what, before, began, "read")
	return err
}

// found counts the result of a request. A wrong result contradicts the write that was acknowledged before the
// request began.
func (l *load) found(h *hot, what finding, before *facts, began time.Time, format string, args ...any) {
	text := fmt.Sprintf("%s, %s with %d acknowledged (gone: %v) of %d,", h.key, fmt.Sprintf(format, args...), before.acknowledged, before.gone, before.attempted)
	switch what {
	case right:
	case foreign:
		l.blame("%s %s", text, what)
	default:
		l.suspect(suspicion{what: what, write: before.wrote, deleted: before.gone, request: span{began, time.Now()}, text: text})
	}
}
