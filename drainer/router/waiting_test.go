package router_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/wait"
)

// A silent member holds up the answers of each client that asks for its keys first. The keys that these clients ask for
// meanwhile take memory, also those that are missed and have no answer of their own, so they are bounded.
func TestKeysThatWaitForASilentMemberTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const maxMemory, clients, keys = 1 << 20, 60, 300
	all := members(t, 2)
	rings := ring(t, all...)
	r := start(t, router.Config{Loops: 1, MaxMemory: maxMemory, MemberTimeout: wait.Long}, all...)
	other, direct := dial(t, r.address), dial(t, all[1].Address())
	hit := ownKey(rings, 0)
	other.want("set "+hit+" 0 0 1\r\nx\r\n", "STORED\r\n")
	all[0].Signal(syscall.SIGSTOP)
	text, size := "get "+hit, 0
	for i, n := 0, 0; n < keys; i++ {
		key := fmt.Sprintf("%s-%d", strings.Repeat("k", 200), i)
		if rings.Owner.Owner([]byte(key)) == 1 {
			text, size, n = text+" "+key, len(key), n+1
		}
	}
	// asked is how many keys of the other member have been asked for.
	asked := func() int {
		_, rest, _ := strings.Cut(direct.ask("stats\r\n"), "STAT cmd_get ")
		n, _ := strconv.Atoi(rest[:max(0, strings.IndexByte(rest, '\r'))])
		return n
	}
	var waiting []*conversation
	for range clients {
		c := dial(t, r.address)
		c.say(text + "\r\nmn\r\n")
		waiting = append(waiting, c)
	}
	for range 50 {
		other.ask("")
	}
	if n := asked(); n*size > maxMemory {
		t.Errorf("%d keys wait: their names alone take %d bytes", n, n*size)
	}
	all[0].Signal(syscall.SIGCONT)
	for _, c := range waiting {
		if got := c.until("MN"); got != "VALUE "+hit+" 0 1\r\nx\r\nEND\r\n" {
			t.Fatalf("%.200q", got)
		}
	}
	wait.For(t, "nothing to be held", func() error {
		if n := held(t, r); n != 0 {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
}
