package terminal

import (
	"encoding/xml"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAScreenIsWhatATerminalShows(t *testing.T) {
	s, whole := newScreen(10, 3), 0
	for _, part := range []string{"one\r\ntwo\x1b[31", "m red\x1b[0m\r\n", "3\xe2\x96", "\x88\r\nscrolled", "\x1b[H\x1b[Knew\r\n\x1b[K\x1b[J"} {
		s.write([]byte(part), func() { whole++ })
		if part == "\x88\r\nscrolled" {
			if got, want := s.frame().Text(), "two red\n3█\nscrolled"; got != want {
				t.Errorf("it shows %q, want %q", got, want)
			}
			if c := s.cells[0][4]; c.char != 'r' || c.code != 31 {
				t.Errorf("red is %+v", c)
			}
		}
	}
	if got, want := s.frame().Text(), "new"; got != want || whole != 1 {
		t.Errorf("it shows %q, want %q; %d whole screens", got, want, whole)
	}
	s.write([]byte("0123456789ab"), nil)
	if got, want := s.frame().Text(), "new\n0123456789\nab"; got != want {
		t.Errorf("a long line is %q, want %q", got, want)
	}
}

func TestAPersonIsAskedInATerminal(t *testing.T) {
	term := Start(t, exec.Command("sh", "-c", `test -t 0 || exit 9; printf 'Go on? '; read answer; echo "it is $answer"; exit 3`), 40, 5)
	term.Shows("Go on?")
	term.Type("yes\n")
	if got := term.Ends(3); !strings.Contains(got, "it is yes") {
		t.Errorf("it shows %q", got)
	}
	term = Start(t, exec.Command("sh", "-c", `echo "a long question, then (yes/no)"`), 28, 5)
	term.Shows("(yes/no)")
	term.Ends(0)
	term = Start(t, exec.Command("sh", "-c", `trap 'echo stopped; exit 0' INT; echo runs; while :; do sleep 0.1; done`), 40, 5)
	term.Shows("runs")
	term.Interrupt()
	if got := term.Ends(0); !strings.Contains(got, "stopped") {
		t.Errorf("it shows %q", got)
	}
}

func TestAPictureHasEachScreen(t *testing.T) {
	s, at := newScreen(20, 3), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var frames []Timed
	for _, text := range []string{"first", "first", "<\x1b[33mbar ██\x1b[0m", "last"} {
		s.write([]byte("\x1b[H"+text+"\x1b[K\x1b[J"), func() { frames = append(frames, Timed{s.frame(), at}) })
		at = at.Add(time.Second)
	}
	svg := SVG("a & b", frames)
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Errorf("it is no XML: %v\n%s", err, svg)
	}
	for _, part := range []string{"<title>a &amp; b</title>", ">first</text>", `fill="#e3b341">bar ██</text>`, ">&lt;</text>", ">last</text>", "@keyframes k2"} {
		if !strings.Contains(svg, part) {
			t.Errorf("it lacks %s:\n%s", part, svg)
		}
	}
	if n := strings.Count(svg, "<g "); n != 3 {
		t.Errorf("it has %d screens", n)
	}
	if n := len(chosen(many(100))); n != most {
		t.Errorf("of many screens it has %d", n)
	}
}

// many are screens that differ.
func many(n int) (frames []Timed) {
	for i := range n {
		frames = append(frames, Timed{Frame: Frame{{{'a' + rune(i), 0}}}})
	}
	return frames
}
