package claims

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMessage bounds a message in status, and the note of an event, in bytes.
const MaxMessage = 1024

// BoundMessage cuts a message to MaxMessage bytes, between two characters, and adds a mark.
func BoundMessage(s string) string { return Bound(s, MaxMessage) }

// Bound cuts a text to at most limit bytes, between two characters, and adds a mark.
func Bound(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	return whole(s[:limit-len(mark)]) + mark
}

// whole drops invalid UTF-8: half a character at either end, or other bytes.
func whole(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "")
}

// Contended says that two installations of the operator watch the namespace of an object of this kind. The
// installation manager manages the object, and the installation other leaves it alone.
func Contended(kind, other, manager string) string {
	return fmt.Sprintf("installation %s of the operator watches this namespace, too, and leaves this %s to installation %s: "+
		"limit one of them to other namespaces by --namespaces, or uninstall it", other, kind, manager)
}

// Tail is the end of a text, at most limit bytes, with a mark where it was cut.
func Tail(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return whole(s)
	}
	return mark + whole(s[len(s)-limit+len(mark):])
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
