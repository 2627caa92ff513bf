package screen

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"example.com/memcached-operator/controllers"
)

// Forecast are the lines of a plan, of that many columns at most.
func Forecast(f *controllers.Forecast, width int, style Style) []string {
	l := &forecastLines{Forecast: f}
	l.members()
	l.items()
	l.keys()
	l.fill()
	if len(l.lines) == 0 {
		l.add("nothing", "would happen to the members")
	}
	for _, r := range f.Advice {
		l.add("advice", "%s: %s", r.Reason, r.Message)
	}
	if r := f.Trouble; r != nil {
		l.add(style.paint(red, "trouble  "), "%s: %s", r.Reason, r.Message)
	}
	if r := f.Blocked; r != nil {
		l.add(style.paint(yellow, "blocked  "), "%s: %s", r.Reason, r.Message)
	}
	return Fold(l.lines, width)
}

type forecastLines struct {
	*controllers.Forecast
	lines []string
}

func (l *forecastLines) add(word, format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf("%-9s %s", word, fmt.Sprintf(format, args...)))
}

func (l *forecastLines) members() {
	for _, of := range []struct {
		word    string
		members []string
	}{{"leave", l.Leave}, {"join", l.Join}, {"restart", l.Restart}, {"grow", l.Grow}} {
		if len(of.members) > 0 {
			l.add(of.word, "%s", strings.Join(of.members, ", "))
		}
	}
	switch {
	case l.Hibernates:
		l.add("items", "stay on the volumes, and are back when members return")
	case len(l.Restart) > 0 && l.Warm:
		l.add("warm", "members that restart keep their items")
	}
}

func (l *forecastLines) items() {
	if len(l.Flows) > 0 {
		l.add("move", "%s", amount(l.Moved))
		rows := [][]string{{"FROM", "TO", "ITEMS", "BYTES"}}
		for _, flow := range l.Flows {
			rows = append(rows, []string{flow.From, flow.To, Count(flow.Items), Bytes(flow.Bytes)})
		}
		for _, line := range Table(rows) {
			l.lines = append(l.lines, "          "+line)
		}
	}
	for _, of := range []struct {
		word, what string
		holds      controllers.Holds
	}{
		{"keep", "stay on volumes that no member reads", l.Retained},
		{"miss", "stay at members where clients no longer look", l.Stays},
		{"EVICT", "have to go: the members that stay have too little memory", l.Evicted},
		{"LOSE", "go with their members", l.Lost},
	} {
		if of.holds.Items+of.holds.Bytes > 0 {
			l.add(of.word, "%s %s", amount(of.holds), of.what)
		}
	}
	if len(l.Uncounted) > 0 {
		l.add("LOSE", "what %s hold: how much that is is not known", strings.Join(l.Uncounted, ", "))
	}
	if len(l.Flows) > 0 && l.Evicted.Bytes == 0 && len(l.Unknown) == 0 {
		l.add("fit", "they fit into the memory of the members that stay")
	}
}

func (l *forecastLines) keys() {
	if l.Elsewhere > 0 {
		l.add("keys", "clients look for %s of all keys at another member", percent(l.Elsewhere))
	}
	if l.KeysElsewhere != nil {
		l.add("", "and for %s of the keys of your file", percent(*l.KeysElsewhere))
	}
	switch {
	case l.Takes != nil:
		l.add("take", "about %s, by the last receipts", duration.HumanDuration(l.Takes.Duration))
	case len(l.Flows) > 0 && l.Moved.Items > 0:
		l.add("take", "not known: there is no receipt yet")
	}
	if len(l.Unknown) > 0 {
		l.add("unknown", "what %s hold: the numbers are too low", strings.Join(l.Unknown, ", "))
	}
}

func (l *forecastLines) fill() {
	for i, sentence := range l.Fill {
		word := ""
		if i == 0 {
			word = "fill"
		}
		l.add(word, "%d. %s", i+1, sentence)
	}
}

func amount(h controllers.Holds) string {
	return fmt.Sprintf("%s items, %s", Count(h.Items), Bytes(h.Bytes))
}
