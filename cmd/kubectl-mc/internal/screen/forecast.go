package screen

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"example.com/memcached-operator/controllers"
)

// Forecast are the lines of a plan, of that many columns at most.
func Forecast(f *controllers.Forecast, width int, style Style) []string {
	var lines []string
	add := func(word, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("%-9s %s", word, fmt.Sprintf(format, args...)))
	}
	for _, of := range []struct {
		word    string
		members []string
	}{{"leave", f.Leave}, {"join", f.Join}, {"restart", f.Restart}, {"grow", f.Grow}} {
		if len(of.members) > 0 {
			add(of.word, "%s", strings.Join(of.members, ", "))
		}
	}
	switch {
	case f.Hibernates:
		add("items", "stay on the volumes, and are back when members return")
	case len(f.Restart) > 0 && f.Warm:
		add("warm", "members that restart keep their items")
	}
	if len(f.Flows) > 0 {
		add("move", "%s", amount(f.Moved))
		lines = append(lines, flows(f.Flows)...)
	}
	for _, of := range []struct {
		word, what string
		holds      controllers.Holds
	}{
		{"keep", "stay on volumes that no member reads", f.Retained},
		{"miss", "stay at members where clients no longer look", f.Stays},
		{"EVICT", "have to go: the members that stay have too little memory", f.Evicted},
		{"LOSE", "go with their members", f.Lost},
	} {
		if of.holds.Items+of.holds.Bytes > 0 {
			add(of.word, "%s %s", amount(of.holds), of.what)
		}
	}
	if len(f.Flows) > 0 && f.Evicted.Bytes == 0 && len(f.Unknown) == 0 {
		add("fit", "they fit into the memory of the members that stay")
	}
	if f.Elsewhere > 0 {
		add("keys", "clients look for %s of all keys at another member", percent(f.Elsewhere))
	}
	if f.KeysElsewhere != nil {
		add("", "and for %s of the keys of your file", percent(*f.KeysElsewhere))
	}
	switch {
	case f.Takes != nil:
		add("take", "about %s, by the last receipts", duration.HumanDuration(f.Takes.Duration))
	case len(f.Flows) > 0 && f.Moved.Items > 0:
		add("take", "not known: there is no receipt yet")
	}
	if len(f.Unknown) > 0 {
		add("unknown", "what %s hold: the numbers are too low", strings.Join(f.Unknown, ", "))
	}
	if len(lines) == 0 {
		add("nothing", "would happen to the members")
	}
	said(f, style, add)
	return fold(lines, width)
}

// said adds what status would say.
func said(f *controllers.Forecast, style Style, add func(word, format string, args ...any)) {
	for _, r := range f.Advice {
		add("advice", "%s: %s", r.Reason, r.Message)
	}
	if r := f.Trouble; r != nil {
		add(style.paint(red, "trouble  "), "%s: %s", r.Reason, r.Message)
	}
	if r := f.Blocked; r != nil {
		add(style.paint(yellow, "blocked  "), "%s: %s", r.Reason, r.Message)
	}
}

func amount(h controllers.Holds) string {
	return fmt.Sprintf("%s items, %s", Count(h.Items), Bytes(h.Bytes))
}

// flows are the lines of what moves from where to where.
func flows(all []controllers.Flow) []string {
	rows := [][]string{{"FROM", "TO", "ITEMS", "BYTES"}}
	for _, flow := range all {
		rows = append(rows, []string{flow.From, flow.To, Count(flow.Items), Bytes(flow.Bytes)})
	}
	lines := Table(rows)
	for i := range lines {
		lines[i] = "          " + lines[i]
	}
	return lines
}
