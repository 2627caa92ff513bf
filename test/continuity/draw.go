package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"time"
)

// The size of a drawing, and where its axes are, in pixels.
const (
	width, height       = 720, 240
	left, right         = 48, 664
	top, bottom         = 28, 204
	ticks               = 4
	gridColour, ink     = "#ddd", "#333"
	hitColour, bad, now = "#1668b3", "#c22", "#888"
	slowColour          = "#d98c00"
)

// slowness has the 99th percentiles at the ticks of a logarithmic axis.
var slowness = [ticks + 1]string{"1 ms", "10 ms", "100 ms", "1 s", "10 s"}

// slow returns where a time is on that axis, from 0 to 1.
func slow(d time.Duration) float64 {
	return min(1, max(0, math.Log10(float64(d)/float64(time.Millisecond))/ticks))
}

// draw returns an SVG with the share of hits, the 99th percentiles, the errors, and the event.
func draw(title string, c *curve) []byte {
	var b bytes.Buffer
	n := max(1, len(c.seconds)-1) // the last second is cut
	x := func(second float64) float64 { return left + (right-left)*second/float64(n) }
	y := func(share float64) float64 { return bottom - (bottom-top)*share }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="%s">`+"\n", width, height, ink)
	fmt.Fprintf(&b, `<text x="%d" y="16" font-size="13">%s</text>`+"\n", left, html.EscapeString(title))
	for i := range ticks + 1 {
		share := float64(i) / ticks
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="%s"/><text x="%d" y="%.1f" text-anchor="end">%.0f%%</text><text x="%d" y="%.1f" fill="%s">%s</text>`+"\n",
			left, y(share), right, gridColour, left-6, y(share)+4, 100*share, right+6, y(share)+4, slowColour, slowness[i])
	}
	for second := 0; second <= n; second += 10 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d s</text>`+"\n", x(float64(second)), bottom+16, second)
	}
	fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="4 3"/>`+"\n", x(c.event.Seconds()), top, bottom, now)
	line := func(colour string, of func(*second) float64) {
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="1.5" d="`, colour)
		for i := range c.seconds[:min(n, len(c.seconds))] {
			move := "L"
			if i == 0 {
				move = "M"
			}
			fmt.Fprintf(&b, "%s%.1f %.1f", move, x(float64(i)+0.5), y(of(&c.seconds[i])))
		}
		b.WriteString(`"/>` + "\n")
	}
	line(slowColour, func(s *second) float64 { return slow(s.worst()) })
	line(hitColour, (*second).share)
	for i := range c.seconds[:min(n, len(c.seconds))] {
		s := &c.seconds[i]
		if failed := s.errors(); failed > 0 {
			share := float64(failed) / float64(s.hits+s.lost+failed)
			fmt.Fprintf(&b, `<path d="M%.1f %dV%.1f" stroke="%s" stroke-width="3"/>`+"\n", x(float64(i)+0.5), bottom, y(share), bad)
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d"><tspan fill="%s">hits of what was stored</tspan>, <tspan fill="%s">failed requests</tspan>, <tspan fill="%s">99th percentile of the answers' times</tspan>; dashed: the event</text>`+"\n</svg>\n",
		left, height-8, hitColour, bad, slowColour)
	return b.Bytes()
}
