package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/wire"
)

// The cases have the parsed line, the text that a member is sent, and the answer if no member is needed.
func TestALineBecomesARequestOrAnError(t *testing.T) {
	type want struct {
		Verb       wire.Verb
		Key        string
		Sent       string
		Answer     string
		Data, Skip int
		Quiet, Bye bool
	}
	long := string(bytes.Repeat([]byte("k"), 251))
	tests := map[string]want{
		"set a 1 0 5":                      {Verb: wire.Set, Key: "a", Sent: "set a 1 0 5\r\n", Data: 7},
		"set a 1 0 5 noreply":              {Verb: wire.Set, Key: "a", Sent: "set a 1 0 5\r\n", Data: 7, Quiet: true},
		"set a 1 0 5 other":                {Verb: wire.Set, Key: "a", Sent: "set a 1 0 5\r\n", Data: 7},
		" set  a 1 -1  5  noreply ":        {Verb: wire.Set, Key: "a", Sent: "set a 1 -1 5\r\n", Data: 7, Quiet: true},
		"set a 1 0":                        {Answer: "ERROR\r\n"},
		"set a x 0 5":                      {Key: "a", Skip: 7, Answer: wire.AnswerBadFormat},
		"set a 1 0 -5":                     {Key: "a", Answer: wire.AnswerBadFormat},
		"set a 1 0 2147483647":             {Key: "a", Skip: 2147483649, Answer: wire.AnswerBadFormat},
		"set a 1 0 5 6 7":                  {Skip: 7, Answer: "ERROR\r\n"},
		"set " + long + " 0 0 1":           {Key: long, Skip: 3, Answer: wire.AnswerBadFormat},
		"set " + long + " 0 0 1 noreply":   {Key: long, Skip: 3, Quiet: true},
		"cas a 0 0 1 18446744073709551615": {Verb: wire.Cas, Key: "a", Sent: "cas a 0 0 1 18446744073709551615\r\n", Data: 3},
		"cas a 0 0 1 x":                    {Key: "a", Skip: 3, Answer: wire.AnswerBadFormat},
		"delete a":                         {Verb: wire.Delete, Key: "a", Sent: "delete a\r\n"},
		"delete a 0 noreply":               {Verb: wire.Delete, Key: "a", Sent: "delete a\r\n", Quiet: true},
		"delete a 1":                       {Key: "a", Answer: "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"},
		"delete noreply":                   {Verb: wire.Delete, Key: "noreply", Sent: "delete noreply 0\r\n"},
		"incr a 5":                         {Verb: wire.Incr, Key: "a", Sent: "incr a 5\r\n"},
		"touch a 5 noreply":                {Verb: wire.Touch, Key: "a", Sent: "touch a 5\r\n", Quiet: true},
		"mg a t v q k":                     {Verb: wire.MetaGet, Key: "a", Sent: "mg a t v k\r\n", Quiet: true},
		"mg q q":                           {Verb: wire.MetaGet, Key: "q", Sent: "mg q\r\n", Quiet: true},
		"mg a":                             {Verb: wire.MetaGet, Key: "a", Sent: "mg a\r\n"},
		"mg":                               {Answer: "ERROR\r\n"},
		"ms a 5 T0 q":                      {Verb: wire.MetaSet, Key: "a", Sent: "ms a 5 T0\r\n", Data: 7, Quiet: true},
		"ms a x":                           {Key: "a", Answer: wire.AnswerBadFormat},
		"ms a":                             {Key: "a", Answer: wire.AnswerBadFormat},
		"me":                               {Answer: wire.AnswerBadFormat},
		"mn":                               {Verb: wire.MetaNoop, Answer: "MN\r\n"},
		"verbosity 1":                      {Verb: wire.Verbosity, Answer: "OK\r\n"},
		"verbosity 1 noreply":              {Verb: wire.Verbosity, Quiet: true},
		"verbosity":                        {Answer: "ERROR\r\n"},
		"flush_all 10 noreply":             {Verb: wire.FlushAll, Sent: "flush_all 10\r\n", Quiet: true},
		"flush_all x":                      {Answer: "CLIENT_ERROR invalid exptime argument\r\n"},
		"quit":                             {Verb: wire.Quit, Bye: true},
		"shutdown":                         {Answer: "ERROR: shutdown not enabled\r\n"},
		"GET / HTTP/1.1":                   {Bye: true},
		"frobnicate":                       {Answer: "ERROR\r\n"},
		"":                                 {Answer: "ERROR\r\n"},
		"get":                              {Answer: "ERROR\r\n"},
		"get a " + long:                    {Answer: wire.AnswerBadFormat},
		"gat x a":                          {Answer: "CLIENT_ERROR invalid exptime argument\r\n"},
		"gat 5":                            {Answer: "END\r\n"},
		"incr a\x00 5":                     {Answer: "ERROR\r\n"},
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			for _, end := range []string{"\n", "\r\n"} {
				if line == "" && end == "\r\n" {
					continue
				}
				var r wire.Request
				if n := r.Parse([]byte(line + end + "rest\n")); n != len(line+end) {
					t.Fatalf("%d bytes are read, want %d", n, len(line+end))
				}
				got := want
				got.Verb, got.Key, got.Answer, got.Quiet, got.Bye = r.Verb, string(r.Key), r.Answer, r.Quiet, r.Close
				got.Data, got.Skip = r.Data, r.Skip
				if got.Sent = ""; r.Verb >= wire.FlushAll {
					got.Sent = string(r.AppendTo(nil))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	var r wire.Request
	if n := r.Parse([]byte("get a")); n != 0 {
		t.Errorf("%d bytes of an incomplete line", n)
	}
}

func TestEachKeyOfAReadIsARequest(t *testing.T) {
	var r wire.Request
	r.Parse([]byte("gats  10 a  bb c \r\n"))
	var sent []byte
	for key := r.NextKey(); key != nil; key = r.NextKey() {
		sent = r.AppendRead(sent, key)
	}
	if want := "gats 10 a\r\ngats 10 bb\r\ngats 10 c\r\n"; string(sent) != want {
		t.Errorf("%q, want %q", sent, want)
	}
}

func TestABase64KeyIsHashedAsMemcachedStoresIt(t *testing.T) {
	var room [wire.MaxKey]byte
	for line, want := range map[string]string{"mg Zm9v b": "foo", "mg Zm9v": "Zm9v", "mg c3RyaWN0IQ== t b": "strict!"} {
		var r wire.Request
		r.Parse([]byte(line + "\n"))
		if got := r.Hashed(&room); string(got) != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// The cases have the meaning of a member's line, and the length of its block.
func TestAMembersLineSaysHowLongItsBlockIs(t *testing.T) {
	tests := []struct {
		kind  wire.Kind
		line  string
		code  wire.Code
		block int
	}{
		{wire.Values, "VALUE a 0 5", wire.Value, 7},
		{wire.Values, "VALUE a 0 5 77", wire.Value, 7},
		{wire.Values, "VALUE a 0 x", wire.Broken, 0},
		{wire.Values, "END", wire.End, 0},
		{wire.Values, "STORED", wire.Broken, 0},
		{wire.Values, "SERVER_ERROR out of memory", wire.Failure, 0},
		{wire.MetaValue, "VA 0 t5", wire.Value, 2},
		{wire.MetaValue, "HD", wire.Header, 0},
		{wire.MetaValue, "EN", wire.Miss, 0},
		{wire.OneLine, "17", wire.Other, 0},
		{wire.OneLine, "VALUE", wire.Other, 0},
		{wire.OneLine, "NOT_STORED", wire.NotStored, 0},
	}
	for _, test := range tests {
		var a wire.Answer
		if !a.Parse(test.kind, []byte(test.line+"\r\nmore")) || a.Code != test.code || a.Block != test.block {
			t.Errorf("%s: %+v", test.line, a)
		}
		if a.Parse(test.kind, []byte(test.line)) {
			t.Errorf("%s without its end: %+v", test.line, a)
		}
	}
	var a wire.Answer
	if !a.Parse(wire.OneLine, bytes.Repeat([]byte("x"), wire.MaxAnswerLine+1)) || a.Code != wire.Broken {
		t.Errorf("a line without an end: %+v", a)
	}
}

// This holds for requests and for answers.
func TestParseAllocatesNothing(t *testing.T) {
	lines := []string{"get a b c\r\n", "set a 0 0 5 noreply\r\n", "mg Zm9v b t v q\r\n", "ms a 5 T0\r\n", "incr a 5\r\n", " set a 0 0 +5\r\n", "ms a 5 {\r\n", "ma Zm9v b N+5 J7 k q\r\n"}
	var r wire.Request
	var a wire.Answer
	var room [wire.MaxKey]byte
	dst := make([]byte, 0, 1024)
	answer := []byte("VALUE a 0 5 77\r\n")
	for _, line := range lines {
		b := []byte(line)
		if n := testing.AllocsPerRun(100, func() {
			r.Parse(b)
			dst = r.AppendTo(dst[:0])
			r.Hashed(&room)
			a.Parse(wire.Values, answer)
			a.Fits(wire.Values, wire.Get)
			r.Echo().In(&a)
		}); n != 0 {
			t.Errorf("%q: %v allocations", line, n)
		}
	}
}
