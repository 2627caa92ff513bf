package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// TestTheLoadBelievesAMemcached also shows that the load notices each thing that routers may never do: an old
// value, a deleted key that is there, and a missing key.
func TestTheLoadBelievesAMemcached(t *testing.T) {
	l, client := loadOfMemcached(t)
	var all sync.WaitGroup
	for id := range writers {
		all.Go(func() { requests(l, id, 2000) })
	}
	all.Wait()
	for _, wrong := range l.judged() {
		t.Error(wrong)
	}
	for what, n := range map[string]int64{
		"sets": l.stored.Load(), "deletes": l.deleted.Load(), "increments": l.counted.Load(),
		"swaps": l.swapped.Load(), "swaps that were refused": l.refused.Load(), "reads": l.read.Load(), "misses": l.missed.Load(),
	} {
		if n < 100 {
			t.Errorf("only %d %s", n, what)
		}
	}
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d requests have failed", n)
	}

	wrong := 0
	now := func(what string, does func(h *hot) error) {
		t.Helper()
		for _, h := range l.hot {
			if err := does(h); err != nil {
				t.Fatal(err)
			}
			_ = l.readHot(h)
		}
		n := len(l.judged())
		if n-wrong < hotKeys/2 {
			t.Errorf("%s: noticed %d times", what, n-wrong)
		}
		wrong = n
	}
	now("old values", func(h *hot) error {
		return client.Set(&memcache.Item{Key: h.key, Value: h.value(h.look().acknowledged - 1)})
	})
	now("missing keys", func(h *hot) error { l.set(l.views.routers, h); return client.Delete(h.key) })
	now("deleted keys", func(h *hot) error {
		l.remove(l.views.routers, h)
		return client.Set(&memcache.Item{Key: h.key, Value: h.value(h.look().acknowledged - 1)})
	})
}

func requests(l *load, id, n int) {
	random := rand.New(rand.NewPCG(1, uint64(id)))
	for range n {
		if random.IntN(2) == 0 {
			l.writeHot(l.hot[random.IntN(hotKeys/writers)*writers+id], random)
		} else {
			_ = l.readHot(l.hot[random.IntN(hotKeys)])
		}
	}
}

// loadOfMemcached is a load that asks one memcached instead of routers.
func loadOfMemcached(t *testing.T) (*load, *memcache.Client) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "socket")
	me, err := user.Current() // as root, memcached needs the flag -u
	if err != nil {
		t.Fatal(err)
	}
	memcached, err := exec.LookPath("memcached")
	tier.Needs(t, "memcached", err)
	server := exec.CommandContext(t.Context(), memcached, "-u", me.Username, "-s", socket)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	client := memcache.New(socket)
	client.MaxIdleConns, client.Timeout = writers, wait.Long
	wait.For(t, "memcached to answer", client.Ping)
	l := &load{
		views:   &views{world: &world{options: options{routed: true}}, routers: &member{address: socket, client: client}},
		excused: map[string]int{},
	}
	for i := range hotKeys {
		l.hot = append(l.hot, &hot{key: fmt.Sprintf("hot-%d", i), counts: i/writers%4 == 3, facts: facts{gone: true}})
	}
	return l, client
}
