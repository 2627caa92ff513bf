package wire_test

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/wire"
)

// Requests to members have one form, which all versions of memcached read alike. Versions from 1.6.40 on
// refuse blanks at the beginning, signs and zeros in front of numbers, and flags that are no letters, and
// then carry out the data block as requests of the connection that all clients share.
func TestARequestIsSaidAnew(t *testing.T) {
	tests := map[string]string{
		" set a 0 0 11":                                  "set a 0 0 11",
		"set  a   0 0 11 ":                               "set a 0 0 11",
		"set a 0 0 +11":                                  "set a 0 0 11",
		"set a +5 +7 11\t":                               "set a 5 7 11",
		"set a 0 0 000000000011":                         "set a 0 0 11",
		"set a 007 -0 011\vjunk":                         "set a 7 0 11",
		"set a 4294967296 4294967295 1":                  "set a 4294967296 -1 1",
		"set a -18446744073709551615 0 1":                "set a 1 0 1",
		"add n +5 0 1":                                   "add n 5 0 1",
		"set noreply 0 0 1":                              "set noreply 0 0 1",
		"set noreply 0 0 1 noreply":                      "set noreply 0 0 1",
		"cas noreply 0 0 1 +7":                           "cas noreply 0 0 1 7",
		"cas a 0 0 1 18446744073709551615\t":             "cas a 0 0 1 18446744073709551615",
		"incr noreply +5 noreply":                        "incr noreply 5",
		"decr a 05":                                      "decr a 5",
		"touch noreply +5":                               "touch noreply 5",
		"touch a -9223372036854775808":                   "touch a 0",
		"delete a 0":                                     "delete a",
		"delete noreply":                                 "delete noreply 0",
		"delete noreply noreply":                         "delete noreply 0",
		"delete noreply 0 noreply":                       "delete noreply 0",
		"flush_all noreply":                              "flush_all",
		"flush_all +5 noreply":                           "flush_all 5",
		"flush_all 5 noreplyy":                           "flush_all 5",
		"ms a 11\t T0":                                   "ms a 11 T0",
		"ms a +11  T+5\tx F007 q C-18446744073709551615": "ms a 11 T5 F7 C1",
		"ms noreply 1 I q":                               "ms noreply 1 I",
		"mg a vxyz kk Ox tail":                           "mg a v k Ox t",
		"mg a Lsomething v P\x01":                        "mg a v",
		"mg a v MX":                                      "mg a v",
		"mg Zm9v k v b":                                  "mg Zm9v v b",
		"mg Zm9v bad t k":                                "mg Zm9v b t",
		"md a q x":                                       "md a x",
		"md noreply":                                     "md noreply",
		"ma a N+0 J+13 D-18446744073709551611 M- E5":     "ma a N0 J13 D5 M- E5",
		"me  a  v":                                       "me a",
		"me a vb b":                                      "me a",
	}
	for line, want := range tests {
		var r wire.Request
		r.Parse([]byte(line + "\r\n"))
		if got := string(r.AppendTo(nil)); r.Answer != "" || got != want+"\r\n" {
			t.Errorf("%q becomes %q (%q), want %q", line, got, r.Answer, want)
		}
	}
	var r wire.Request
	r.Parse([]byte("gats \t+5 noreply\x00\r\n"))
	if got := string(r.AppendRead(nil, r.NextKey())); got != "gats 5 noreply\r\n" {
		t.Errorf("%q", got)
	}
}

// A request without such a form is refused, with its data block: no part of the block is read as a request.
func TestARefusedRequestTakesItsDataBlockWithIt(t *testing.T) {
	seventeen := "b c f h k l q s t u v x I O P L R1"
	tests := map[string]struct {
		skip   int
		answer string
	}{
		"set a 18446744073709551615\t- 0 11":     {13, "bad command line format"},
		"cas a 0 0 11 18446744073709551615\t-":   {13, "bad command line format"},
		"set a -1 0 11":                          {13, "bad command line format"},
		"set a 18446744073709551616 0 11":        {13, "bad command line format"},
		"set a 0 0x 11":                          {13, "bad command line format"},
		"set a 0 0 4294967307":                   {4294967309, "bad command line format"},
		"set a 0 0 9223372036854775806":          {0, "bad command line format"},
		"set a 0 0 -4294967285":                  {0, "bad command line format"},
		"set a 0 0 11x":                          {0, "bad command line format"},
		"set a 0 0 x noreply":                    {0, ""},
		"set a 0 x 11 noreply":                   {13, ""},
		"set a 0 0 11 1 2":                       {13, "ERROR"},
		"cas a 0 0 11":                           {13, "ERROR"},
		"cas a 0 0 11 1 2 3 4 5":                 {13, "ERROR"},
		"ms":                                     {0, "ERROR"},
		"ms a":                                   {0, "bad command line format"},
		"ms a x T0":                              {0, "bad command line format"},
		"ms a 11 {":                              {13, "invalid flag"},
		"ms a 11 _":                              {13, "invalid flag"},
		"ms a 11 1":                              {13, "invalid flag"},
		"ms a 11 T0 Tx":                          {13, "duplicate flag"},
		"ms a 11 \x7f":                           {13, "duplicate flag"},
		"ms a 11 Tx g":                           {13, "invalid flag"},
		"ms a 11 Tx q":                           {13, "bad token in command line format"},
		"ms a 11 Fx":                             {13, "bad command line format"},
		"ms a 11 Cx Fx":                          {13, "bad token in command line format"},
		"ms a 11 C-1":                            {13, "bad token in command line format"},
		"ms a 11 M":                              {13, "incorrect length for M token"},
		"ms a 11 MEE":                            {13, "incorrect length for M token"},
		"ms a 11 MX":                             {13, "invalid mode for ms M token"},
		"ms a 11 M\r":                            {13, "invalid mode for ms M token"},
		"ms a 11 O" + strings.Repeat("x", 32):    {13, "opaque token too long"},
		"ms a 11 Oa\rb":                          {13, "bad command line format"},
		"ms !! 11 b":                             {13, "error decoding key"},
		"ms a 11 " + seventeen:                   {13, "options flags too long"},
		"ms a x " + seventeen:                    {0, "options flags too long"},
		"ms " + strings.Repeat("k", 251) + " 11": {13, "bad command line format"},
		"mg a " + seventeen + " C1":              {0, "options flags are too long"},
		"mg a Jx":                                {0, "invalid numeric initial value"},
		"mg a Dx":                                {0, "invalid numeric delta value"},
		"md a q q":                               {0, "invalid or duplicate flag"},
		"md !! b":                                {0, "invalid or duplicate flag"},
		"ma a MX":                                {0, "invalid mode for ma M token"},
		"me Zm9v b":                              {0, "me of a key in base64 is not supported"},
	}
	for line, want := range tests {
		var r wire.Request
		n := r.Parse([]byte(line + "\r\n"))
		answer := strings.TrimPrefix(strings.TrimSuffix(r.Answer, "\r\n"), "CLIENT_ERROR ")
		if n != len(line)+2 || r.Verb != wire.Unknown || r.Data != 0 || r.Skip != want.skip || answer != want.answer {
			t.Errorf("%q: verb %s, data %d, skip %d, %q; want skip %d, %q", line, r.Verb, r.Data, r.Skip, r.Answer, want.skip, want.answer)
		}
	}
}

// memcached skips characters that are not base64, and everything after the padding, so one item has many
// keys, and the key that clients hash is not the one that memcached stores.
func TestAKeyInBase64HasOneForm(t *testing.T) {
	for _, key := range []string{"!!", "Zm9", "Zm9vYg", "Zm9v!", "Zm9v\r", "Zg==Zm9v", "Zh==", "====", "Zm9v=", "-_-_"} {
		for _, line := range []string{"mg %s b v", "md %s b", "ma %s q b", "ms %s 2 b"} {
			var r wire.Request
			r.Parse([]byte(strings.ReplaceAll(line, "%s", key) + "\n"))
			if r.Answer != "CLIENT_ERROR error decoding key\r\n" && r.Answer != "CLIENT_ERROR invalid or duplicate flag\r\n" {
				t.Errorf("%s of %q: %q", line, key, r.Answer)
			}
		}
	}
}

// The key is repeated where memcached repeats it: between the flags that the client names before and after k.
func TestAKeyInBase64IsRepeatedByTheRouter(t *testing.T) {
	tests := []struct {
		line, answer, want string
	}{
		{"mg Zm9v b k", "HD", "HD kZm9v b"},
		{"mg Zm9v k b v t", "VA 2 t-1 W", "VA 2 kZm9v b t-1 W"},
		{"mg Zm9v t v k b f", "VA 2 t5 f0 X W", "VA 2 t5 kZm9v b f0 X W"},
		{"mg Zm9v s Okk k b Z", "HD s5 Okk", ""}, // Z is no flag
		{"mg Zm9v s Okk k b", "HD s5 Okk Z", "HD s5 Okk kZm9v b Z"},
		{"mg Zm9v s Okk k b", "EN Okk", "EN Okk kZm9v b"},
		{"mg Zm9v s k Okk b", "EN Okk", "EN kZm9v b Okk"},
		{"ms Zm9v 1 k c O1 b q", "NS c0 O1", "NS kZm9v b c0 O1"},
		{"md Zm9v b q k", "NF", "NF kZm9v b"},
		{"ma Zm9v b c k", "EX", "EX kZm9v b"},
		{"ma Zm9v b c k", "CLIENT_ERROR cannot increment", "CLIENT_ERROR cannot increment"},
		{"mg Zm9v b", "HD", "HD"},
		{"mg foo k", "HD kfoo", "HD kfoo"},
	}
	for _, test := range tests {
		var r wire.Request
		var a wire.Answer
		r.Parse([]byte(test.line + "\r\n"))
		if r.Answer != "" {
			if test.want != "" {
				t.Errorf("%s: %q", test.line, r.Answer)
			}
			continue
		}
		a.Parse(wire.MetaValue, []byte(test.answer+"\r\n"))
		got := string(a.Line)
		if at, ok := r.Echo().In(&a); ok {
			got = got[:at] + " k" + string(r.Key) + " b" + got[at:]
		}
		if got != test.want+"\r\n" {
			t.Errorf("%s: %q becomes %q", test.line, test.answer, got)
		}
	}
}

// An answer that doesn't fit the verb belongs to another request, and no client may get it.
func TestAnAnswerFitsItsRequest(t *testing.T) {
	answers := []string{"STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "TOUCHED", "DELETED", "OK", "17", "17 x", "END", "VALUE a 0 1", "HD", "VA 1", "EN", "NF", "NS", "EX", "ME a exp=-1", "MN", "VERSION 1", "",
		"HD\r", "XX", "hd", "ERROR", "CLIENT_ERROR x", "SERVER_ERROR x"}
	failures := " ERROR CLIENT_ERROR SERVER_ERROR"
	tests := map[wire.Verb]string{
		wire.Set: "STORED NOT_STORED EXISTS", wire.Cas: "STORED NOT_STORED EXISTS NOT_FOUND", wire.Append: "STORED NOT_STORED EXISTS",
		wire.Incr: "17 NOT_FOUND", wire.Touch: "TOUCHED NOT_FOUND", wire.Delete: "DELETED NOT_FOUND", wire.FlushAll: "OK",
		wire.Get: "VALUE END", wire.MetaGet: "HD VA EN NF NS EX", wire.MetaSet: "HD EN NF NS EX", wire.MetaDelete: "HD EN NF NS EX", wire.MetaArithmetic: "HD VA EN NF NS EX", wire.MetaDebug: "ME EN",
	}
	for verb, want := range tests {
		fits := ""
		for _, answer := range answers {
			var a wire.Answer
			a.Parse(wire.KindOf(verb), []byte(answer+"\r\n"))
			if a.Fits(wire.KindOf(verb), verb) {
				fits += " " + strings.Fields(answer)[0]
			}
		}
		sorted := func(list string) map[string]bool {
			set := map[string]bool{}
			for _, w := range strings.Fields(list) {
				set[w] = true
			}
			return set
		}
		w, g := sorted(want+failures), sorted(fits)
		for word := range w {
			if !g[word] {
				t.Errorf("%s: %s does not fit", verb, word)
			}
		}
		for word := range g {
			if !w[word] {
				t.Errorf("%s: %s fits", verb, word)
			}
		}
	}
	var a wire.Answer
	if a.Parse(wire.OneLine, []byte("STORED\n")); a.Code != wire.Broken {
		t.Errorf("a line without CR: %+v", a)
	}
}

// canonical matches requests as a strict reader would accept them, independently of this package.
var canonical = regexp.MustCompile(`^(?:` +
	`(?:get|gets|gat -?\d{1,10}|gats -?\d{1,10}) KEY` +
	`|(?:set|add|replace|append|prepend) KEY \d{1,20} -?\d{1,10} (\d{1,10})` +
	`|cas KEY \d{1,20} -?\d{1,10} (\d{1,10}) \d{1,20}` +
	`|(?:incr|decr) KEY \d{1,20}` +
	`|touch KEY -?\d{1,10}` +
	`|delete KEY` +
	`|delete noreply 0` +
	`|flush_all(?: -?\d{1,10})?` +
	`|me KEY` +
	`|(?:mg|md|ma) KEY(?: FLAG)*` +
	`|ms KEY (\d{1,10})(?: FLAG)*` +
	`)\r\n$`)

func init() {
	text := strings.ReplaceAll(canonical.String(), "KEY", `[^ \n\x00]{1,250}`)
	flag := `(?:[bcfhklstuvxI]|O[^\x00-\x20\x7f]{0,31}|M[EAPRSID+-]|[NRT]-?\d{1,19}|[CDEFJ]\d{1,20})`
	canonical = regexp.MustCompile(`(?s-i)` + strings.ReplaceAll(text, "FLAG", flag))
}

var (
	numbers    = regexp.MustCompile(` [NRTCDEFJ]?-?\d+`)
	odd        = regexp.MustCompile(`^ [A-Z]?(?:-0|-?0\d)`)
	keyEndings = regexp.MustCompile(`^delete noreply\r\n`)
)

// sent checks one request for a member, and returns the length of its data block, with its end; 0 if there is
// none.
func sent(t *testing.T, from, b []byte) (data int) {
	t.Helper()
	match := canonical.FindSubmatch(b)
	if match == nil || keyEndings.Match(b) || len(b) > 1024 {
		t.Fatalf("%q is sent as %q", from, b)
	}
	verb, args, _ := bytes.Cut(b, []byte(" "))
	if before, after, _ := bytes.Cut(args, []byte(" ")); bytes.HasPrefix(verb, []byte("gat")) {
		args = before
	} else { // a key may look like anything
		args = after
	}
	for _, n := range numbers.FindAll(append([]byte(" "), args...), -1) {
		if odd.Match(n) && !bytes.HasPrefix(n, []byte(" O")) {
			t.Fatalf("%q is sent as %q: %q", from, b, n)
		}
	}
	seen := map[byte]bool{}
	if b[0] == 'm' && b[2] == ' ' {
		for i, word := range bytes.Fields(args) {
			if i == 0 && b[1] == 's' {
				continue
			}
			if seen[word[0]] {
				t.Fatalf("%q is sent as %q, with %c twice", from, b, word[0])
			}
			seen[word[0]] = true
		}
		if seen['b'] && seen['k'] {
			t.Fatalf("%q is sent as %q, and the key comes back as it is", from, b)
		}
	}
	for _, size := range match[1:] {
		if len(size) > 0 {
			n, err := strconv.ParseInt(string(size), 10, 32)
			if err != nil {
				t.Fatalf("%q is sent as %q: %v", from, b, err)
			}
			return int(n) + 2
		}
	}
	return 0
}

// A client may send anything: a member gets requests in this one form, as many as the router expects answers to,
// each followed by the announced data.
func FuzzForward(f *testing.F) {
	for _, text := range []string{
		"get a b\r\n", "gat 5 noreply\r\n", "set a 0 0 5 noreply\r\nhello\r\n", "mg Zm9v b q t k\r\n", "ms a 5 q S\r\nhello\r\n", "delete a 0 noreply\r\n", "flush_all 1\r\n", "cas a 0 0 1 2\r\nx\r\n", "incr a +5\r\n",
		"set a 18446744073709551615\t- 0 11\r\nversion\r\nmn\r\n", " set a 0 0 11\r\nversion\r\nmn\r\n", "set a 0 0 4294967307\r\nversion\r\nmn\r\n", "set a 0 0 +11\r\nversion\r\nmn\r\n",
		"set a 0 0 000000000011\r\nversion\r\nmn\r\n", "ms a 11 {\r\nversion\r\nmn\r\n", "ms a 11\t T0\r\nversion\r\nmn\r\n", "delete noreply\r\n", "delete noreply\r0\n", "get foo\x00bar\r\n", "me Zm9v b\r\n", "ms a 1 T1 T2\r\nx\r\n",
		"ma noreply N0 J5 D007 q k\r\n", "get\x00a\r\n", "mg a O\x01 P\x02 v\r\n", "ms Zg==Zm9v 1 b\r\nx\r\n", "delete k          \r\n", "bget a\r\n", "verbosity 1\r\nmn\r\nquit\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again wire.Request
		for len(b) > 0 {
			n := r.Parse(b)
			if n == 0 {
				if bytes.IndexByte(b, '\n') >= 0 {
					t.Fatal("a line was not read")
				}
				return
			}
			if b[n-1] != '\n' || bytes.IndexByte(b[:n-1], '\n') >= 0 {
				t.Fatalf("%d bytes are not one line", n)
			}
			line := b[:n]
			switch {
			case r.Data < 0 || r.Skip < 0 || r.Data > 0 && r.Skip > 0:
				t.Fatalf("%q: data %d, skip %d", line, r.Data, r.Skip)
			case r.Answer != "" || r.Verb < wire.FlushAll:
				if r.Data != 0 {
					t.Fatalf("%q has data, and is not forwarded", line)
				}
			case r.Verb.Reads():
				for key := r.NextKey(); key != nil; key = r.NextKey() {
					if sent(t, line, r.AppendRead(nil, key)) != 0 {
						t.Fatalf("%q has data", line)
					}
				}
			default:
				text := r.AppendTo(nil)
				if got := sent(t, line, text); got != r.Data {
					t.Fatalf("%q is sent as %q, but %d bytes follow", line, text, r.Data)
				}
				if again.Parse(text) != len(text) || again.Verb != r.Verb || !bytes.Equal(again.Key, r.Key) || again.Data != r.Data || again.Quiet || !bytes.Equal(again.AppendTo(nil), text) {
					t.Fatalf("%q is sent as %q", line, text)
				}
			}
			b = b[min(n+r.Data+r.Skip, len(b)):]
		}
	})
}
