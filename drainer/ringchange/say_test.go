package ringchange

import (
	"bytes"
	"testing"

	"example.com/memcached-operator/drainer/wire"
)

// steps returns the steps that a request of this class may take.
func steps(class Class) []Action {
	all := []Action{Ask, Look, Peek, Lease, Erase, EraseIf, Fetch}
	switch class {
	case Create:
		return append(all, Make, Fill)
	case Update:
		return append(all, AskUpdate, Guarded)
	case Upsert:
		return append(all, AskUpdate, Guarded, Make, Fill)
	}
	return all
}

// said returns the bytes of all steps of a client's request.
func said(r *Request) (all map[Action][]byte) {
	all = map[Action][]byte{}
	class, _ := ClassOf(&r.Request)
	for _, action := range steps(class) {
		all[action] = r.Append(nil, Step{Action: action, CAS: 18446744073709551615})
	}
	return all
}

// asked parses a client's request; it returns false if no member is asked.
func asked(text []byte) (r Request, ok bool) {
	n := r.Parse(text)
	if n == 0 || r.Answer != "" || r.Verb <= wire.FlushAll || len(text) < n+r.Data {
		return r, false
	}
	if r.Data > 0 {
		r.Value = text[n : n+r.Data]
		return r, bytes.HasSuffix(r.Value, []byte("\r\n"))
	}
	if r.Verb.Reads() {
		if r.Single = r.NextKey(); r.Single == nil {
			return r, false
		}
		r.Request = wire.Request{Verb: r.Verb, Exptime: r.Exptime}
	}
	return r, true
}

// A client's number is sent in a form that all versions of memcached read alike, and a flag of the step
// replaces the client's flag.
func TestAStepIsSaidInOneForm(t *testing.T) {
	const last = "18446744073709551615"
	tests := map[string]map[Action]string{
		"add n +5 -0 1\r\nx\r\n": {
			Fill: "ms n 1 C" + last + " c F5 T0\r\nx\r\n",
			Make: "ms n 1 ME c F5 T0\r\nx\r\n",
		},
		" replace n 007 4294967295 +1\r\nx\r\n":    {Guarded: "ms n 1 C" + last + " MR F7 T-1\r\nx\r\n", AskUpdate: "replace n 7 -1 1\r\nx\r\n"},
		"incr n -18446744073709551615 noreply\r\n": {Guarded: "ma n C" + last + " MI v D1\r\n", AskUpdate: "incr n 1\r\n"},
		"ms n +1 ME C5 T+6 k q\r\nx\r\n":           {Fill: "ms n 1 T6 k C" + last + " c\r\nx\r\n", Make: "ms n 1 T6 k ME c\r\nx\r\n", Ask: "ms n 1 ME C5 T6 k\r\nx\r\n"},
		"ms n 1 ME N30 T6\r\nx\r\n":                {Make: "ms n 1 T6 ME c\r\nx\r\n"},
		"ms n 1 MA N+30 T6\r\nx\r\n":               {Make: "ms n 1 ME T30 c\r\nx\r\n", Guarded: "ms n 1 MA T6 C" + last + "\r\nx\r\n"},
		"ma Zm9v b k N07 J+3\r\n":                  {Fill: "ms Zm9v 1 C" + last + " c T7 b\r\n3\r\n", AskUpdate: "ma Zm9v b J3\r\n"},
		"mg Zm9v k b N5 v\r\n":                     {Ask: "mg Zm9v b v f c\r\n"},
		"delete noreply\r\n":                       {Ask: "delete noreply 0\r\n", Erase: "md noreply\r\n"},
		"gat +5 a\r\n":                             {Ask: "gat 5 a\r\n"},
	}
	for text, want := range tests {
		r, ok := asked([]byte(text))
		if !ok {
			t.Errorf("%q: %q", text, r.Answer)
			continue
		}
		got := said(&r)
		for action, want := range want {
			if string(got[action]) != want {
				t.Errorf("%q: step %d is %q, want %q", text, action, got[action], want)
			}
		}
	}
}

// Each step is one request in a form that all versions of memcached read alike.
func FuzzSteps(f *testing.F) {
	for _, text := range []string{
		"get a b\r\n", "gats +5 a\r\n", "set a 0 0 1 noreply\r\nx\r\n", "add noreply +5 0 1\r\nx\r\n", "replace a 1 2 1\r\nx\r\n", "append a 0 0 1\r\nx\r\n", "cas a 0 0 1 +5\r\nx\r\n", "incr a +5\r\n", "decr noreply 5\r\n", "touch a 5\r\n",
		"delete noreply\r\n", "mg a v t k N30 q\r\n", "mg Zm9v b k v\r\n", "ms a 1 ME C5 k\r\nx\r\n", "ms a 1 MA N5 C5\r\nx\r\n", "ms Zm9v 1 b MP N5 I E5 F6\r\nx\r\n", "md a I T5 C6\r\n", "ma a N5 J6 D7 MD v k\r\n", "ma Zm9v b N0\r\n", "me a\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, ok := asked(text)
		if !ok {
			return
		}
		for action, b := range said(&r) {
			var again wire.Request
			n := again.Parse(b)
			form := again.AppendTo(nil)
			if again.Verb.Reads() {
				form = again.AppendRead(nil, again.NextKey())
			}
			if again.Answer != "" || again.Quiet || len(b) != n+again.Data || !bytes.Equal(form, b[:n]) || again.Data > 0 && !bytes.HasSuffix(b, []byte("\r\n")) || n > 1024 {
				t.Fatalf("%q: step %d is %q (%q, %q)", text, action, b, form, again.Answer)
			}
		}
	})
}
