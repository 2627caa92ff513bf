package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// The load. Each key has one writer. There are two kinds:
//
//   - a key that is written once, by the present ring. The value that its member acknowledged must
//     be at its owner, or, with moves Off, where later drains have taken it;
//   - a key that is written again and again, with a growing number. Its owner is the
//     same at every size, because copies on other members would be older
//     (docs/hazards.md). Not so behind routers: any key is written, deleted, incremented and
//     swapped there, and every answer is checked (trouble.go).
const (
	writers = 4
	// pause is how long a writer waits between two requests.
	pause = 4 * time.Millisecond
	// maxKeys bounds the stored keys, so that nothing is evicted.
	maxKeys  = 30_000
	hotKeys  = 64
	maxValue = 2048
	// unansweredRests is how long, behind routers, a key rests at least after a write without an answer. Then
	// it rests until the cluster is at rest. A member may still have that write in its socket, from a router
	// that was killed, or whose time-out (2 s) was over. That write would be carried out after the next one,
	// which comes by another router.
	unansweredRests = 5 * time.Second
)

// load has the clients, and their knowledge.
type load struct {
	views   *views
	seed    uint64
	running sync.WaitGroup

	mu       sync.Mutex
	journal  []entry
	wrong    []string
	suspects []suspicion
	excused  map[string]int
	hot      []*hot

	stored, deleted, counted, swapped, refused, read, missed, failed atomic.Int64
}

// entry is a write that a member has acknowledged.
type entry struct {
	key, volume string
	wrote       span
}

func newLoad(w *world, seed uint64) (*load, error) {
	l := &load{views: &views{world: w, pods: map[string]*member{}}, seed: seed, excused: map[string]int{}}
	mc, err := w.memcached(context.Background())
	if err != nil {
		return nil, err
	}
	if w.routed {
		if err := l.views.connectRouters(context.Background()); err != nil {
			return nil, err
		}
	}
	for i := 0; len(l.hot) < hotKeys; i++ {
		h := &hot{key: fmt.Sprintf("hot-%d", i), facts: facts{gone: true}}
		stays, err := ownerStays(h.key, mc.Status.Servers[0])
		if err != nil {
			return nil, err
		}
		if w.routed || stays {
			h.counts = w.routed && len(l.hot)/writers%4 == 3 // a quarter of each writer's keys
			l.hot = append(l.hot, h)
		}
	}
	return l, nil
}

// ownerStays tells whether the key has the same owner at every size. first is member 0's name.
func ownerStays(key, first string) (bool, error) {
	owners := map[int]bool{}
	for size := minSize; size <= maxSize; size++ {
		var servers []string
		for ordinal := range size {
			servers = append(servers, strings.Replace(first, "-0.", fmt.Sprintf("-%d.", ordinal), 1))
		}
		owner, err := ring(servers)
		if err != nil {
			return false, err
		}
		owners[owner.Owner([]byte(key))] = true
	}
	return len(owners) == 1, nil
}

func (l *load) start(ctx context.Context) {
	l.running.Go(func() { l.views.follow(ctx) })
	if l.views.routed {
		l.running.Go(func() { l.views.followTables(ctx) })
	}
	for i := range writers {
		l.running.Go(func() { l.write(ctx, i) })
	}
}

func (l *load) wait() { l.running.Wait() }

// write is one client: a third of its requests write new keys, a third its own hot keys, and a third read keys
// of all clients.
func (l *load) write(ctx context.Context, id int) {
	random := rand.New(rand.NewPCG(l.seed, uint64(id)))
	for n := 0; ctx.Err() == nil; n++ {
		switch random.IntN(3) {
		case 0:
			l.store(fmt.Sprintf("once-%d-%d", id, n))
		case 1:
			l.writeHot(l.hot[random.IntN(hotKeys/writers)*writers+id], random)
		default:
			l.readAny(random)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// store stores a new key, and writes down which member acknowledged it.
func (l *load) store(key string) {
	l.mu.Lock()
	full := len(l.journal) >= maxKeys
	l.mu.Unlock()
	m := l.views.asked(key)
	if full || m == nil {
		return
	}
	began := time.Now()
	if err := m.client.Set(&memcache.Item{Key: key, Value: valueOf(key)}); err != nil {
		l.failed.Add(1)
		return
	}
	l.stored.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal = append(l.journal, entry{key, m.volume, span{began, time.Now()}})
}

// readAny reads a key of any client. A miss is right while members are being killed; a wrong value is not.
func (l *load) readAny(random *rand.Rand) {
	if random.IntN(2) == 0 {
		_ = l.readHot(l.hot[random.IntN(hotKeys)])
		return
	}
	l.mu.Lock()
	if len(l.journal) == 0 {
		l.mu.Unlock()
		return
	}
	e := l.journal[random.IntN(len(l.journal))]
	l.mu.Unlock()
	m := l.views.asked(e.key)
	if m == nil {
		return
	}
	began := time.Now()
	item, err := m.client.Get(e.key)
	l.count(err)
	switch {
	case err == nil && !bytes.Equal(item.Value, valueOf(e.key)):
		l.blame("%s: %d bytes that were never stored", e.key, len(item.Value))
	case errors.Is(err, memcache.ErrCacheMiss):
		l.suspect(suspicion{what: missing, write: e.wrote, request: span{began, time.Now()}, text: e.key})
	}
}

func (l *load) count(err error) {
	switch {
	case err == nil:
		l.read.Add(1)
	case errors.Is(err, memcache.ErrCacheMiss):
		l.missed.Add(1)
	default:
		l.failed.Add(1)
	}
}

func (l *load) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// suspect keeps a suspicion. A suspicion is judged when the meantime's events are known. A client that
// follows members itself misses keys while they come and go.
func (l *load) suspect(s suspicion) {
	if s.what == missing && !l.views.routed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspects = append(l.suspects, s)
}

// judged judges the suspicions, and returns the errors so far.
func (l *load) judged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.suspects {
		s := &l.suspects[i]
		if why := l.views.trouble.excuse(s); why != "" {
			l.excused[why]++
			continue
		}
		form := "15:04:05.000"
		l.wrong = append(l.wrong, fmt.Sprintf("%s to %s %s %s; it was written %s to %s",
			s.request.from.UTC().Format(form), s.request.to.UTC().Format(form), s.text, s.what, s.write.from.UTC().Format(form), s.write.to.UTC().Format(form)))
	}
	l.suspects = nil
	return slices.Clone(l.wrong)
}

// entries returns the journal so far.
func (l *load) entries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.journal)
}

func (l *load) print() {
	fmt.Printf("chaos: load: %d writes acknowledged, %d reads answered, %d missed while members came and went, %d requests failed\n",
		l.stored.Load(), l.read.Load(), l.missed.Load(), l.failed.Load())
	if !l.views.routed {
		return
	}
	fmt.Printf("chaos: load: %d deletes, %d increments, %d swaps, %d swaps with an outdated token, which were refused\n",
		l.deleted.Load(), l.counted.Load(), l.swapped.Load(), l.refused.Load())
	changes, abrupt := l.views.trouble.counts()
	fmt.Printf("chaos: %d ring changes through all states; %d times between two rests routers changed without them\n", changes, abrupt)
	for _, why := range slices.Sorted(maps.Keys(l.excused)) {
		fmt.Printf("chaos: %d answers that the design allows: %s\n", l.excused[why], why)
	}
}

// valueOf returns the value of a key that is written once.
func valueOf(key string) []byte {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))
	random := rand.New(rand.NewPCG(sum.Sum64(), 0))
	value := make([]byte, random.IntN(maxValue))
	for i := range value {
		value[i] = byte(random.Uint32())
	}
	return value
}
