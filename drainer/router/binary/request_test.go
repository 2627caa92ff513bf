package binary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/wire"
)

// header24 returns the first bytes of a request.
func header24(opcode byte, key, extras, body int) string {
	b := binary.BigEndian.AppendUint16([]byte{Magic, opcode}, uint16(key))
	b = binary.BigEndian.AppendUint32(append(b, byte(extras), 0, 0, 0), uint32(body))
	return string(append(b, make([]byte, 12)...))
}

// A client may send anything: the loop gets whole lines and data blocks, and reads each as one request about the
// client's key.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(header24(0x00, 1, 0, 1) + "a"))
	f.Add([]byte(header24(0x01, 1, 8, 14) + "\x00\x00\x00\x07\xff\xff\xff\xffavalue" + header24(0x0a, 0, 0, 0)))
	f.Add([]byte(header24(0x05, 3, 20, 23) + strings.Repeat("\xff", 20) + "a\nb"))
	f.Add([]byte(header24(0x1d, 250, 4, 254) + "\x00\x00\x00\x05" + strings.Repeat(" ", 250)))
	f.Add([]byte(header24(0x0e, 186, 0, 190) + strings.Repeat("\x00", 186) + "\r\nxx"))
	f.Add([]byte(header24(0x10, 5, 0, 5) + "a\r\nmn"))
	f.Add([]byte(header24(0x08, 0, 4, 4) + "\x7f\xff\xff\xff"))
	f.Add([]byte(header24(0x21, 5, 0, 16) + "PLAIN\x00user\x00pass\n"))
	f.Add([]byte(header24(0x00, 9, 0, 1) + "a"))
	f.Add([]byte(header24(0x01, 1, 8, 0xffffffff) + "12345678a"))
	f.Add([]byte(header24(0x55, 65535, 255, 100_000)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, logins := range []bool{false, true} {
			check(t, sent, logins)
		}
	})
}

func check(t *testing.T, sent []byte, logins bool) {
	var text bytes.Buffer
	config := Config{MaxItem: 1 << 20, Version: func() string { return "VERSION 1\r\n" }}
	if logins {
		config.Admits = func(user, _ []byte) bool { return string(user) == "user" }
	}
	c := &translator{
		config: config, loggedIn: !logins, pending: make(chan *pending, 1), done: make(chan struct{}),
		client: bufio.NewReader(bytes.NewReader(sent)), text: bufio.NewWriter(&text),
	}
	for {
		text.Reset()
		err := c.carry()
		if flushed := c.text.Flush(); flushed != nil {
			t.Fatal(flushed)
		}
		var p *pending
		select {
		case p = <-c.pending:
		default:
			if text.Len() > 0 {
				t.Fatalf("no request waits for the answer to %q", text.Bytes())
			}
		}
		if p != nil && (err == nil || errors.Is(err, errEnds)) {
			oneRequest(t, c, p, text.Bytes())
		}
		if err != nil {
			return
		}
	}
}

// oneRequest fails the test if text is not one request.
func oneRequest(t *testing.T, c *translator, p *pending, text []byte) {
	t.Helper()
	var r wire.Request
	n := r.Parse(text)
	if n == 0 || n+r.Data != len(text) || r.Quiet || r.Close || r.Answer != "" && r.Answer != wire.AnswerNoop {
		t.Fatalf("opcode %#x: %q is not one request: %+v", p.opcode, text, r)
	}
	if n > wire.MaxLine {
		t.Fatalf("a line of %d bytes", n)
	}
	if !needsKey(c.request.kind) { // the kind of a refused request is unknown
		return
	}
	var room [wire.MaxKey]byte
	if got, want := r.Hashed(&room), c.request.theKey(); !bytes.Equal(got, want) {
		t.Fatalf("opcode %#x: %q is about %q, not %q", p.opcode, text, got, want)
	}
	if r.Data > 0 && r.Data != c.request.valueLen()+2 {
		t.Fatalf("opcode %#x: %q has a value of another size than %d", p.opcode, text, c.request.valueLen())
	}
}
