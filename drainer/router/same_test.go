package router_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/wire"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// same sends a text to both, and compares the answers.
func same(t *testing.T, direct, routed *conversation, text string, without *regexp.Regexp) {
	t.Helper()
	want, got := direct.ask(unswallowed(text)), routed.ask(text)
	if without != nil {
		want, got = without.ReplaceAllString(want, "${1}CAS"), without.ReplaceAllString(got, "${1}CAS")
	}
	if got != want {
		t.Fatalf("%q:\nthe router answers %.2000q,\nmemcached %.2000q", text, got, want)
	}
}

// unswallowed returns the text for Debian's memcached that makes it answer as the router does: without the
// data blocks of requests that it refuses. Debian's memcached would read these as requests; newer memcacheds, and the
// router, don't.
func unswallowed(text string) string {
	var r wire.Request
	var kept []byte
	for b := []byte(text); len(b) > 0; {
		n := r.Parse(b)
		if n == 0 {
			return string(append(kept, b...))
		}
		name, _ := wire.Next(b)
		swallows := string(name) == "ms" && len(r.Key) <= wire.MaxKey && !strings.Contains(r.Answer, "options flags")
		skip := min(r.Skip, len(b)-n)
		kept = append(kept, b[:n]...)
		if rest := b[n : n+min(r.Data+skip, len(b)-n)]; r.Skip == 0 || swallows {
			kept = append(kept, rest...)
		}
		b = b[n+min(r.Data+skip, len(b)-n):]
	}
	return string(kept)
}

// A memcached and a router in front of one give the same answers to the same bytes.
func TestTheRouterAnswersAsMemcachedDoes(t *testing.T) {
	t.Parallel()
	both := members(t, 2)
	direct, routed := dial(t, both[0].Address()), dial(t, start(t, router.Config{}, both[1]).address)
	long := strings.Repeat("k", 251)
	large := strings.Repeat("v", 500_000)
	left := regexp.MustCompile(`( t)\d+`) // the seconds that are left are each member's own
	for _, text := range []string{
		"get a\r\n", "set a 5 0 3\r\nabc\r\n", "get a\r\n", "gets a b\r\n", "get a\n", "get a a b a\r\n",
		"add a 0 0 1\r\nx\r\n", "add b 0 0 1\r\nx\r\n", "replace b 0 0 1\r\ny\r\n", "replace c 0 0 1\r\ny\r\n",
		"append a 0 0 2\r\nde\r\n", "prepend a 0 0 2\r\n--\r\n", "get a b c\r\n", "append nope 0 0 1\r\nx\r\n",
		"cas a 0 0 1 99999\r\nx\r\n", "cas nope 0 0 1 1\r\nx\r\n", "cas a 0 0 1 x\r\ny\r\n", "set n 0 0 1\r\n5\r\n",
		"incr n 5\r\n", "decr n 100\r\n", "incr n x\r\n", "incr a 1\r\n", "incr nope 1\r\n", "incr n 1 noreply\r\nget n\r\n",
		"touch a 100\r\n", "touch nope 100\r\n", "touch a x\r\n", "gat 100 a b\r\n", "gats 0 a\r\n", "gat x a\r\n", "gat 5\r\n",
		"delete a\r\n", "delete a\r\n", "delete b 0\r\n", "delete b 1\r\n", "delete b 0 noreply\r\n", "delete n noreply\r\nget n\r\n",
		"set q 0 0 1 noreply\r\nx\r\nget q\r\n", "set q 0 0 x noreply\r\n", "set q 0 0 3 noreply\r\nabcde\r\nget q\r\n",
		"set q 0 0 3\r\nabcde\r\n", "set q 0 0 -1\r\n", "set q 0 0 1 2 3\r\ny\r\n", "set\r\n", "get\r\n", "\r\n", "\n", " \r\n", "x\r\n", "xx\r\n",
		"get " + long + "\r\n", "get a " + long + " b\r\n", "set " + long + " 0 0 1\r\ny\r\n", "set " + long + " 0 0 1 noreply\r\ny\r\n", "delete " + long + "\r\n", "mg " + long + "\r\n",
		"verbosity 1\r\n", "verbosity\r\n", "verbosity x\r\n", "verbosity 1 noreply\r\n", "verbosity noreply\r\n", "verbosity 1 2 3\r\n",
		"shutdown\r\n", "version\r\n", "flush_all x\r\n", "flush_all 1 2 3\r\n",
		"mg\r\n", "mg a\r\n", "mg a v\r\n", "mg a v q\r\n", "ms a 3 T0 F7\r\nabc\r\n", "mg a v f t s k Oxyz\r\n", "mg a k q\r\n", "mg b k q O1\r\n",
		"ms a 3 q\r\nabd\r\n", "ms a 3 ME q\r\nabd\r\n", "ms a 3 ME k O5\r\nabd\r\n", "ms a x\r\n", "ms a\r\n", "ms\r\n", "ms a -1\r\n", "ms a 2 MX\r\nab\r\n", "ms a 2\r\nabcd\r\n",
		"ms a 2 q\r\nabcd\r\n", "ms n 1 T100\r\n1\r\n", "ma n\r\n", "ma n v q\r\n", "ma n v t\r\n", "ma nope\r\n", "ma nope q\r\n", "ma new N0 J13 v\r\n", "ma a\r\n", "ma n MD D5 v\r\n", "ma n MX\r\n",
		"md n\r\n", "md n\r\n", "md n q\r\n", "md a q\r\n", "md a k\r\n", "mg v N30 v t\r\n", "mg v N30 v t\r\n", "ms v 1\r\nx\r\n", "md v I T30\r\n", "mg v v c\r\n",
		"ms Zm9v 3 b\r\nfoo\r\n", "get foo\r\n", "mg Zm9v b k v\r\n", "mg !! b v\r\n", "ms !! 2 b\r\nab\r\n", "md Zm9v b q\r\n", "me nope\r\n", "me\r\n", "mx a\r\n",
		"mg a a a\r\n", "mg a 1\r\n", "ms a 1 " + strings.Repeat("T1 ", 25) + "\r\nx\r\n", "mg a " + strings.Repeat("v ", 25) + "\r\n",
		"set large 0 0 500000\r\n" + large + "\r\n", "get large\r\n", "get large large nope large\r\n", "ms large 500000\r\n" + large + "\r\n", "mg large v\r\n",
		"set huge 0 0 1100000\r\n" + strings.Repeat("v", 1_100_000) + "\r\n", "get huge\r\n", "ms huge 1100000\r\n" + strings.Repeat("v", 1_100_000) + "\r\n",
		"get\x00a\r\n", "get a\x00b\r\n", "set a 0 0 1\x00 5\r\nx\r\n", "set a\t0 0 1\r\n", "set a 4294967296 0 1\r\nx\r\n", "get a\r\n", "set a -1 0 1\r\nx\r\n", "set a 0 0 +1\r\nx\r\n",
		"flush_all noreply\r\n", "get a\r\n", "flush_all 0\r\n", "flush_all\r\n", "flush_all 100\r\n", "flush_all\r\n",
		"get " + strings.Repeat("k ", 3000) + "\r\n", "get " + strings.Repeat("large k ", 50) + "\r\n",
	} {
		same(t, direct, routed, text, left)
	}
}

// The requests are random, some of them malformed, in pieces of any size, and several at once. CAS values
// differ between the members, and so do the remaining seconds.
func TestSameAnswersAtRandom(t *testing.T) {
	tier.Second(t, "TestTheRouterAnswersAsMemcachedDoes")
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := members(t, 4)
	sameAtRandom(t, random, dial(t, all[0].Address()), dial(t, start(t, router.Config{}, all[1:]...).address), rounds(2000), anyRequest)
}

// The same holds in every state of a ring change, if all keys have another owner.
func TestSameAnswersInAChange(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		for state := ringchange.Prepare; state <= ringchange.Finish; state++ {
			t.Run(fmt.Sprintf("%v shared=%v", state, shared), func(t *testing.T) {
				if shared {
					tier.Second(t, "TestSameAnswersInAChange")
				}
				t.Parallel()
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed %d", seed)
				all := members(t, 3)
				r := start(t, router.Config{}, all[1])
				direct, routed := dial(t, all[0].Address()), dial(t, r.address)
				random := rand.New(rand.NewPCG(seed, 0))
				if state != ringchange.Finish {
					sameAtRandom(t, random, direct, routed, 50, changeable)
				}
				enter(t, r, &router.Table{Number: 1, State: state, Old: ring(t, all[1]), New: ring(t, all[2]), Shared: shared})
				sameAtRandom(t, random, direct, routed, rounds(500), changeable)
			})
		}
	}
}

// enter applies a table, and waits until the router answers by it and has connected to its members: a read of one that
// is not connected is a miss, a change fails.
func enter(t *testing.T, r *running, table *router.Table) {
	t.Helper()
	if err := r.Apply(table); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the table", func() error { return acknowledged(r, table.Number) })
	wait.For(t, "the members", r.Ready)
}

// These are all forms of requests, in a ring change, for keys that only the old owner has. The steps of a
// change use other commands than the client's, and some answers are the router's own.
func TestSameAnswersToEachFormInAChange(t *testing.T) {
	tier.Second(t, "TestSameAnswersInAChange")
	t.Parallel()
	before := "set a 7 0 3\r\nabc\r\nset b 9 500 5\r\nhello\r\nset c 0 0 2\r\n10\r\nms YWFh 2 b\r\nhi\r\nset d 1 0 1\r\n5\r\nset e 1 0 1\r\n5\r\nset f 1 0 1\r\n5\r\n"
	forms := []string{
		"get a\r\n", "gat +100 a b\r\n", "touch a +50\r\n", "touch zz 5\r\n", "add a 0 0 1\r\nx\r\n", "add n1 5 100 1\r\nx\r\n", "add n2 +5 0 1\r\nx\r\n", "get n1 n2\r\n", "add n3 4294967295 4294967296 1\r\nx\r\n", "replace a +3 00 2\r\nyy\r\n", "get a\r\n",
		"replace zz 0 0 1\r\nx\r\n", "append a 0x 0 2\r\nzz\r\n", "append a 0 0 +2\r\nzz\r\n", "prepend zz 0 0 1\r\nq\r\n", "incr c +5\r\n", "decr d -18446744073709551614\r\n", "incr c -5\r\n", "incr a 1\r\n", "cas a 0 0 1 +99\r\nx\r\n",
		"delete noreply\r\n", "set noreply 0 0 1\r\nx\r\n", "delete noreply 0\r\n", "get noreply\r\n", "mg e v t f s k Oabc\r\n", "mg zz v k Oabc\r\n", "mg zz k q\r\n", "ms m1 2 T+100 F05 c k O1\r\nhi\r\n", "mg m1 v f k\r\n",
		"ms m1 1 ME k\r\nx\r\n", "ms m1 2 MA\r\n--\r\n", "ms zz 1 MR k\r\nx\r\n", "ms b 1 C5 k O1\r\nx\r\n", "ms zz 1 C5 O1 k\r\nx\r\n", "ms k1 1 ME C5\r\nx\r\n", "mg k1 v\r\n", "ms k2 1 ME N30 T0\r\nx\r\n", "mg k2 v t\r\n", "ms k2 1 ME ME\r\nx\r\n", "ms k3 1 MEE\r\nx\r\n",
		"ma f v t\r\n", "ma zz k O1\r\n", "ma ctr N+0 J07 v k\r\n", "ma ctr v D+5\r\n", "ma ctr MD D020 v\r\n", "ma b\r\n", "md zz k O1\r\n", "md b k O9 q\r\n", "mg b v\r\n",
		"ms Zm9v 3 b k O1\r\nfoo\r\n", "mg Zm9v O1 b k v\r\n", "mg YWFh b v\r\n", "md YWFh b k O1\r\n", "md Zm9v k b\r\n", "md Zm9v b k\r\n", "mg Zm9v k b O1\r\n", "ma YmJi b k O1\r\n", "ms eA== 1 b k ME O2\r\nx\r\n", "ms eA== 1 b k ME O2\r\nx\r\n", "ms eA== 1 b k C5 O2\r\nx\r\n", "me zz\r\n", "md c I T30\r\n", "md m1 {\r\n",
	}
	left := regexp.MustCompile(`( c| t|VALUE [^ \r]+ \d+ \d+ )\d+`)
	versions(t, func(t *testing.T, startMember func(testing.TB, ...string) *memcachedtest.Server) {
		for state := ringchange.Prepare; state <= ringchange.Finish; state++ {
			for _, shared := range []bool{false, true} {
				old, next := startMember(t), startMember(t)
				r := start(t, router.Config{}, old)
				direct, routed := dial(t, memcachedtest.Start(t).Address()), dial(t, r.address)
				if state == ringchange.Finish { // the old owner has nothing any more
					dial(t, next.Address()).ask(before)
				}
				same(t, direct, routed, before, nil)
				enter(t, r, &router.Table{Number: 1, State: state, Old: ring(t, old), New: ring(t, next), Shared: shared})
				for _, text := range forms {
					same(t, direct, routed, text, left)
				}
			}
		}
	})
}

// E is a flag of newer memcacheds.
func TestARefusedRequestLeavesNoLease(t *testing.T) {
	t.Parallel()
	for state := ringchange.Prepare; state < ringchange.Finish; state++ {
		all := members(t, 2)
		r := start(t, router.Config{}, all[0])
		routed := dial(t, r.address)
		enter(t, r, &router.Table{Number: 1, State: state, Old: ring(t, all[0]), New: ring(t, all[1])})
		answer := routed.ask("ms k 1 ME E5\r\nx\r\n")
		if answer != "CLIENT_ERROR invalid flag\r\n" && answer != "HD\r\n" {
			t.Errorf("in state %s: %q", state, answer)
		}
		if found := dial(t, all[1].Address()).ask("mg k f\r\n"); found != "EN\r\n" && answer != "HD\r\n" {
			t.Errorf("in state %s the new owner has %q", state, found)
		}
	}
}

func acknowledged(r *running, want int64) error {
	if n, why := r.Acknowledged(); n != want || why != "" {
		return fmt.Errorf("table %d is acknowledged: %s", n, why)
	}
	return nil
}

// rounds returns a quarter of n in the first tier, and n in the second.
func rounds(n int) int {
	if tier.All() {
		return n
	}
	return n / 10
}

func sameAtRandom(t *testing.T, random *rand.Rand, direct, routed *conversation, rounds int, request func(*rand.Rand) string) {
	t.Helper()
	cas := regexp.MustCompile(`( c| t|VALUE [^ \r]+ \d+ \d+ )\d+`)
	for round := range rounds {
		var text strings.Builder
		for range 1 + random.IntN(20) {
			text.WriteString(request(random))
		}
		text.WriteString("xx\r\n") // so many bytes complete a data block that is too short
		if round%10 == 0 {
			_ = routed.Conn.(interface{ SetNoDelay(bool) error }).SetNoDelay(true)
			for b := text.String(); len(b) > 0; {
				n := min(len(b), 1+random.IntN(40))
				routed.say(b[:n])
				b = b[n:]
			}
			want, got := direct.ask(unswallowed(text.String())), routed.ask("")
			if w, g := cas.ReplaceAllString(want, "${1}CAS"), cas.ReplaceAllString(got, "${1}CAS"); g != w {
				t.Fatalf("round %d: %q:\nthe router answers %q,\nmemcached %q", round, text.String(), g, w)
			}
			continue
		}
		same(t, direct, routed, text.String(), cas)
	}
}

// changeable returns a request that has the same answer during a ring change. That excludes an mg with N. A
// decr of 10 gives "9" or "9 ", depending on other readers.
func changeable(random *rand.Rand) string {
	for {
		text := anyRequest(random)
		line, _, _ := strings.Cut(text, "\r\n")
		if !excluded.MatchString(line) {
			return text
		}
	}
}

var excluded = regexp.MustCompile(`^mg .* N1000|^decr `)

// anyRequest returns a request, usually with its data block.
func anyRequest(random *rand.Rand) string {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	key := func() string { return pick("a", "b", "c", "d", "e", "key-1", "key-2", "key-3") }
	encoded := func() string { return base64.StdEncoding.EncodeToString([]byte("in base64: " + key())) }
	noreply := func() string { return pick("", "", "", " noreply", " ", " other") }
	value := func() string {
		return pick("", "1", "17", "x", "some value", strings.Repeat("large ", random.IntN(300)))
	}
	block := func(form, v string) string {
		size := len(v)
		if random.IntN(40) == 0 {
			size += random.IntN(5) - 2
		}
		return fmt.Sprintf(form, size) + "\r\n" + v + "\r\n"
	}
	flags := func(of string) (s string) {
		for _, f := range of {
			if random.IntN(4) == 0 {
				switch f {
				case 'T', 'N':
					s += fmt.Sprintf(" %c%d", f, 1000)
				case 'O':
					s += " Oq" + key()
				case 'F':
					s += pick(" F5", " Fx")
				case 'M':
					s += pick(" ME", " MA", " MP", " MR", " MS", " MI", " MD", " MX")
				case 'D', 'J':
					s += fmt.Sprintf(" %c%d", f, 1+random.IntN(9))
				default:
					s += " " + string(f)
				}
			}
		}
		return s
	}
	switch random.IntN(16) {
	case 0, 1:
		return pick("get ", "gets ", "gat 1000 ", "gats 1000 ", "gat ", "get") + key() + pick("", " "+key(), "  "+key()+" "+key()+" ") + "\r\n"
	case 2, 3:
		return block(pick("set ", "add ", "replace ", "append ", "prepend ", " set ")+key()+pick(" 0", " 7", " x")+pick(" 0", " 1000", " -1")+" %d"+noreply(), value())
	case 4:
		return block("cas "+key()+" 0 0 %d 999999999"+noreply(), value())
	case 5:
		// A decr of 10 gives "9" or "9 ", depending on other readers.
		if random.IntN(2) == 0 {
			return "decr " + key() + pick(" 0", " x", "") + noreply() + "\r\n"
		}
		return "incr " + key() + pick(" 1", " 5", " x", "") + noreply() + "\r\n"
	case 6:
		return "delete " + key() + pick("", "", " 0", " 1") + noreply() + "\r\n"
	case 7:
		return "touch " + key() + pick(" 1000", " 0", "") + noreply() + "\r\n"
	case 8, 9, 10:
		// The key in base64 that memcached returns depends on the command that has made the item.
		if random.IntN(4) == 0 {
			return "mg " + encoded() + flags("vqtTsf") + " b" + flags("OcN") + "\r\n"
		}
		return "mg " + key() + flags("vqktTsfOcN") + "\r\n"
	case 11, 12:
		// With two errors in one request, either may be found first.
		if random.IntN(2) == 0 {
			return block("ms "+key()+" %d"+flags("qkTOcI"), value())
		}
		k, v, f := key(), value(), flags("qkTFOMcI")
		if random.IntN(4) == 0 {
			k, f = encoded(), flags("qkT")+" b"+flags("FOMcI")
		}
		return fmt.Sprintf("ms %s %d%s\r\n%s\r\n", k, len(v), f, v)
	case 13:
		// Other readers decide whether an item stays stale when it is incremented.
		if random.IntN(4) == 0 {
			return "md " + encoded() + flags("qk") + " b" + flags("O") + "\r\n"
		}
		return "md " + key() + flags("qkO") + "\r\n"
	case 14:
		// memcached answers a quiet ma that makes an item, up to at least 1.6.22; later versions, and the
		// router, don't.
		f := strings.ReplaceAll(flags(pick("qkOMDJvt", "kOMDJNvt")), " MD", " MI")
		if strings.Contains(f, " N") && !strings.Contains(f, " J") {
			// An incr of 01, a 0 with a 1 appended, gives "2" or "2 ", depending on other readers.
			f += " J1"
		}
		return "ma " + key() + f + "\r\n"
	default:
		return pick("", "x", "frobnicate a b", "verbosity 1", "ms "+key(), "set "+key()+" 0 0", "me nothing") + "\r\n"
	}
}

// Each key is where a direct client looks for it.
func TestEveryMemberHasItsKeys(t *testing.T) {
	t.Parallel()
	all := members(t, 3)
	routed := dial(t, start(t, router.Config{}, all...).address)
	const keys = 3000
	var text, want strings.Builder
	for i := range keys {
		fmt.Fprintf(&text, "set key-%d 0 0 1\r\nx\r\n", i)
		want.WriteString("STORED\r\n")
	}
	routed.want(text.String(), want.String())
	sum := int64(0)
	for _, m := range all {
		n := m.Items(t)
		if n < keys/5 {
			t.Errorf("a member has %d of %d items", n, keys)
		}
		sum += n
	}
	if sum != keys {
		t.Errorf("the members have %d items, want %d", sum, keys)
	}
}
