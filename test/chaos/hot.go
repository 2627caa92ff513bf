package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hot is a key that is written again and again, by one writer. Each write draws a number that is
// higher than all before, a delete, too, and a set stores it. So whatever is read below the number of
// an acknowledged write is an old value, or one that was deleted.
type hot struct {
	key string
	// counts: it is incremented, too. Its value is the number alone.
	counts bool

	mu sync.Mutex
	facts
	// resting since that time, while a write without an answer may still be carried out: nothing is written.
	resting time.Time
}

// facts are what is known of a hot key at one time.
type facts struct {
	// attempted is the highest number that was drawn. acknowledged is the one of the last write that
	// was answered, and wrote when that was.
	attempted, acknowledged int64
	wrote                   span
	// gone: that write was a delete, or there was none yet.
	gone bool
	// unsure: a later write has got no answer. It may have been carried out, or in half: memcached
	// removes the old value before it stores the new one.
	unsure bool
	// deleting: a delete is under way.
	deleting bool
	// doubts counts the deletes that were sent, and the writes without an answer.
	doubts int
	// abandoned: a write may still be carried out, even after the next one.
	abandoned bool
}

// finding is what a request says of a hot key.
type finding string

const (
	right   finding = ""
	missing finding = "is missing"
	old     finding = "is old"
	foreign finding = "is of nobody"
)

// judge what a request has found that began with the facts before and ended with those after.
func judge(before, after facts, number int64, there bool) finding {
	switch {
	case there && number > after.attempted:
		return foreign
	case before.abandoned || after.abandoned:
	case there && number < before.acknowledged:
		return old
	case !there && !before.gone && !before.unsure && !before.deleting && before.doubts == after.doubts:
		return missing
	}
	return right
}

// look is what is known now.
func (h *hot) look() facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts
}

// begin a write, unless the key rests. It returns what was known before, and the write's number.
func (h *hot) begin(deletes bool) (before facts, number int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.abandoned || !h.resting.IsZero() {
		return h.facts, 0, false
	}
	before = h.facts
	h.attempted++
	if deletes {
		h.deleting = true
		h.doubts++
	}
	return before, h.attempted, true
}

// acknowledge the write with that number: the key has it, or is gone.
func (h *hot) acknowledge(number int64, gone bool, wrote span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acknowledged, h.gone, h.wrote = number, gone, wrote
	h.unsure, h.deleting = false, false
}

// refuse the write: it was answered, and has changed nothing.
func (h *hot) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleting = false
}

// unanswered: nobody knows what became of the write. The key rests until nobody carries it out any more,
// unless resting is no time.
func (h *hot) unanswered(resting time.Time, abandoned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure, h.deleting = true, false
	h.doubts++
	h.resting, h.abandoned = resting, h.abandoned || abandoned
}

// rested: the cluster is at rest, and has answered since. What was written that long ago has been carried
// out, or never will be.
func (h *hot) rested(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.resting) >= unansweredRests {
		h.resting = time.Time{}
	}
}

// value with that number; numberOf reads it.
func (h *hot) value(number int64) []byte {
	if h.counts {
		return strconv.AppendInt(nil, number, 10)
	}
	return fmt.Appendf(nil, "%s=%d", h.key, number)
}

func (h *hot) numberOf(value []byte) (int64, bool) {
	name, text := h.key, string(value)
	if !h.counts {
		name, text, _ = strings.Cut(text, "=")
	}
	number, err := strconv.ParseInt(strings.TrimRight(text, " "), 10, 64)
	return number, err == nil && name == h.key
}
