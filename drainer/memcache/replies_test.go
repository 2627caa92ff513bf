package memcache

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/test/wait"
)

// threeItems returns a batch with items of 10, 20 and 30 bytes.
func threeItems() *batch {
	b := newBatch(false)
	for n := 10; n <= 30; n += 10 {
		b.addQuiet(&item.Item{Key: []byte("k"), Value: make([]byte, n-1)}, plainKey, false)
	}
	return b
}

func TestRepliesAreReadOrRefused(t *testing.T) {
	tests := map[string]struct {
		in   string
		want outcome
		err  error
	}{
		"all added":       {"END\r\n", outcome{Tally: Tally{Added: 3, Bytes: 60}}, nil},
		"one present":     {"NS\r\nEND\r\n", outcome{Tally: Tally{Added: 2, Present: 1, Bytes: 40}}, nil},
		"more flags":      {"NS k q\r\nEND\r\n", outcome{}, ErrProtocol},
		"all present":     {"NS\r\nNS \r\nNS\r\nEND\r\n", outcome{Tally: Tally{Present: 3}}, nil},
		"classic answers": {"STORED\r\nNOT_STORED\r\nSTORED\r\nEND\r\n", outcome{Tally: Tally{Added: 2, Present: 1, Bytes: 40}}, nil},
		"rejected": {"SERVER_ERROR out of memory storing object\r\nEND\r\n",
			outcome{Tally: Tally{Added: 2, Rejected: 1, Bytes: 40}, refusal: `"SERVER_ERROR out of memory storing object"`}, nil},
		"rejected with many words": {"SERVER_ERROR " + strings.Repeat("\x01", 3000) + "\r\nEND\r\n",
			outcome{Tally: Tally{Added: 2, Rejected: 1, Bytes: 40}, refusal: `"SERVER_ERROR ` + strings.Repeat(`\x01`, 67) + `"`}, nil},
		"a token":            {"NS O3\r\nEND\r\n", outcome{}, ErrProtocol},
		"too many answers":   {strings.Repeat("NS\r\n", 4) + "END\r\n", outcome{}, ErrProtocol},
		"client error":       {"CLIENT_ERROR bad data chunk\r\nEND\r\n", outcome{}, ErrProtocol},
		"a flush":            {"STAT oldest 77\r\nSTAT oldest_not 5\r\nEND\r\n", outcome{Tally: Tally{Added: 3, Bytes: 60}, oldest: 77}, nil},
		"not a flush":        {"STAT oldest never\r\nEND\r\n", outcome{}, ErrProtocol},
		"endless settings":   {strings.Repeat("STAT a b\r\n", 5000), outcome{}, ErrProtocol},
		"no meta protocol":   {"ERROR\r\n", outcome{}, ErrProtocol},
		"closed before all":  {"NS\r\n", outcome{}, io.EOF},
		"a line without end": {strings.Repeat("x", 1<<17), outcome{}, bufio.ErrBufferFull},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readReplies(bufio.NewReader(strings.NewReader(test.in)), threeItems())
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("readReplies = %+v, %v; want %+v, %v", got, err, test.want, test.err)
			}
		})
	}
}

func TestNothingIsSentThatMemcachedWouldCutInTwo(t *testing.T) {
	tests := map[string]struct {
		key    string
		prefer bool
		want   keyForm
		ok     bool
	}{
		"plain":                     {"key", false, plainKey, true},
		"sent as binary before":     {"key", true, base64Key, true},
		"too long to stay binary":   {strings.Repeat("k", 200), true, plainKey, true},
		"space":                     {"a b", false, base64Key, true},
		"NUL":                       {"a\x00b", false, base64Key, true},
		"line end":                  {"a\nb", false, base64Key, true},
		"long with a tab":           {strings.Repeat("\t", 200), false, plainKey, true},
		"long with a space":         {strings.Repeat(" ", 200), false, plainKey, false},
		"the longest odd one":       {strings.Repeat(" ", 186), false, base64Key, true},
		"the first odd one too far": {strings.Repeat(" ", 189), false, plainKey, false},
		"empty":                     {"", false, plainKey, false},
		"longest":                   {strings.Repeat("k", 250), false, plainKey, true},
		"too long":                  {strings.Repeat("k", 251), false, plainKey, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := formOf([]byte(test.key), test.prefer); got != test.want || ok != test.ok {
				t.Errorf("formOf = %v, %v; want %v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

// script is a server that answers the first lines of a connection as written.
func script(t *testing.T, answers map[string]string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					if answer, ok := answers[strings.TrimSpace(lines.Text())]; ok {
						_, _ = io.WriteString(c, answer)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A server that isn't a memcached with the meta protocol is refused at once, before it could read values as
// commands.
func TestAServerThatIsNoMemcachedIsRefusedAtOnce(t *testing.T) {
	tests := map[string]map[string]string{
		"no meta protocol": {"version": "VERSION 1.5.6\r\n", "mn": "ERROR\r\n"},
		"not memcached":    {"version": "-ERR unknown command\r\n"},
		"endless line":     {"version": strings.Repeat("x", 1<<16)},
	}
	for name, answers := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(Options{Address: script(t, answers), UnreachableTimeout: wait.Long})
			if err := w.Connect(t.Context()); !errors.Is(err, ErrProtocol) {
				t.Errorf("Connect = %v, want %v", err, ErrProtocol)
			}
		})
	}
}

// A server that sends lines without an end costs little memory and time.
func TestStatsAreBounded(t *testing.T) {
	lines := strings.Repeat("STAT a b\r\n", maxStats)
	for answer, want := range map[string]error{lines[:len(lines)/maxStats*(maxStats-1)] + "END\r\n": nil, lines + "END\r\n": ErrProtocol} {
		c, err := Dialer{AnyServer: true}.Dial(t.Context(), script(t, map[string]string{"stats": answer}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Stats(""); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "more than 4096 lines") {
			t.Errorf("Stats = %v, want %v", err, want)
		}
	}
}

func TestAValueIsReadOrRefused(t *testing.T) {
	tests := map[string]struct {
		in string
		ok bool
	}{
		"hit":             {"VA 2 f1 t-1 c5\r\nab\r\n", true},
		"stale":           {"VA 0 f0 t-1 c5 W X\r\n\r\n", true},
		"cut short":       {"VA 5 f1\r\nab", false},
		"no size":         {"VA\r\n", false},
		"impossible size": {"VA -1\r\n", false},
		"huge size":       {"VA 99999999999\r\n", false},
		"bad flag":        {"VA 0 fx\r\n\r\n", false},
		"empty":           {"\r\n", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &Conn{r: bufio.NewReader(strings.NewReader(test.in))}
			if v, err := c.Fetched(); (err == nil) != test.ok {
				t.Errorf("value = %+v, %v", v, err)
			}
		})
	}
}

// No answer causes a panic or a loop, or is counted as more than was asked.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{"END\r\n", "NS O1\r\nEND\r\n", "STORED\r\nSERVER_ERROR x\r\nEND\r\n", "NS O\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := threeItems()
		o, err := readReplies(bufio.NewReader(bytes.NewReader(data)), b)
		if err == nil && (o.Added+o.Present+o.Rejected != 3 || o.Added < 0 || o.Bytes < 0 || o.Bytes > b.bytes) {
			t.Errorf("%q: %+v", data, o)
		}
	})
}

// No answer to a plain request causes a panic or unbounded memory.
func FuzzConn(f *testing.F) {
	f.Add([]byte("VA 2 f1 t-1 c5\r\nab\r\n"))
	f.Add([]byte("STAT a b\r\nEND\r\n"))
	f.Add([]byte("VA 2147483647 f1\r\nab\r\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		client, server := net.Pipe()
		go func() {
			_, _ = io.Copy(io.Discard, server)
		}()
		defer client.Close()
		defer server.Close()
		for range 2 {
			c := &Conn{conn: client, r: bufio.NewReader(bytes.NewReader(data))}
			_, _ = c.Stats("settings")
			c.r = bufio.NewReader(bytes.NewReader(data))
			_, _ = c.Get([]byte("k"))
		}
	})
}
