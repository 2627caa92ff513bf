package move

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/wait"
)

// A survivor that dies in the middle and comes back empty gets the rest, and every item is counted once.
func TestASurvivorThatRestartsGetsTheRest(t *testing.T) {
	t.Parallel()
	const n = 20000
	all := map[string]drainertest.Object{}
	for i := range n {
		all["key"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("0123456789")}
	}
	dir := drainertest.Leaving(t, "saved", all)
	servers, addresses := drainertest.Survivors(t, 2)
	source, err := volume.Open(dir, volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	owner, err := routing.New("gomemcache", drainertest.MustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	var lines drainertest.Buffer
	var restart sync.WaitGroup
	m := Engine{SourceID: "the-claim", Owner: owner, Servers: drainertest.MustParse(t, addresses), Log: &lines,
		UnreachableTimeout: wait.Long,
		Source: &drainertest.Hooked{Source: source, N: n / 2, Do: func() {
			servers[1].Kill()
			restart.Go(func() { // when the move waits for it
				for !strings.Contains(lines.String(), "waiting for survivor "+addresses[1]) && time.Now().Before(wait.Deadline()) {
					time.Sleep(time.Millisecond)
				}
				servers[1].Restart()
			})
		}}}
	r := m.Run(t.Context())
	restart.Wait()
	if err := r.AddsUp("the-claim"); err != nil || r.Found != n || r.Added+r.AlreadyPresent != n {
		t.Errorf("%v: %+v", err, r)
	}
	if got := lines.String(); !strings.Contains(got, "waiting for survivor "+addresses[1]) || !strings.Contains(got, "answers again") {
		t.Errorf("people were told %q", got)
	}
	if n := servers[0].Items(t); n != r.Survivors[0].Added {
		t.Errorf("the survivor that lived holds %d items, %d were added", n, r.Survivors[0].Added)
	}
}
