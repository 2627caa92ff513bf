package status

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxMessage bounds a message in status, and the note of an event, in bytes.
	MaxMessage = 1024
	// maxReason bounds the reason of a drain, in bytes; the kubelet may have given it.
	maxReason = 64
	// maxDrains bounds status.drains.
	maxDrains = 32
	// maxNodes bounds status.nodes: a cluster has no more members.
	maxNodes = 512
	// maxNamed bounds how many members one message names.
	maxNamed = 5
)

// BoundMessage cuts a message to MaxMessage bytes, between two characters, and adds a mark.
func BoundMessage(s string) string { return bound(s, MaxMessage) }

func bound(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return whole(s[:most-len(mark)]) + mark
}

// whole drops invalid UTF-8: half a character at either end, or other bytes.
func whole(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "")
}

// tail is the last most bytes of a text, with a mark where it was cut.
func tail(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return whole(s)
	}
	return mark + whole(s[len(s)-most+len(mark):])
}

// Printable is the beginning of the text on one line, at most limit bytes.
func Printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// someOf lists the first three names, and how many more there are.
func someOf(names []string) string {
	const most = 3
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// waits collects how long it takes until a status changes with time alone.
type waits struct {
	now  time.Time
	next time.Duration
}

// past tells whether the time t has come. If not, the status is computed again at t.
func (w *waits) past(t time.Time) bool {
	left := t.Sub(w.now)
	if left > 0 && (w.next == 0 || left < w.next) {
		w.next = left
	}
	return left <= 0
}
