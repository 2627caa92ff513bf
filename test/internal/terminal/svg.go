package terminal

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// The size of a character and the looks of the picture, which reads well on a dark and on a light page.
const (
	charWidth, lineHeight = 7.8, 17
	margin                = 14
	paper, ink            = "#1b1f24", "#d0d7de"
)

// colours of the codes that kubectl mc writes; the second ones are weights.
var colours = map[int]string{
	31: `fill="#ff7b72"`, 32: `fill="#7ee787"`, 33: `fill="#e3b341"`,
	1: `font-weight="bold"`, 2: `fill="#8b949e"`,
}

// most is how many screens a picture has.
const most = 24

// SVG draws the frames as an animated picture. Each frame is shown for its own time, the first and the last
// ones for some seconds; a viewer without animation shows the one in the middle.
func SVG(title string, frames []Timed) string {
	frames = chosen(frames)
	shown := make([]time.Duration, len(frames))
	total := time.Duration(0)
	for i := range frames {
		const least, longest, pause = 300 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second
		if shown[i] = pause; i > 0 && i < len(frames)-1 {
			shown[i] = min(longest, max(least, frames[i+1].At.Sub(frames[i].At)))
		}
		total += shown[i]
	}
	columns, rows := 0, 0
	for i := range frames {
		lines := strings.Split(frames[i].Text(), "\n")
		for _, line := range lines {
			columns = max(columns, len([]rune(line)))
		}
		rows = max(rows, len(lines))
	}
	width, height := 2*margin+charWidth*float64(columns), 2*margin+lineHeight*rows
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>\ntext { font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: %s; white-space: pre }\n", html.EscapeString(title), ink)
	b.WriteString(animations(shown, total))
	fmt.Fprintf(&b, "</style>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"%s\"/>\n", paper)
	for i := range frames {
		visible := map[bool]string{true: "visible", false: "hidden"}[i == len(frames)/2]
		fmt.Fprintf(&b, "<g class=\"f%d\" visibility=\"%s\">\n%s</g>\n", i, visible, frames[i].svg())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// animations show one frame after the other.
func animations(shown []time.Duration, total time.Duration) string {
	var b strings.Builder
	at := time.Duration(0)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(total) }
	for i, d := range shown {
		fmt.Fprintf(&b, "@keyframes k%d { 0%% { visibility: %s } ", i, map[bool]string{true: "visible", false: "hidden"}[i == 0])
		if i > 0 {
			fmt.Fprintf(&b, "%.3f%% { visibility: visible } ", percent(at))
		}
		if at += d; i < len(shown)-1 {
			fmt.Fprintf(&b, "%.3f%% { visibility: hidden } ", percent(at))
		}
		fmt.Fprintf(&b, "}\n.f%d { animation: k%d %.1fs step-end infinite }\n", i, i, total.Seconds())
	}
	return b.String()
}

// chosen are frames that differ from the ones before: the first and the last one, and as many between them as a picture may have.
func chosen(frames []Timed) []Timed {
	frames = slices.CompactFunc(slices.Clone(frames), func(a, b Timed) bool { return a.Text() == b.Text() })
	if len(frames) <= most {
		return frames
	}
	some := make([]Timed, most)
	for i := range some {
		some[i] = frames[i*(len(frames)-1)/(most-1)]
	}
	return some
}

// svg draws a screen, a text element for each run of one colour.
func (f Frame) svg() string {
	var b strings.Builder
	for row, cells := range f {
		for from := 0; from < len(cells); {
			to := from
			for to < len(cells) && cells[to].code == cells[from].code {
				to++
			}
			text := Frame{cells[from:to]}.Text()
			if strings.TrimSpace(text) != "" {
				blanks := len(text) - len(strings.TrimLeft(text, " "))
				fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" %s>%s</text>\n", margin+charWidth*float64(from+blanks), margin+lineHeight*row+lineHeight*3/4,
					strings.TrimSpace(fmt.Sprintf(`textLength="%.1f" %s`, charWidth*float64(len([]rune(text))-blanks), colours[cells[from].code])), html.EscapeString(text[blanks:]))
			}
			from = to
		}
	}
	return b.String()
}
