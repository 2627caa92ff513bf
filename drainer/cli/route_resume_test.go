package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// A client's connection carries further requests after a large value that has waited for a member. The tests
// differ in the client's next wait.

// large is a size in bytes that is more than the shared buffer has room for.
const large = 40_000

// In a ring change: the value's key moves, so the next request waits for the value.
func TestAClientGoesOnAfterALargeValueInAChange(t *testing.T) {
	t.Parallel()
	all := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t), memcachedtest.Start(t)}
	from, to := ownersOf(t, all[:2]...), ownersOf(t, all...)
	stays := aKey(t, func(k string) bool { return from(k) == all[0] && to(k) == all[0] })
	moves := aKey(t, func(k string) bool { return from(k) == all[0] && to(k) == all[2] })
	path := filepath.Join(t.TempDir(), "ring")
	servers := []string{all[0].Address(), all[1].Address(), all[2].Address()}
	writeRing(t, path, contract.RingTable{Number: 1, State: contract.RingSettle,
		Old: &contract.Ring{Client: "gomemcache", Servers: servers[:2]}, New: contract.Ring{Client: "gomemcache", Servers: servers}})
	r := route(t, "--threads=1", "--linger=0s", "--ring-file="+path)
	r.crowd(all[0], stays)
	c := r.client()
	c.slowly(moves)
	c.say("mn\r\n")
	r.settle()
	all[0].Signal(syscall.SIGCONT)
	c.hears("STORED\r\n", "MN\r\n")
}

// While memory is short: an earlier request of the client has no answer yet.
func TestAClientGoesOnAfterALargeValueWhileMemoryIsShort(t *testing.T) {
	tier.Second(t, "TestAClientGoesOnAfterALargeValueInAChange")
	t.Parallel()
	silent, crowded := memcachedtest.Start(t), memcachedtest.Start(t)
	owner := ownersOf(t, silent, crowded)
	first := aKey(t, func(k string) bool { return owner(k) == silent })
	second := aKey(t, func(k string) bool { return owner(k) == crowded })
	const maxMemory = 4 << 20
	r := route(t, "--threads=1", "--linger=0s", "--client=gomemcache",
		"--server="+silent.Address(), "--server="+crowded.Address(), fmt.Sprintf("--max-memory=%d", maxMemory))
	r.crowd(crowded, second)
	silent.Signal(syscall.SIGSTOP)
	c := r.client()
	c.say("get " + first + "\r\n")
	c.slowly(second)
	r.overfill(first, maxMemory)
	crowded.Signal(syscall.SIGCONT)
	r.settle() // only the memory now prevents it from going on
	silent.Signal(syscall.SIGCONT)
	c.hears("END\r\n", "STORED\r\n")
}

// settle waits until the router has no more work: then all its threads sleep.
func (r *routed) settle() {
	r.T.Helper()
	looks := 0
	wait.For(r.T, "the router to be at rest", func() error {
		looks++
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", r.Cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			r.T.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread) // the thread may have ended
			if _, state, found := strings.Cut(string(stat), ") "); found && state[0] != 'S' {
				looks = 0
				return fmt.Errorf("%s: %.20s", thread, state)
			}
		}
		if looks < 5 { // a thread that wakes another may have been seen both before and after that
			return errors.New("it may be on its way")
		}
		return nil
	})
}

// ownersOf returns the owner of a key by gomemcache's distribution.
func ownersOf(t *testing.T, members ...*memcachedtest.Server) func(key string) *memcachedtest.Server {
	t.Helper()
	var all []routing.Server
	for _, m := range members {
		all = append(all, routing.Server{Host: "127.0.0.1", Port: uint16(m.Port)})
	}
	owner, err := routing.New("gomemcache", all)
	if err != nil {
		t.Fatal(err)
	}
	return func(key string) *memcachedtest.Server { return members[owner.Owner([]byte(key))] }
}

func aKey(t *testing.T, fits func(key string) bool) string {
	t.Helper()
	for i := range 10_000 {
		if key := fmt.Sprintf("k%d", i); fits(key) {
			return key
		}
	}
	t.Fatal("no key of 10,000 fits")
	return ""
}

// asking is a client with a connection to a router.
type asking struct {
	t    *testing.T
	r    *routed
	conn net.Conn
	in   *bufio.Reader
}

func (r *routed) client() *asking {
	r.T.Helper()
	conn := talk(r.T, r.address, "")
	return &asking{r.T, r, conn, bufio.NewReader(conn)}
}

func (c *asking) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *asking) hears(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		if got, err := c.in.ReadString('\n'); err != nil || got != want {
			c.t.Fatalf("want %q, got %q, %v", want, got, err)
		}
	}
}

// slowly stores a large value in pieces, so that the router buffers it.
func (c *asking) slowly(key string) {
	c.t.Helper()
	text := fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, large, strings.Repeat("v", large))
	c.say(text[:large/4])
	c.r.settle()
	c.say(text[large/4:])
	c.r.settle()
}

// crowd stops a member and sends it so many requests that clients have to wait for it.
func (r *routed) crowd(m *memcachedtest.Server, key string) {
	r.T.Helper()
	var all []*asking
	for range 18 {
		c := r.client()
		for range 2 { // so that the router learns that the answers are small
			c.say(strings.Repeat("get "+key+"\r\n", 60))
			for range 60 {
				c.hears("END\r\n")
			}
		}
		all = append(all, c)
	}
	m.Signal(syscall.SIGSTOP)
	for _, c := range all {
		c.say(strings.Repeat("get "+key+"\r\n", 1024))
	}
	r.settle()
}

// overfill stores values at a stopped member until the router holds more than its bound.
func (r *routed) overfill(key string, maxMemory int) {
	r.T.Helper()
	store := func(size, times int) {
		talk(r.T, r.address, strings.Repeat(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, size, strings.Repeat("v", size)), times))
	}
	wait.For(r.T, "memory to be short", func() error {
		store(30_000, 30)
		if held := r.metric("memcached_router_held_bytes"); held <= maxMemory {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
	for range 60 {
		store(2000, 5)
	}
	r.settle()
}
