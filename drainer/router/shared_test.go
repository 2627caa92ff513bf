package router_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/wait"
)

// versions runs a test with Debian's memcached, and, if there is one, with a newer one, which has another
// parser.
func versions(t *testing.T, test func(t *testing.T, start func(testing.TB, ...string) *memcachedtest.Server)) {
	t.Helper()
	t.Run("debian", func(t *testing.T) {
		t.Parallel()
		test(t, memcachedtest.Start)
	})
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		test(t, memcachedtest.StartNewer)
	})
}

// lines are the lines of a router's log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

// lost returns the log's lines about lost connections to members.
func (l *lines) lost() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, "requests were unanswered") {
			all = append(all, line)
		}
	}
	return all
}

// attacks returns texts that made some version of memcached answer something else than the router expected,
// over the connection that all clients share. Each has an answer of at least one line.
func attacks() []string {
	const block = "\r\nversion\r\nmn\r\n"
	split := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key + "\r\nHD")) }
	all := []string{
		"set a 18446744073709551615\t- 0 11" + block, "cas a 0 0 11 18446744073709551615\t-" + block, "set a -1 0 11" + block,
		" set a 0 0 11" + block, "set  a 0 0 11" + block, "set a 0 0 +11" + block, "set a 0 0 11\t" + block, "set a 0 0 000000000011" + block,
		"set a +0 0 11" + block, "set a 0 +0 11" + block, "cas a 0 0 11 +5" + block, "set a 0 0 11 x" + block, "set a 0 0 11 1 2" + block, "cas a 0 0 11" + block,
		"add " + strings.Repeat("k", 251) + " 0 0 11" + block, "set a 0 0 2147483647" + block, "set a 0 0 4294967307" + block,
		"ms a 11 {" + block, "ms a 11 T0 {" + block, "ms a 11\t T0" + block, "ms a +11" + block, "ms a 000000000011" + block, "ms a 11 T0 T0" + block, "ms a 11 Z" + block, "ms !! 11 b" + block,
		"ms a 11 O" + strings.Repeat("o", 40) + block, "ms " + strings.Repeat("k", 251) + " 11" + block, "ms a 4294967307" + block,
		"ms a 11 " + strings.Repeat("T1 ", 25) + block, "append a 0 0 11" + block, " ms a 11" + block,
		"delete noreply\r\n", "delete noreply 0\r\n", "touch noreply 5\r\n", "incr noreply 5\r\n", "decr noreply 5\r\n", "get noreply\r\n", "gets noreply\r\n", "gat 5 noreply\r\n", "gats 5 noreply\r\n",
		"set noreply 0 0 1\r\nx\r\n", "cas noreply 0 0 1 5\r\nx\r\n", "get noreply\r\n", "append noreply 0 0 1\r\nx\r\n", "delete noreply\r\n", "md noreply\r\n", "mg noreply k\r\n", "me noreply\r\n",
		"mg " + split("a") + " b N30 k\r\n", "mg " + split("a") + " b k\r\n", "ma " + split("b") + " b N30 k\r\n", "ma " + split("b") + " b k\r\n", "md " + split("b") + " b k\r\n", "me " + split("a") + " b\r\n",
		"mg " + split("VA 4\r\nEVIL") + " b N0 k v\r\n", "me " + split("VA 4\r\nEVIL") + " b\r\n",
		"get " + strings.Repeat("k ", 1100) + "foo\x00bar\r\n", "get " + strings.Repeat("k ", 1100) + "foo\x00" + strings.Repeat("x", 300) + "\r\n",
		"gat +5 a\r\n", "gat 0000000000005 a\r\n", "touch a +5\r\n", "incr a +5\r\n", "incr a 00000000000000000000000005\r\n", "flush_all +0\r\n", "mg a v {\r\n", "mg a T+5\r\n",
	}
	// These lines fill a member's buffer so that a part of the last one is longer than the member accepts.
	long := func(n int) string { return "delete k" + strings.Repeat(" ", n-10) + "\r\n" }
	all = append(all, strings.Repeat(long(2050), 6)+long(2035)+long(2050)+"get foo\r\n")
	return append(all, strings.Repeat("mg k v P"+strings.Repeat("p", 2000)+"\r\n", 20))
}

// A client may send anything: the others get the answers to their own requests, and the connection to the member
// does not break.
func TestNoOtherClientHearsOfAMalformedRequest(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, startMember func(testing.TB, ...string) *memcachedtest.Server) {
		var said lines
		r := start(t, router.Config{Loops: 1, Logf: said.logf}, startMember(t))
		victim := dial(t, r.address)
		victim.want("set vic 0 0 3\r\nabc\r\n", "STORED\r\n")
		for _, text := range attacks() {
			attacker := dial(t, r.address)
			attacker.say(text)
			if _, err := attacker.r.ReadString('\n'); err != nil {
				t.Fatalf("%.200q: %v", text, err)
			}
			for i := range 3 {
				key := fmt.Sprintf("other-%d", i)
				if got := victim.ask("mg vic v\r\nset " + key + " 0 0 1\r\nx\r\nmd " + key + " k\r\nget vic\r\n"); got != "VA 3\r\nabc\r\nSTORED\r\nHD k"+key+"\r\nVALUE vic 0 3\r\nabc\r\nEND\r\n" {
					if !strings.HasPrefix(text, "flush_all") {
						t.Errorf("after %.200q the others are told %.300q", text, got)
					}
					victim.ask("set vic 0 0 3\r\nabc\r\n")
				}
			}
			attacker.Close()
		}
		if lost := said.lost(); len(lost) > 0 {
			t.Errorf("%d connections to the member broke: %q", len(lost), lost)
		}
	})
}

// Neither the members nor the router read the block of a refused request as requests.
func TestADataBlockIsNeverARequest(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, startMember func(testing.TB, ...string) *memcachedtest.Server) {
		r := start(t, router.Config{}, startMember(t))
		for _, text := range attacks() {
			if !strings.HasSuffix(text, "\r\nversion\r\nmn\r\n") {
				continue
			}
			client := dial(t, r.address)
			client.say(text + "mn\r\n")
			_ = client.Conn.(*net.TCPConn).CloseWrite()
			answer, err := io.ReadAll(client.r)
			if err != nil || strings.Contains(string(answer), "VERSION") || strings.Count(string(answer), "MN\r\n") > 1 {
				t.Errorf("%q: %q, %v", text, answer, err)
			}
		}
	})
}

// A key that looks like noreply is a key.
func TestAKeyMayBeNoreply(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, startMember func(testing.TB, ...string) *memcachedtest.Server) {
		direct, routed := dial(t, startMember(t).Address()), dial(t, start(t, router.Config{}, startMember(t)).address)
		for _, text := range []string{
			"set noreply 0 0 1\r\n5\r\n", "get noreply\r\n", "get noreply a\r\n", "gat 100 noreply\r\n", "touch noreply 100\r\n", "incr noreply 3\r\n", "decr noreply 1\r\n", "append noreply 0 0 1\r\nx\r\n",
			"cas noreply 0 0 1 99999\r\nx\r\n", "get noreply\r\n", "incr noreply 3 noreply\r\n", "touch noreply 50 noreply\r\n", "mg noreply v k\r\n", "md noreply k\r\n", "set noreply 0 0 1 noreply\r\n6\r\n", "get noreply\r\n", "delete noreply noreply\r\n", "get noreply\r\n",
		} {
			same(t, direct, routed, text, nil)
		}
		routed.want("delete noreply\r\nset noreply 0 0 1\r\nx\r\ndelete noreply\r\ndelete noreply 0\r\nget noreply\r\n", "NOT_FOUND\r\nSTORED\r\nDELETED\r\nNOT_FOUND\r\nEND\r\n")
	})
}

// A key in base64 comes back in its written form, whichever client has made the item, and in whichever way.
func TestAKeyInBase64ComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, startMember func(testing.TB, ...string) *memcachedtest.Server) {
		routed := dial(t, start(t, router.Config{}, startMember(t)).address)
		k := base64.StdEncoding.EncodeToString([]byte("a\r\nHD"))
		routed.want("mg "+k+" b N30 t k O1\r\n", "HD t30 k"+k+" b O1 W\r\n")
		routed.want("mg "+k+" s k b\r\n", "HD s0 k"+k+" b Z\r\n")
		routed.want("ma AAAA"+k+" b N0 J7 k v\r\n", "VA 1 kAAAA"+k+" b\r\n7\r\n")
		routed.want("ms "+k+" 2 k b O7\r\nhi\r\n", "HD k"+k+" b O7\r\n")
		routed.want("mg "+k+" b v k\r\n", "VA 2 k"+k+" b\r\nhi\r\n")
		routed.want("me "+k+" b\r\n", "CLIENT_ERROR me of a key in base64 is not supported\r\n")
		routed.want("md "+k+" k b O7\r\n", "HD k"+k+" b O7\r\n")
		routed.want("md "+k+" k b O7\r\nmg "+k+" O8 b k q\r\nmg "+k+" O8 b k\r\n", "NF k"+k+" b O7\r\nEN O8 k"+k+" b\r\n")
		routed.want("set foo 0 0 1\r\nx\r\nmg Zm9v b k v\r\nmg foo k\r\n", "STORED\r\nVA 1 kZm9v b\r\nx\r\nHD kfoo\r\n")
	})
}

// Applications may not use commands that change a member, or reveal much about it. The connection stays open.
func TestOtherCommandsAreErrors(t *testing.T) {
	t.Parallel()
	routed := dial(t, start(t, router.Config{}, members(t, 1)...).address)
	for _, text := range []string{
		"lru_crawler enable", "lru_crawler crawl all", "lru_crawler metadump all", "lru_crawler mgdump hash", "lru tune 10 25 0.1 2.0", "lru mode flat", "slabs reassign 1 2", "slabs automove 1", "watch", "watch fetchers",
		"cache_memlimit 64", "cache_memlimit 64 noreply", "cache_automove 1", "stats sizes", "stats conns", "stats detail on", "stats cachedump 1 1",
		"misbehave", "debugtime p", "debugitem lock a", "refresh_certs", "extstore free_memchunks 1 1", "extstore item_age 5", "mcp", "mcp.pool", "tap", "auth a b", "metaget a", "mz a", "m", "MG a", "SET a 0 0 1",
	} {
		routed.want(text+"\r\n", "ERROR\r\n")
	}
	for _, text := range []string{"shutdown", "shutdown graceful"} {
		routed.want(text+"\r\n", "ERROR: shutdown not enabled\r\n")
	}
	routed.want("get a\r\n", "END\r\n")
}

// liar is a member that gives its own answer to each request.
func liar(t *testing.T, answer func(line string) string) *memcachedtest.Server {
	t.Helper()
	return memcachedtest.Fake(t, func(line string) string {
		if line == "version" {
			return "VERSION 1.6.18\r\n"
		}
		return answer(strings.TrimSpace(line))
	})
}

// If a member's answer can't be the answer to the request, no client gets it, and the connection to the
// member ends: the bytes after it would be taken for the answers to other requests.
func TestAnAnswerThatDoesNotFitEndsTheConnection(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"get a":               "VALUE a 0 1\r\nxyz\r\nEND\r\n",
		"get b":               "VALUE b 0 1\r\nx\nEND\r\n\r\n",
		"get c":               "VALUE other 0 1\r\nx\r\nEND\r\n",
		"get d":               "HD\r\n",
		"mg a v":              "VA 3\r\nabcde\r\n",
		"mg b v":              "STORED\r\n",
		"mg c":                "HD\n",
		"md a":                "VA 1\r\nx\r\n",
		"incr a 1":            "STORED\r\n",
		"touch a 1":           "DELETED\r\n",
		"delete a":            "STORED\r\n",
		"set a 0 0 1\r\nHD":   "HD\r\n",
		"set a 0 0 1\r\nlong": strings.Repeat("x", 5000),
	}
	for request, answer := range tests {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			var said lines
			r := start(t, router.Config{ReadErrors: true, Loops: 1, Logf: said.logf}, liar(t, func(string) string { return answer }))
			client := dial(t, r.address)
			request, _, block := strings.Cut(request, "\r\n")
			request += "\r\n"
			if block {
				request += "x\r\n"
			}
			client.say(request)
			_ = client.Conn.(*net.TCPConn).CloseWrite()
			got, err := io.ReadAll(client.r)
			if err != nil || !strings.HasPrefix(string(got), "SERVER_ERROR") && !strings.HasPrefix(answer[:len(answer)-1], string(got)) {
				t.Errorf("the client is told %q, %v", got, err)
			}
			wait.For(t, "the connection to end", func() error {
				if len(said.lost()) == 0 {
					return fmt.Errorf("%q", said.all)
				}
				return nil
			})
		})
	}
}
