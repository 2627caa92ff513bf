package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// There are few keys, so that each is visited again and again although the load is small.
const (
	versionedKeys = 400
	visitPause    = 25 * time.Millisecond
)

// writers are an application whose values are numbers that grow.
type writers struct {
	*fixture
	// lock is held for reading by each request: a new list waits for the requests that are under way by the old
	// one.
	lock    sync.RWMutex
	all     []*writer
	list    []string // addresses; only follow changes the list, in one goroutine at a time
	turn    sync.Mutex
	current time.Time // when the list was last read, and had not changed
	// moves are the times in which a delete may be undone (docs/hazards.md): from a change of the list, or a
	// crash, until all is at rest.
	moves []span
	// late are the times, since items began to move, in which the application may have used an old list. A
	// value that it stored then is moved later, so that for a moment the owner has an older value.
	late []span

	behind, reads, missed, old, deletes, within, undone atomic.Int64
}

// span is a time. Its end is zero while it goes on.
type span struct{ from, to time.Time }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && (s.to.IsZero() || !t.After(s.to)) }

// writer has keys that no other writer writes.
type writer struct {
	*writers
	library library
	random  *rand.Rand
	keys    []versioned
	longest time.Duration // the longest time from the beginning of a move to a delete that it undid
}

type versioned struct {
	name               string
	sent, acknowledged int64
	stored             time.Time // when the last value was stored
	deleted            time.Time // when the delete was asked for; zero if it is not deleted
	// unsure is set if the outcome of its last write or delete is unknown: memcached removes the old value
	// before it has the new one.
	unsure bool
}

func newWriters(f *fixture, client cachev1alpha1.Client, random *rand.Rand) *writers {
	f.Helper()
	const writersOfIt = 4
	a := &writers{fixture: f}
	for n := range writersOfIt {
		w := &writer{writers: a, library: libraries[client](f), random: rand.New(rand.NewPCG(random.Uint64(), 0))}
		for k := n; k < versionedKeys; k += writersOfIt {
			w.keys = append(w.keys, versioned{name: fmt.Sprintf("key:%d", k)})
		}
		a.all = append(a.all, w)
	}
	return a
}

// follow reads the ConfigMap's list, and uses it if it has changed.
func (a *writers) follow(ctx context.Context) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	asked := time.Now()
	var list corev1.ConfigMap
	if err := kube.Get(ctx, a.key(a.name+"-servers"), &list); err != nil {
		return err
	}
	var servers, addresses []string
	if err := json.Unmarshal([]byte(list.Data["servers.json"]), &servers); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(a.namespace)); err != nil {
		return err
	}
	for _, server := range servers {
		name, _, _ := strings.Cut(server, ".")
		at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == name && p.Status.PodIP != "" })
		if at < 0 {
			return fmt.Errorf("%s has no address", name)
		}
		addresses = append(addresses, pods.Items[at].Status.PodIP+server[strings.LastIndex(server, ":"):])
	}
	if len(addresses) == 0 || slices.Equal(addresses, a.list) {
		a.current = asked
		return nil
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.list != nil {
		a.moving(a.current)
		a.late = append(a.late, span{from: a.current, to: time.Now()})
	}
	for _, w := range a.all {
		if err := w.library.use(servers, addresses); err != nil {
			return err
		}
	}
	a.list, a.current = addresses, asked
	return nil
}

// moving notes a move that began at that time, or that the one that is under way began earlier: a member may be
// killed between a change of the list and the moment in which the test notices the change.
func (a *writers) moving(from time.Time) {
	n := len(a.moves)
	switch {
	case n == 0 || !a.moves[n-1].to.IsZero():
		a.moves = append(a.moves, span{from: from})
	case from.Before(a.moves[n-1].from):
		a.moves[n-1].from = from
	}
}

// atRest notes the end of the move that is under way, if there is one. A key that is deleted from now on stays
// deleted.
func (a *writers) atRest() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if n := len(a.moves); n > 0 && a.moves[n-1].to.IsZero() {
		a.moves[n-1].to = time.Now()
	}
	a.late = nil
}

// crash crashes a member, and waits until it is back with its items. Until all is at rest, deleted values may
// come back.
func (a *writers) crash(ordinal int) {
	a.Helper()
	a.lock.Lock()
	a.moving(time.Now())
	a.lock.Unlock()
	before := a.restarts(ordinal)
	a.fixture.crash(a.pod(ordinal))
	a.eventually(fmt.Sprintf("member %d is back", ordinal), func() bool {
		return a.restarts(ordinal) > before && ready(a.pod(ordinal))
	})
	a.Logf("member %d was killed, and came back", ordinal)
}

func (f *fixture) restarts(ordinal int) int32 {
	f.Helper()
	var n int32
	for _, status := range f.pod(ordinal).Status.ContainerStatuses {
		n += status.RestartCount
	}
	return n
}

// settle waits until the application has a list of that size.
func (a *writers) settle(size int) {
	a.Helper()
	a.eventually(fmt.Sprintf("the application has %d servers", size), func() bool {
		_ = a.follow(a.ctx) // the list is read again
		a.lock.RLock()
		defer a.lock.RUnlock()
		return len(a.list) == size
	})
}

// fill stores a value for each key.
func (a *writers) fill() {
	a.Helper()
	for _, w := range a.all {
		for i := range w.keys {
			if w.store(&w.keys[i]); w.keys[i].unsure {
				a.Fatalf("%s could not be stored", w.keys[i].name)
			}
		}
	}
}

// start lets the application read, write and delete until it is told to stop.
func (a *writers) start() (stop func()) {
	ctx, cancel := context.WithCancel(a.ctx)
	var running sync.WaitGroup
	for _, w := range a.all {
		running.Go(func() {
			for ctx.Err() == nil {
				a.lock.RLock()
				w.visit(&w.keys[w.random.IntN(len(w.keys))])
				a.lock.RUnlock()
				time.Sleep(visitPause)
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			_ = a.follow(ctx) // the next read is soon
			time.Sleep(250 * time.Millisecond)
		}
	})
	return func() { cancel(); running.Wait() }
}

// visit reads a key, and may then write or delete it. A deleted key stays deleted for longer, so that a scaling
// comes meanwhile.
func (w *writer) visit(k *versioned) {
	w.read(k)
	switch dice := w.random.IntN(40); {
	case dice == 0:
		w.remove(k)
	case k.deleted.IsZero() && dice < 20, dice < 3:
		w.store(k)
	}
}

func (w *writer) store(k *versioned) {
	k.sent++
	err := w.library.set(k.name, strconv.FormatInt(k.sent, 10))
	if k.unsure = err != nil; !k.unsure {
		k.acknowledged, k.deleted, k.stored = k.sent, time.Time{}, time.Now()
	}
}

func (w *writer) remove(k *versioned) {
	k.deleted = time.Now()
	k.unsure = w.library.remove(k.name) != nil
	w.deletes.Add(1)
	if n := len(w.moves); n > 0 && w.moves[n-1].has(k.deleted) {
		w.within.Add(1)
	}
}

// read reads a key, and tells whether there is a value, and whether there was an answer.
func (w *writer) read(k *versioned) (found, answered bool) {
	value, err := w.library.get(k.name)
	if err != nil {
		return false, false
	}
	w.reads.Add(1)
	if value == "" {
		if k.deleted.IsZero() {
			w.missed.Add(1)
		}
		return false, true
	}
	switch version, err := strconv.ParseInt(value, 10, 64); {
	case err != nil:
		w.wrong("%s: found %q", k.name, value)
	case version > k.acknowledged: // a write that got no answer
		k.acknowledged, k.deleted, k.unsure = version, time.Time{}, false
	case version == k.acknowledged && (k.unsure || k.deleted.IsZero()):
	case k.deleted.IsZero() && w.storedLate(k):
		w.behind.Add(1)
	case k.deleted.IsZero():
		w.wrong("%s: found value %d, and %d was acknowledged", k.name, version, k.acknowledged)
	default:
		w.cameBack(k, version)
	}
	return true, true
}

// storedLate tells whether the key was stored by a list that may have been old, and items are still being
// moved.
func (a *writers) storedLate(k *versioned) bool {
	return slices.ContainsFunc(a.late, func(s span) bool { return s.has(k.stored) })
}

// cameBack records that a deleted key's value came back. From now on the application takes it as stored.
func (w *writer) cameBack(k *versioned, version int64) {
	i := slices.IndexFunc(w.moves, func(s span) bool { return s.has(k.deleted) })
	if i < 0 {
		w.wrong("%s: was deleted %s ago, when nothing moved, and value %d is there", k.name, time.Since(k.deleted), version)
	} else {
		w.undone.Add(1)
		w.longest = max(w.longest, k.deleted.Sub(w.moves[i].from))
	}
	k.acknowledged, k.deleted, k.unsure = version, time.Time{}, false
}

func (a *writers) wrong(format string, args ...any) {
	const enough = 10
	if a.old.Add(1) <= enough {
		a.Errorf(format, args...)
	}
}

// look reads every key while no writer writes, and prints the counts so far.
func (a *writers) look(when string) {
	a.Helper()
	missing := 0
	a.eventually("every key is found", func() bool {
		a.lock.Lock()
		defer a.lock.Unlock()
		reads, missed := a.reads.Load(), a.missed.Load()
		missing = 0
		for _, w := range a.all {
			for i := range w.keys {
				k := &w.keys[i]
				found, answered := w.read(k)
				if !answered {
					return false
				}
				if !found && k.deleted.IsZero() && !k.unsure {
					missing++
				}
			}
		}
		a.reads.Store(reads)
		a.missed.Store(missed)
		return missing == 0
	})
	a.Logf("%s: %d reads, %d misses on the way, %d old values (and %d of keys stored by a list that had changed), all of %d keys as they should be",
		when, a.reads.Load(), a.missed.Load(), a.old.Load(), a.behind.Load(), versionedKeys)
}

// findsAllAfter waits until a scaling that began then is over, and finds every key.
func (a *writers) findsAllAfter(size int32, began time.Time) {
	a.Helper()
	a.settled(size)
	a.settle(int(size))
	a.atRest()
	a.look(fmt.Sprintf("%d members after %.0f s", size, time.Since(began).Seconds()))
}

// report prints the fates of the deletes.
func (a *writers) report() {
	a.Helper()
	a.lock.Lock()
	defer a.lock.Unlock()
	var longest time.Duration
	for _, w := range a.all {
		longest = max(longest, w.longest)
	}
	var windows []string
	for _, s := range a.moves {
		windows = append(windows, fmt.Sprintf("%.1f", s.to.Sub(s.from).Seconds()))
	}
	a.Logf("of %d deletes %d came while items moved (for %s s), and %d of these were undone, the last %.1f s after the list had changed or a member was killed",
		a.deletes.Load(), a.within.Load(), strings.Join(windows, ", "), a.undone.Load(), longest.Seconds())
}
