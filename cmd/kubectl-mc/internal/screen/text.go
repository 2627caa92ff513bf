package screen

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Style colours text, if Colours is set.
type Style struct{ Colours bool }

const (
	red, green, yellow = "31", "32", "33"
	boldCode, dimCode  = "1", "2"
)

func (s Style) paint(code, text string) string {
	if !s.Colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Style) bold(text string) string { return s.paint(boldCode, text) }

// Warn colours text that a person should not overlook.
func (s Style) Warn(text string) string { return s.paint(yellow, text) }

func (s Style) dim(text string) string { return s.paint(dimCode, text) }

func (s Style) phase(p cachev1alpha1.Phase) string {
	switch p {
	case cachev1alpha1.PhaseRunning, cachev1alpha1.PhaseHibernated:
		return s.paint(green, string(p))
	case cachev1alpha1.PhaseDegraded:
		return s.paint(red, string(p))
	case "":
		return s.paint(yellow, "not observed yet")
	}
	return s.paint(yellow, string(p))
}

// state colours a member's line, if it isn't ready.
func (s Style) state(state, line string) string {
	if state == "ready" {
		return line
	}
	return s.paint(yellow, line)
}

// barWidth is the width of a bar, in columns.
const barWidth = 12

// bar shows a share, from 0 to 1.
func bar(share float64) string {
	full := int(min(1, max(0, share))*barWidth + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func ratio(part, all int64) string {
	if all == 0 {
		return "-"
	}
	return percent(float64(part) / float64(all))
}

// Count is a number for people: 1,234,567.
func Count(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Bytes is a size for people: 12.3 MiB.
func Bytes(n int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	case n >= mib:
		return fmt.Sprintf("%.1f MiB", float64(n)/mib)
	case n >= kib:
		return fmt.Sprintf("%.1f KiB", float64(n)/kib)
	}
	return fmt.Sprintf("%d B", n)
}

// steers finds the codes of a Style, and all other characters that steer a terminal.
var steers = regexp.MustCompile(`\x1b\[(0|` + strings.Join([]string{red, green, yellow, boldCode, dimCode}, "|") + `)m|[\x00-\x08\n-\x1f\x7f-\x{9f}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

// Plain returns a line in which only colours steer the terminal: messages and logs come from containers and
// admission.
func Plain(line string) string {
	return steers.ReplaceAllStringFunc(line, func(code string) string {
		if strings.HasSuffix(code, "m") {
			return code
		}
		return strings.Trim(strconv.QuoteToASCII(code), `"`)
	})
}

// Table aligns the cells of rows in columns.
func Table(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for r, row := range rows {
		for i, cell := range row {
			lines[r] += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		lines[r] = strings.TrimRight(lines[r], " ")
	}
	return lines
}

// Fold breaks the lines at blanks, so that none has more than width columns; 0 breaks none. The rest of a
// line keeps its indent.
func Fold(lines []string, width int) (folded []string) {
	for _, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for width > 0 && columns(line) > width {
			at := strings.LastIndex(line[:byteAt(line, width)], " ")
			if at <= len(indent) {
				break
			}
			folded = append(folded, line[:at])
			line = indent + line[at+1:]
		}
		folded = append(folded, line)
	}
	return folded
}

// columns is how wide a line is, without its colours.
func columns(line string) (n int) {
	inCode := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			inCode = true
		case inCode:
			inCode = r != 'm'
		default:
			n++
		}
	}
	return n
}

// byteAt is where the column begins.
func byteAt(line string, column int) int {
	inCode, n := false, 0
	for i, r := range line {
		switch {
		case r == '\x1b':
			inCode = true
		case inCode:
			inCode = r != 'm'
		default:
			if n++; n > column {
				return i
			}
		}
	}
	return len(line)
}
