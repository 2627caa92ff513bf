package router_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/wire"
	"example.com/memcached-operator/test/wait"
)

// excludedLines are lines that Debian's memcached answers differently, or differently each time.
var excludedLines = map[string]*regexp.Regexp{
	"other than ERROR":              regexp.MustCompile(`^ *(?:stats|shutdown|watch|lru|lru_crawler|slabs|cache_memlimit|extstore|refresh_certs|misbehave|debugtime|version)(?: |$)`),
	"what it says is of a moment":   regexp.MustCompile(`^ *me `),
	"changes what members log":      regexp.MustCompile(`^ *verbosity `),
	"depends on the second":         regexp.MustCompile(`^ *flush_all [^0n]`),
	"keys in base64, see the docs":  regexp.MustCompile(`^ *m[gsda] .* b`),
	"flags of newer memcacheds":     regexp.MustCompile(`^ *m[gsda] .* [Ex]`),
	"a quiet ma that makes an item": regexp.MustCompile(`^ *ma .* N`),
	"ends the connection":           regexp.MustCompile(`HTTP/|^ *quit`),
	"sizes of which 32 bits are kept": regexp.MustCompile(
		`^ *(?:set|add|replace|append|prepend|cas|ms) .*(?:\d{10}|-\d)`),
	// memcached checks the opaque after it has carried out the command.
	"opaque flags that are too long": regexp.MustCompile(`^ *m[gsda] .* O(?:[^ ]{32}|[^ ]*[\x01-\x1f\x7f])`),
}

// last is a request whose answer comes last.
const last = "mg nothing Olast"

// completed completes a text, so that last may follow it. If the router does not answer it as Debian's
// memcached does, why is the reason.
func completed(text []byte) (complete []byte, why string) {
	if bytes.Count(text, []byte(" "))+bytes.Count(text, []byte("\n")) > 500 {
		return nil, "more requests than a client has unanswered"
	}
	if len(text) > 0 && text[0] == 0x80 {
		return nil, "the binary protocol"
	}
	var r wire.Request
	for rest := text; len(rest) > 0; {
		n := r.Parse(rest)
		if n == 0 {
			text = append(text[:len(text):len(text)], '\n')
			rest = append(rest[:len(rest):len(rest)], '\n')
			continue
		}
		line := rest[:n]
		switch {
		case n > 1000 || r.Data+r.Skip > 1000:
			return nil, "lines and blocks that are too long"
		case bytes.IndexByte(line, 0) >= 0 && r.Skip > 0:
			return nil, "which token comes after a NUL"
		}
		for why, lines := range excludedLines {
			if lines.Match(bytes.TrimSuffix(line[:n-1], []byte("\r"))) { // only one: further ones belong to the last word
				return nil, why
			}
		}
		rest = rest[n:]
		if missing := r.Data + r.Skip - len(rest); missing > 0 {
			text = append(text[:len(text):len(text)], bytes.Repeat([]byte("\n"), missing)...)
			rest = nil
		} else {
			rest = rest[r.Data+r.Skip:]
		}
	}
	return text, ""
}

// line is a connection that is reused: thousands of new ones a second are too many for the kernel.
type line struct {
	address string
	conn    net.Conn
	r       *bufio.Reader
}

// ask returns all answers to a text, until the connection ends or last is answered.
func (l *line) ask(text string) (string, error) {
	if l.conn == nil {
		conn, err := net.Dial("tcp", l.address)
		if err != nil {
			return "", err
		}
		l.conn, l.r = conn, bufio.NewReader(conn)
	}
	_ = l.conn.SetDeadline(answeredBy())
	_, err := io.WriteString(l.conn, text+last+"\r\n")
	var answer strings.Builder
	for err == nil {
		var part string
		part, err = l.r.ReadString('\n')
		if answer.WriteString(part); part == "EN Olast\r\n" {
			return answer.String(), nil
		}
	}
	l.conn.Close()
	l.conn = nil
	return answer.String(), err
}

// answeredBy returns the deadline for an answer, which is before a fuzz test counts as hung.
func answeredBy() time.Time {
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return time.Now().Add(5 * time.Second)
	}
	return wait.Deadline()
}

// A memcached and a router in front of one give the same answers to the same bytes.
func FuzzSameAnswers(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 60 {
		f.Add([]byte(anyRequest(random) + anyRequest(random) + anyRequest(random)))
	}
	for _, text := range attacks() {
		f.Add([]byte(text))
	}
	var said lines
	direct := line{address: memcachedtest.Start(f).Address()}
	routed := line{address: start(f, router.Config{Loops: 1, Logf: said.logf}, memcachedtest.Start(f)).address}
	own := regexp.MustCompile(`( c| t| l|VALUE [^ \r]+ \d+ \d+ )-?\d+`) // CAS values, and times
	f.Fuzz(func(t *testing.T, b []byte) {
		b, why := completed(b)
		if why != "" {
			return
		}
		differ := func() string {
			for _, l := range []*line{&direct, &routed} {
				if answer, err := l.ask("flush_all\r\n"); answer != "OK\r\nEN Olast\r\n" {
					t.Fatalf("flush_all: %q, %v", answer, err)
				}
			}
			want, err := direct.ask(unswallowed(string(b)))
			got, err2 := routed.ask(string(b))
			if w, g := own.ReplaceAllString(want, "${1}N"), own.ReplaceAllString(got, "${1}N"); w != g {
				return fmt.Sprintf("%q:\nthe router answers %.2000q (%v),\nmemcached %.2000q (%v)", b, g, err2, w, err)
			}
			return ""
		}
		for range 3 { // a second may have passed between the two
			if why := differ(); why == "" {
				return
			} else if lost := said.lost(); len(lost) > 0 {
				t.Fatalf("%s\nand %s", why, strings.Join(lost, "\n"))
			}
		}
		t.Fatal(differ())
	})
}
