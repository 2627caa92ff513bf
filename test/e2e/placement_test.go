package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/node"
)

// TestItemsAreWhereClientsLookAfterEachScaling: an application overwrites its keys
// all the time, while the cluster is scaled as an autoscaler may, placements are
// killed, and members between two scalings. No read finds a value older than the last one that was
// acknowledged; after each scaling every key is found, and none that was deleted.
func TestItemsAreWhereClientsLookAfterEachScaling(t *testing.T) {
	for _, client := range []cachev1alpha1.Client{"gomemcache", ringClient} {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			f := setup(t, cachev1alpha1.MemcachedSpec{
				Size: ptr.To[int32](3), Memory: ptr.To(resource.MustParse("64Mi")),
				Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("256Mi")},
				Routing: cachev1alpha1.RoutingSpec{Client: client},
				Drain:   cachev1alpha1.DrainSpec{Parallelism: 4},
			})
			a := newWriters(f, string(client))
			a.settle(3)
			stop := a.start(random.Uint64())
			defer stop()
			for n, size := range []int32{5, 2, 3, 2} {
				began := time.Now()
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // to a random moment
				f.scale(size)
				if n < 2 {
					f.eventually("a placement was killed", f.killPlacement)
				}
				f.settled(size)
				a.settle(int(size))
				a.look(fmt.Sprintf("%d members after %.0f s", size, time.Since(began).Seconds()))
				if n > 0 {
					f.crash(f.pod(random.IntN(2)))
					a.look("and after a crash")
				}
				a.deleteSome(n)
			}
		})
	}
}

// killPlacement kills one that runs, or tells that it found none; once no member is
// left to be placed there is none to kill.
func (f *fixture) killPlacement() bool {
	f.Helper()
	for _, pod := range f.pods() {
		if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentPlacement {
			for _, pid := range f.processesOf(&pod, "drainer") {
				if node.Signal(pid, syscall.SIGKILL) == nil {
					f.Logf("killed %s", pod.Name)
					return true
				}
			}
		}
	}
	s := f.memcached().Status
	return s.ObservedGeneration == f.memcached().Generation && s.Size == s.ReadySize && s.Draining == 0 && s.Placing == 0 &&
		meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing)
}

const versionedKeys = 2000

// writers are an application whose values are numbers that grow.
type writers struct {
	*fixture
	routing string
	// lock is held for reading by each request: a new list waits for those that are
	// under way by the old one.
	lock   sync.RWMutex
	list   []string // addresses; only follow changes it, one at a time
	turn   sync.Mutex
	client *memcache.Client
	keys   []versioned

	reads, missed, old atomic.Int64
	failures           sync.Map // what was found that must not be
}

// versioned is a key with one writer.
type versioned struct {
	name               string
	sent, acknowledged int64
	// unsure: the end of its last write is not known, and memcached takes the old
	// value away before it has the new one.
	unsure, deleted bool
}

func newWriters(f *fixture, routing string) *writers {
	a := &writers{fixture: f, routing: routing}
	for i := range versionedKeys {
		a.keys = append(a.keys, versioned{name: fmt.Sprintf("key:%d", i)})
	}
	return a
}

// follow takes over the list that the ConfigMap has, where it has changed.
func (a *writers) follow(ctx context.Context) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	var list corev1.ConfigMap
	if err := kube.Get(ctx, a.key(a.name+"-servers"), &list); err != nil {
		return err
	}
	var servers, addresses []string
	if err := json.Unmarshal([]byte(list.Data["servers.json"]), &servers); err != nil {
		return err
	}
	for _, server := range servers {
		name, _, _ := strings.Cut(server, ".")
		var pod corev1.Pod
		if err := kube.Get(ctx, a.key(name), &pod); err != nil || pod.Status.PodIP == "" {
			return fmt.Errorf("%s has no address: %w", name, err)
		}
		addresses = append(addresses, pod.Status.PodIP+server[strings.LastIndex(server, ":"):])
	}
	if len(addresses) == 0 || slices.Equal(addresses, a.list) {
		return nil
	}
	client, err := a.connect(servers, addresses)
	if err != nil {
		return err
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	a.client, a.list = client, addresses
	return nil
}

// connect makes gomemcache a client of its own distribution, or of the drainer's
// ring.
func (a *writers) connect(servers, addresses []string) (*memcache.Client, error) {
	var selector memcache.ServerSelector
	if a.routing == "gomemcache" {
		list := &memcache.ServerList{}
		if err := list.SetServers(addresses...); err != nil {
			return nil, err
		}
		selector = list
	} else {
		ring, err := app.New(a.routing, servers, func(server string) string { return addresses[slices.Index(servers, server)] })
		if err != nil {
			return nil, err
		}
		selector = ring
	}
	client := memcache.NewFromSelector(selector)
	client.Timeout, client.MaxIdleConns = 2*time.Second, 8
	return client, nil
}

// settle waits until the application has a list of that size.
func (a *writers) settle(size int) {
	a.Helper()
	a.eventually(fmt.Sprintf("the application has %d servers", size), func() bool {
		_ = a.follow(a.ctx) // it is followed again
		a.lock.RLock()
		defer a.lock.RUnlock()
		return len(a.list) == size
	})
	a.lock.Lock()
	defer a.lock.Unlock()
	for i := range a.keys {
		if k := &a.keys[i]; k.sent == 0 {
			a.store(k)
		}
	}
}

// start lets the application read and write until it is told to stop.
func (a *writers) start(seed uint64) (stop func()) {
	const workers = 4
	ctx, cancel := context.WithCancel(a.ctx)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for ctx.Err() == nil {
				k := &a.keys[random.IntN(versionedKeys/workers)*workers+w]
				a.lock.RLock()
				if !k.deleted {
					a.read(k)
					if random.IntN(2) == 0 {
						a.store(k)
					}
				}
				a.lock.RUnlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			_ = a.follow(ctx) // in a moment again
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() { cancel(); running.Wait() }
}

func (a *writers) store(k *versioned) {
	k.sent++
	err := a.client.Set(&memcache.Item{Key: k.name, Value: []byte(strconv.FormatInt(k.sent, 10))})
	if k.unsure = err != nil; !k.unsure {
		k.acknowledged = k.sent
	}
}

// read a key, and tell whether there is a value. No answer is none.
func (a *writers) read(k *versioned) (found, answered bool) {
	item, err := a.client.Get(k.name)
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		a.reads.Add(1)
		a.missed.Add(1)
		return false, true
	case err != nil:
		return false, false
	}
	a.reads.Add(1)
	if version, err := strconv.ParseInt(string(item.Value), 10, 64); err != nil || version < k.acknowledged {
		a.old.Add(1)
		a.failures.Store(k.name, fmt.Sprintf("%s: found %q, value %d was acknowledged", k.name, item.Value, k.acknowledged))
	}
	return true, true
}

// look reads every key while nobody writes, and prints what was found so far.
func (a *writers) look(when string) {
	a.Helper()
	missing := 0
	a.eventually("every key is found, and none that was deleted", func() bool {
		a.lock.Lock()
		defer a.lock.Unlock()
		reads, missed := a.reads.Load(), a.missed.Load()
		missing = 0
		for i := range a.keys {
			k := &a.keys[i]
			switch found, answered := a.read(k); {
			case !answered:
				return false // a member that was killed is not back yet
			case k.deleted && found:
				a.failures.Store(k.name, k.name+" was deleted, and is there")
			case !k.deleted && !found && !k.unsure:
				missing++
			}
		}
		a.reads.Store(reads)
		a.missed.Store(missed)
		return missing == 0 // what was killed may still be replayed
	})
	a.Logf("%s: %d reads, %d misses on the way, %d old values, all of %d keys found", when, a.reads.Load(), a.missed.Load(), a.old.Load(), len(a.keys))
	a.failures.Range(func(_, what any) bool {
		a.Errorf("%s", what)
		return true
	})
}

// deleteSome deletes some keys, and stores those that were deleted before.
func (a *writers) deleteSome(n int) {
	a.Helper()
	const of = 10
	a.lock.Lock()
	defer a.lock.Unlock()
	for i := range a.keys {
		k := &a.keys[i]
		if k.deleted {
			k.deleted = false
			a.store(k)
		}
		if i%of == n {
			if err := a.client.Delete(k.name); err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
				a.Fatalf("delete %s: %v", k.name, err)
			}
			k.deleted = true
		}
	}
}
