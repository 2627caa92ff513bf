package router_test

import (
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// statsOf parses an answer to stats.
func statsOf(t *testing.T, answer string) map[string]string {
	t.Helper()
	all := map[string]string{}
	lines := strings.Split(strings.TrimSuffix(answer, "\r\n"), "\r\n")
	for _, line := range lines[:len(lines)-1] {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 || words[0] != "STAT" {
			t.Fatalf("the line %q", line)
		}
		all[words[1]] = words[2]
	}
	if last := lines[len(lines)-1]; last != "END" {
		t.Fatalf("it ends with %q", last)
	}
	return all
}

// Tools that ask a router see what its members store.
func TestARoutersStatsHaveItsMembersSums(t *testing.T) {
	t.Parallel()
	all := members(t, 3)
	r := start(t, router.Config{}, all...)
	c := dial(t, r.address)
	const items = 50
	for i := range items {
		c.want(fmt.Sprintf("set key-%d 0 0 5\r\nhello\r\n", i), "STORED\r\n")
	}
	var direct []*memcache.Conn
	for _, m := range all {
		direct = append(direct, m.DialFor(t))
	}
	sums := func(kind string, names ...string) map[string]int64 {
		sum := map[string]int64{}
		for _, conn := range direct {
			answer, err := conn.Stats(kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				n, err := strconv.ParseInt(answer[name], 10, 64)
				if err != nil {
					t.Fatalf("%s=%q", name, answer[name])
				}
				sum[name] += n
			}
		}
		return sum
	}
	check := func(kind string, names ...string) {
		t.Helper()
		wait.For(t, "the sums of stats "+kind, func() error {
			got, want := statsOf(t, c.ask("stats "+kind+"\r\n")), sums(kind, names...)
			for _, name := range names {
				if got[name] != strconv.FormatInt(want[name], 10) {
					return fmt.Errorf("%s is %q, want %d", name, got[name], want[name])
				}
			}
			return nil
		})
	}
	check("", "curr_items", "total_items", "bytes", "limit_maxbytes", "evictions")
	check("items", "items:1:number")
	check("slabs", "1:used_chunks", "1:cmd_set", "total_malloced")
	slabs := statsOf(t, c.ask("stats slabs\r\n"))
	if slabs["1:chunk_size"] != "96" {
		t.Errorf("a chunk of class 1 has %s bytes", slabs["1:chunk_size"])
	}
	if settings := statsOf(t, c.ask("stats settings\r\n")); settings["maxconns"] == "" || settings["item_size_max"] == "" {
		t.Errorf("settings: %v", settings)
	}
	wait.For(t, "the sets", func() error {
		if n := statsOf(t, c.ask("stats\r\n"))["cmd_set"]; n != strconv.Itoa(items) {
			return fmt.Errorf("%s are counted", n)
		}
		return nil
	})
	// The answers come in order.
	answer := c.ask("get key-0\r\nstats settings\r\nget key-1\r\n")
	first, last := strings.Index(answer, "VALUE key-0 "), strings.Index(answer, "VALUE key-1 ")
	if stat := strings.Index(answer, "STAT maxconns "); first != 0 || stat < first || last < stat {
		t.Errorf("the answers are %q", answer)
	}
}

// A member that doesn't answer is left out, and holds up no request of another client.
func TestStatsWithoutAMemberThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{MemberTimeout: 2 * time.Second}, all...)
	c, gone := dial(t, r.address), dial(t, r.address)
	c.want("get a\r\n", "END\r\n")
	all[1].Signal(syscall.SIGSTOP)
	defer all[1].Signal(syscall.SIGCONT)
	gone.say("stats items\r\n")
	_ = gone.Close() // before the answer
	want := statsOf(t, dial(t, all[0].Address()).ask("stats\r\n"))["limit_maxbytes"]
	wait.For(t, "the other member's answer", func() error {
		if limit := statsOf(t, c.ask("stats\r\n"))["limit_maxbytes"]; limit != want {
			return fmt.Errorf("limit_maxbytes is %q", limit)
		}
		return nil
	})
	c.want("stats sizes\r\n", "ERROR\r\n")
}

// Clients that ask for several kinds in turn, and go, don't make the router ask a member that doesn't answer for each
// of them. The next client would wait for all of that.
func TestClientsThatAskForStatsInTurn(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{MemberTimeout: 2 * time.Second}, all...)
	c := dial(t, r.address)
	c.want("get a\r\n", "END\r\n")
	all[0].Signal(syscall.SIGSTOP)
	defer all[0].Signal(syscall.SIGCONT)
	kinds := []string{"", "settings", "items", "slabs"}
	for i := range 300 {
		gone := dial(t, r.address)
		gone.say("stats " + kinds[i%len(kinds)] + "\r\n")
		_ = gone.Close()
	}
	statsOf(t, c.ask("stats\r\n"))
}

// The binary protocol has the same kinds.
func TestBinaryStatsHaveTheKindsOfText(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{}, members(t, 1)...)
	text, binary := dial(t, r.address), dial(t, r.address)
	compare := func(kind string) {
		t.Helper()
		all, _ := binary.said(packet{opcode: opStat, key: kind}.bytes())
		got := map[string]string{}
		for _, p := range all {
			if p.opcode != opStat || p.status != 0 {
				t.Fatalf("stats %s: %v", kind, p)
			}
			got[p.key] = p.value
		}
		if end, ok := got[""]; !ok || end != "" || len(got) != len(all) {
			t.Errorf("stats %s end with %v", kind, all[len(all)-1:])
		}
		delete(got, "")
		if want := statsOf(t, text.ask("stats "+kind+"\r\n")); !maps.Equal(got, want) {
			t.Errorf("stats %s are %v, want %v", kind, got, want)
		}
	}
	compare("items") // there are none
	text.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	compare("settings")
	compare("slabs")
}

// Answers of many members take no memory beyond their sums.
func TestTheStatsOfManyMembersTakeLittleMemory(t *testing.T) {
	var hosts []string
	for i := range 255 { // all are the same memcached
		hosts = append(hosts, fmt.Sprintf("127.0.1.%d", i))
	}
	m := memcachedtest.Start(t, "-m", "64", "-l", strings.Join(hosts, ","))
	c := dial(t, m.Address())
	for size := 50; size < 400_000; size += size/8 + 1 { // in all slab classes
		c.want(fmt.Sprintf("set %d 0 0 %d\r\n%s\r\n", size, size, strings.Repeat("x", size)), "STORED\r\n")
	}
	many := ring(t, m)
	for _, host := range hosts {
		many.Servers = append(many.Servers, routing.Server{Host: host, Port: uint16(m.Port)})
	}
	r := start(t, router.Config{Loops: 1, Table: &router.Table{New: many}})
	c = dial(t, r.address)
	c.want("get a\r\n", "END\r\n")
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	_ = statsOf(t, c.ask("stats items\r\n"))
	if after := heap(); after > before+1<<20 {
		t.Errorf("%d KiB are kept", (after-before)>>10)
	}
}
