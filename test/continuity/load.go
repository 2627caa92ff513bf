package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sync/errgroup"

	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/harness"
)

const (
	// ringClient has a consistent ring: keys of members that stay don't move when it shrinks.
	ringClient = "libmemcached-ketama-weighted"
	// workers is how many the application has. Each has keys of its own.
	workers = 16
	// followEvery is how often the application asks for the list.
	followEvery = 100 * time.Millisecond
	// stores and deletes are how many of a hundred requests store or delete a value. The others read.
	stores, deletes = 8, 2
)

// application reads through a cache: it stores again what is missing.
type application struct {
	*options
	world  *world
	system *system
	late   bool
	curve  *curve
	client *memcache.Client
	all    []*worker
	// ring is the view that the application uses.
	ring atomic.Pointer[view]
}

// view is a list, with its ring.
type view struct {
	servers []string
	owner   routing.Owner
	// addresses has those of the servers.
	addresses map[string]net.Addr
}

// PickServer makes the application a selector of its client library.
func (a *application) PickServer(key string) (net.Addr, error) {
	v := a.ring.Load()
	return v.addresses[v.servers[v.owner.Owner([]byte(key))]], nil
}

// Each makes the application a selector of its client library.
func (a *application) Each(f func(net.Addr) error) error {
	for _, address := range a.ring.Load().addresses {
		if err := f(address); err != nil {
			return err
		}
	}
	return nil
}

// key is one of a worker's keys.
type key struct {
	name string
	// version is the last value's. The value is there unless deleted is set. unsure is set if the last write
	// has got no answer.
	version         int64
	deleted, unsure bool
}

type worker struct {
	*application
	random *rand.Rand
	keys   []key
	// sums has, for each key, the sum of the weights up to this key, by Zipf's law; nil for uniform.
	sums []float64
}

func newApplication(ctx context.Context, w *world, o *options, r *one) (*application, error) {
	a := &application{options: o, world: w, system: &r.system, late: r.late, curve: &curve{}}
	v, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	a.ring.Store(v)
	a.client = memcache.NewFromSelector(a)
	a.client.MaxIdleConns = workers
	for n := range workers {
		one := &worker{application: a, random: rand.New(rand.NewPCG(o.seed, uint64(n)))}
		for k := n; k < o.keys; k += workers {
			one.keys = append(one.keys, key{name: fmt.Sprintf("key:%d", k)})
		}
		if r.zipf {
			one.sums = zipf(len(one.keys))
		}
		a.all = append(a.all, one)
	}
	return a, nil
}

// zipf returns the sums of the weights of n keys, by Zipf's law with the exponent 0.99, as in YCSB.
func zipf(n int) []float64 {
	const exponent = 0.99
	sums, sum := make([]float64, n), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -exponent)
		sums[i] = sum
	}
	return sums
}

// pick returns a random key.
func (w *worker) pick() *key {
	if w.sums == nil {
		return &w.keys[w.random.IntN(len(w.keys))]
	}
	at, _ := slices.BinarySearch(w.sums, w.random.Float64()*w.sums[len(w.sums)-1])
	return &w.keys[min(at, len(w.keys)-1)]
}

// look reads the list, and the addresses of its servers.
func (a *application) look(ctx context.Context) (*view, error) {
	servers, err := a.system.list(ctx, a.world)
	if err != nil {
		return nil, err
	}
	addresses, err := a.world.addresses(ctx)
	if err != nil {
		return nil, err
	}
	return a.view(servers, addresses)
}

// view makes that of a list. A server without a pod keeps its last address.
func (a *application) view(servers []string, addresses map[string]net.Addr) (*view, error) {
	v := &view{servers: servers, addresses: map[string]net.Addr{}}
	ring := make([]routing.Server, len(servers))
	for i, s := range servers {
		server, err := routing.ParseServer(s)
		if err != nil {
			return nil, err
		}
		ring[i] = server
		name, _, _ := strings.Cut(s, ".")
		if v.addresses[s] = addresses[name]; v.addresses[s] == nil {
			if before := a.ring.Load(); before != nil {
				v.addresses[s] = before.addresses[s]
			}
		}
		if v.addresses[s] == nil {
			return nil, fmt.Errorf("%s has no address", s)
		}
	}
	var err error
	v.owner, err = routing.New(ringClient, ring)
	return v, err
}

// follow follows the list until the context ends. A late application uses each list when the list is old
// enough. It uses new addresses of its servers at once.
func (a *application) follow(ctx context.Context) {
	type heard struct {
		servers []string
		at      time.Time
	}
	waiting := []heard{}
	for harness.Sleep(ctx, followEvery) == nil {
		servers, err := a.system.list(ctx, a.world)
		addresses, err2 := a.world.addresses(ctx)
		if err != nil || err2 != nil || len(servers) == 0 {
			continue // it asks again
		}
		current := a.ring.Load().servers
		if n := len(waiting); n == 0 && !slices.Equal(servers, current) || n > 0 && !slices.Equal(servers, waiting[n-1].servers) {
			waiting = append(waiting, heard{servers, time.Now()})
		}
		for len(waiting) > 0 && (!a.late || time.Since(waiting[0].at) >= a.options.late) {
			current, waiting = waiting[0].servers, waiting[1:]
		}
		if v, err := a.view(current, addresses); err == nil {
			a.ring.Store(v)
		}
	}
}

// fill stores a value for each key.
func (a *application) fill(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range a.all {
		group.Go(func() error {
			for i := range w.keys {
				k := &w.keys[i]
				k.version = 1
				if err := a.client.Set(a.item(k)); err != nil {
					return fmt.Errorf("fill: %w", err)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// item returns one with the key's version.
func (a *application) item(k *key) *memcache.Item {
	value := fmt.Appendf(make([]byte, 0, a.valueSize), "%d ", k.version)
	return &memcache.Item{Key: k.name, Value: append(value, bytes.Repeat([]byte("v"), max(0, a.valueSize-len(value)))...)}
}

// start starts the load. stop ends it, and waits for that.
func (a *application) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	a.curve.began = time.Now()
	running.Go(func() { a.follow(ctx) })
	for _, w := range a.all {
		running.Go(func() { w.work(ctx) })
	}
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = a.client.Close()
	})
}

// work makes requests at a fixed rate. A latency counts from when the request was due.
func (w *worker) work(ctx context.Context) {
	pause := time.Duration(workers) * time.Second / time.Duration(w.rate)
	harness.Open(ctx, time.Duration(w.random.Int64N(int64(pause))), pause, func(due time.Time) { w.request(w.pick(), due) })
}

func (w *worker) request(k *key, due time.Time) {
	var err error
	what := second{}
	switch n := w.random.IntN(100); {
	case n < deletes:
		err = w.remove(k)
	case n < deletes+stores:
		k.version++
		err = w.store(k)
	default:
		what, err = w.read(k)
	}
	if err != nil {
		what.errors = 1
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" || errors.As(err, new(*memcache.ConnectTimeoutError)) {
			what.connects = 1
		}
	}
	took := time.Since(due)
	w.curve.note(due, func(s *second) {
		s.hits, s.lost, s.old, s.undone = s.hits+what.hits, s.lost+what.lost, s.old+what.old, s.undone+what.undone
		s.errors, s.connects = s.errors+what.errors, s.connects+what.connects
		s.latencies = append(s.latencies, took)
	})
}

func (w *worker) store(k *key) error {
	err := w.client.Set(w.item(k))
	k.unsure = err != nil
	if err == nil {
		k.deleted = false
	}
	return err
}

func (w *worker) remove(k *key) error {
	err := w.client.Delete(k.name)
	if errors.Is(err, memcache.ErrCacheMiss) {
		err = nil
	}
	k.unsure = err != nil
	if err == nil {
		k.deleted = true
	}
	return err
}

// read reads a key, and stores or deletes it again if what it finds is wrong, as an application does that reads
// from a database what the cache lacks.
func (w *worker) read(k *key) (what second, err error) {
	it, err := w.client.Get(k.name)
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		if k.deleted {
			return what, nil
		}
		if !k.unsure {
			what.lost = 1
		}
		return what, w.store(k)
	case err != nil:
		return what, err
	}
	number, _, _ := strings.Cut(string(it.Value), " ")
	version, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		return what, fmt.Errorf("%s has the value %.20q", k.name, it.Value)
	case k.unsure:
		return what, w.store(k)
	case k.deleted:
		what.undone = 1
		return what, w.remove(k)
	case version < k.version:
		what.old = 1
		return what, w.store(k)
	}
	what.hits = 1
	return what, nil
}
