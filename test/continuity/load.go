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
	// workers is how many workers the application has. Each has keys of its own.
	workers = 16
	// followEvery is how often the application asks for the list.
	followEvery = 100 * time.Millisecond
	// stores and deletes are how many of a hundred requests store or delete a value. The others read.
	stores, deletes = 8, 2
)

// application reads through a cache: it stores missing values again.
type application struct {
	*options
	world  *world
	system *system
	curve  *curve
	// processes have the application's connections. Each request is made by one of them.
	processes []*process
	all       []*worker
}

// process is a process of the application. A process uses a list when the list is old enough.
type process struct {
	late   time.Duration
	client *memcache.Client
	// ring is the view that it uses.
	ring atomic.Pointer[view]
}

// view is a list, with its ring.
type view struct {
	servers []string
	owner   routing.Owner
	// addresses has those of the servers.
	addresses map[string]net.Addr
}

// PickServer makes the process a selector of its client library.
func (p *process) PickServer(key string) (net.Addr, error) {
	v := p.ring.Load()
	return v.addresses[v.servers[v.owner.Owner([]byte(key))]], nil
}

// Each makes the process a selector of its client library.
func (p *process) Each(f func(net.Addr) error) error {
	for _, address := range p.ring.Load().addresses {
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
	a := &application{options: o, world: w, system: &r.system, curve: &curve{}}
	v, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	for _, late := range r.list.late {
		p := &process{late: late}
		p.ring.Store(v)
		p.client = memcache.NewFromSelector(p)
		p.client.MaxIdleConns = workers
		a.processes = append(a.processes, p)
	}
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
	return viewOf(servers, addresses, nil)
}

// viewOf makes that of a list. A server without a pod keeps the address that it had before.
func viewOf(servers []string, addresses map[string]net.Addr, before *view) (*view, error) {
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
			if before != nil {
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

// heard is a list, and when it was published.
type heard struct {
	servers []string
	at      time.Time
}

// follow follows the list until the context ends. A late process uses each list when the list is old enough.
// All processes use new addresses of their servers at once.
func (a *application) follow(ctx context.Context) {
	lists := []heard{{servers: a.processes[0].ring.Load().servers}}
	for harness.Sleep(ctx, followEvery) == nil {
		servers, err := a.system.list(ctx, a.world)
		addresses, err2 := a.world.addresses(ctx)
		if err != nil || err2 != nil || len(servers) == 0 {
			continue // it asks again
		}
		if !slices.Equal(servers, lists[len(lists)-1].servers) {
			lists = append(lists, heard{servers, time.Now()})
		}
		for _, p := range a.processes {
			last := len(lists) - 1
			for last > 0 && time.Since(lists[last].at) < p.late {
				last--
			}
			if v, err := viewOf(lists[last].servers, addresses, p.ring.Load()); err == nil {
				p.ring.Store(v)
			}
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
				if err := a.processes[0].client.Set(a.item(k)); err != nil {
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
		for _, p := range a.processes {
			_ = p.client.Close()
		}
	})
}

// work makes requests at a fixed rate. A latency counts from when the request was due.
func (w *worker) work(ctx context.Context) {
	pause := time.Duration(workers) * time.Second / time.Duration(w.rate)
	harness.Open(ctx, time.Duration(w.random.Int64N(int64(pause))), pause, func(due time.Time) { w.request(w.pick(), due) })
}

func (w *worker) request(k *key, due time.Time) {
	r := request{w, w.processes[w.random.IntN(len(w.processes))].client, k, second{}}
	switch n := w.random.IntN(100); {
	case n < deletes:
		r.remove()
	case n < deletes+stores:
		k.version++
		r.store()
	default:
		r.read()
	}
	took := time.Since(due)
	w.curve.note(due, func(s *second) {
		s.add(&r.saw)
		s.latencies = append(s.latencies, took)
	})
}

// request is one of a process, about a key.
type request struct {
	*worker
	client *memcache.Client
	key    *key
	saw    second
}

// fails counts an error.
func (r *request) fails(kind int, err error) {
	r.saw.failed[kind]++
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" || errors.As(err, new(*memcache.ConnectTimeoutError)) {
		r.saw.connects++
	}
}

// try makes the request, and once more if it fails and the application is one that asks again: a library that keeps
// connections learns that one was closed when it uses it.
func (r *request) try(do func() error) error {
	err := do()
	if err != nil && r.asksTwice && !errors.Is(err, memcache.ErrCacheMiss) {
		err = do()
	}
	return err
}

func (r *request) store() {
	err := r.try(func() error { return r.client.Set(r.item(r.key)) })
	if r.key.unsure = err != nil; err != nil {
		r.fails(storing, err)
		return
	}
	r.key.deleted = false
}

func (r *request) remove() {
	err := r.try(func() error { return r.client.Delete(r.key.name) })
	if errors.Is(err, memcache.ErrCacheMiss) {
		err = nil
	}
	if r.key.unsure = err != nil; err != nil {
		r.fails(deleting, err)
		return
	}
	r.key.deleted = true
}

// read reads a key, and stores or deletes it again if the result is wrong, as an application does that reads
// missing values from a database.
func (r *request) read() {
	k := r.key
	var it *memcache.Item
	err := r.try(func() (err error) {
		it, err = r.client.Get(k.name)
		return err
	})
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		if k.deleted {
			return
		}
		if !k.unsure {
			r.saw.lost = 1
		}
		r.store()
		return
	case err != nil:
		r.fails(reading, err)
		return
	}
	number, _, _ := strings.Cut(string(it.Value), " ")
	version, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		r.fails(reading, fmt.Errorf("%s has the value %.20q", k.name, it.Value))
	case k.unsure:
		r.store()
	case k.deleted:
		r.saw.undone = 1
		r.remove()
	case version < k.version:
		r.saw.old = 1
		r.store()
	default:
		r.saw.hits = 1
	}
}
