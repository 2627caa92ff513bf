package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// The load. Each key has one writer. There are two kinds:
//
//   - a key that is written once, by the present ring. What its member acknowledged must be
//     at its owner, or, with placement Off, where later drains have taken it;
//   - a key that is written again and again, with a growing number. Its owner is the
//     same at every size, because copies on other members would be older
//     (docs/hazards.md).
const (
	writers = 4
	// pause of a writer between two requests.
	pause = 4 * time.Millisecond
	// maxKeys bounds what is stored, so that nothing is evicted.
	maxKeys  = 30_000
	hotKeys  = 64
	maxValue = 2048
)

// load has the clients, and what they know.
type load struct {
	views   *views
	seed    uint64
	running sync.WaitGroup

	mu      sync.Mutex
	journal []entry
	wrong   []string
	hot     []*hot

	stored, read, missed, failed atomic.Int64
}

// entry is a write that a member has acknowledged.
type entry struct {
	key, volume string
}

// hot is a key that is overwritten. Numbers up to attempted were sent, those up to
// acknowledged arrived. unknown: a later write has an unknown outcome; memcached removes
// the old value before it stores the new one.
type hot struct {
	key                     string
	mu                      sync.Mutex
	attempted, acknowledged int64
	unknown, abandoned      bool
}

func newLoad(w *world, seed uint64) (*load, error) {
	l := &load{views: &views{world: w, pods: map[string]*member{}}, seed: seed}
	mc, err := w.memcached(context.Background())
	if err != nil {
		return nil, err
	}
	if w.routed {
		if err := l.views.connectRouters(context.Background()); err != nil {
			return nil, err
		}
	}
	first := mc.Status.Servers[0]
	for i := 0; len(l.hot) < hotKeys; i++ {
		key := fmt.Sprintf("hot-%d", i)
		owners := map[int]bool{}
		for size := minSize; size <= maxSize; size++ {
			var servers []string
			for ordinal := range size {
				servers = append(servers, strings.Replace(first, "-0.", fmt.Sprintf("-%d.", ordinal), 1))
			}
			owner, err := ring(servers)
			if err != nil {
				return nil, err
			}
			owners[owner.Owner([]byte(key))] = true
		}
		if len(owners) == 1 {
			l.hot = append(l.hot, &hot{key: key})
		}
	}
	return l, nil
}

func (l *load) start(ctx context.Context) {
	l.running.Go(func() { l.views.follow(ctx) })
	for i := range writers {
		l.running.Go(func() { l.write(ctx, i) })
	}
}

func (l *load) wait() { l.running.Wait() }

// write is one client: a third of its requests write new keys, a third
// overwrite its own, a third read anybody's.
func (l *load) write(ctx context.Context, id int) {
	random := rand.New(rand.NewPCG(l.seed, uint64(id)))
	for n := 0; ctx.Err() == nil; n++ {
		switch random.IntN(3) {
		case 0:
			l.store(fmt.Sprintf("once-%d-%d", id, n))
		case 1:
			l.overwrite(l.hot[random.IntN(hotKeys/writers)*writers+id])
		default:
			l.readAny(random)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// store a new key, and write down who acknowledged it.
func (l *load) store(key string) {
	l.mu.Lock()
	full := len(l.journal) >= maxKeys
	l.mu.Unlock()
	m := l.views.asked(key)
	if full || m == nil {
		return
	}
	if err := m.client.Set(&memcache.Item{Key: key, Value: valueOf(key)}); err != nil {
		l.failed.Add(1)
		return
	}
	l.stored.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal = append(l.journal, entry{key, m.volume})
}

// overwrite a key with the next number.
func (l *load) overwrite(h *hot) {
	m := l.views.asked(h.key)
	h.mu.Lock()
	abandoned := h.abandoned
	if m != nil && !abandoned {
		h.attempted++
	}
	number := h.attempted
	h.mu.Unlock()
	if m == nil || abandoned {
		return
	}
	err := m.client.Set(&memcache.Item{Key: h.key, Value: numbered(h.key, number)})
	h.mu.Lock()
	defer h.mu.Unlock()
	var timeout net.Error
	switch {
	case err == nil:
		l.stored.Add(1)
		h.acknowledged, h.unknown = number, false
	case errors.As(err, &timeout) && timeout.Timeout():
		// It may still be carried out, even after the next one.
		h.abandoned = true
		fallthrough
	default:
		l.failed.Add(1)
		h.unknown = true
	}
}

// readAny reads anybody's key. A miss is fine, because members are being killed; a
// wrong value is not.
func (l *load) readAny(random *rand.Rand) {
	if random.IntN(2) == 0 {
		l.count(l.readHot(l.hot[random.IntN(hotKeys)]))
		return
	}
	l.mu.Lock()
	if len(l.journal) == 0 {
		l.mu.Unlock()
		return
	}
	key := l.journal[random.IntN(len(l.journal))].key
	l.mu.Unlock()
	m := l.views.asked(key)
	if m == nil {
		return
	}
	item, err := m.client.Get(key)
	l.count(err)
	if err == nil && !bytes.Equal(item.Value, valueOf(key)) {
		l.blame("%s: %d bytes that nobody stored", key, len(item.Value))
	}
}

// errOld is a value older than the last one.
var errOld = errors.New("an old value came back")

// readHot reads a key that is overwritten. The value must not be older than one that was
// acknowledged before the read.
func (l *load) readHot(h *hot) error {
	m := l.views.asked(h.key)
	if m == nil {
		return memcache.ErrNoServers
	}
	h.mu.Lock()
	least := h.acknowledged
	h.mu.Unlock()
	item, err := m.client.Get(h.key)
	if err != nil {
		return err
	}
	h.mu.Lock()
	most, abandoned := h.attempted, h.abandoned
	h.mu.Unlock()
	number, ok := numberOf(h.key, item.Value)
	switch {
	case !ok || number > most:
		l.blame("%s: %q, which nobody stored", h.key, item.Value)
	case number < least && !abandoned:
		l.blame("%s: %v: %d was acknowledged, and %d is found at %s", h.key, errOld, least, number, m.address)
		return errOld
	}
	return nil
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

// entries is the journal and the errors so far.
func (l *load) entries() ([]entry, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.journal), slices.Clone(l.wrong)
}

func (l *load) print() {
	fmt.Printf("chaos: load: %d writes acknowledged, %d reads answered, %d missed while members came and went, %d requests failed\n",
		l.stored.Load(), l.read.Load(), l.missed.Load(), l.failed.Load())
}

// valueOf a key that is written once follows from the key.
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

// numbered is a number as a key's value; numberOf reads it.
func numbered(key string, number int64) []byte { return fmt.Appendf(nil, "%s=%d", key, number) }

func numberOf(key string, value []byte) (int64, bool) {
	name, text, _ := strings.Cut(string(value), "=")
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && name == key
}
