package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hot is a key that one writer writes again and again. Each write, also a delete, draws a number that is higher
// than all before, and a set stores it. If a read finds a lower number than that of an acknowledged write, the
// value is old, or was deleted.
type hot struct {
	key string
	// counts is set if the key is incremented, too. Its value is the number alone.
	counts bool

	mu sync.Mutex
	facts
	// resting is since when nothing is written, because a write without an answer may still be carried out.
	resting time.Time
}

// facts has the load's knowledge of a hot key at one time.
type facts struct {
	// attempted is the highest number that was drawn. acknowledged is the number of the last write that was
	// answered, and wrote the time of that write.
	attempted, acknowledged int64
	wrote                   span
	// gone is set if that write was a delete, or there was none yet.
	gone bool
	// unsure is set if a later write has got no answer. Such a write may have been carried out, or half of
	// it: memcached removes the old value before it stores the new one.
	unsure bool
	// deleting is set while a delete is under way.
	deleting bool
	// doubts counts the deletes that were sent, and the writes without an answer.
	doubts int
	// abandoned is set if a write may still be carried out, even after the next one.
	abandoned bool
}

// finding is the result of a request for a hot key.
type finding string

const (
	right   finding = ""
	missing finding = "is missing"
	old     finding = "is old"
	foreign finding = "was never stored"
)

// judge returns the finding of a request that began with the facts before and ended with those after.
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

// look returns the facts of now.
func (h *hot) look() facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts
}

// begin begins a write, unless the key rests. begin returns the facts before it, and the write's
// number.
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

// acknowledge notes that the write with that number was answered. The key has the number, or is gone.
func (h *hot) acknowledge(number int64, gone bool, wrote span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acknowledged, h.gone, h.wrote = number, gone, wrote
	h.unsure, h.deleting = false, false
}

// refuse notes that the write was answered, and has changed nothing.
func (h *hot) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleting = false
}

// unanswered notes that a write's outcome is unknown. The key rests until the write can't be carried out any
// more, unless resting is zero.
func (h *hot) unanswered(resting time.Time, abandoned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure, h.deleting = true, false
	h.doubts++
	h.resting, h.abandoned = resting, h.abandoned || abandoned
}

// rested notes that the cluster is at rest, and has answered. A write of long enough ago has been carried out,
// or never will be.
func (h *hot) rested(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.resting) >= unansweredRests {
		h.resting = time.Time{}
	}
}

// value has that number, which numberOf reads.
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
