package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// The load is that of make bench-continuity.
const (
	lateRing      = "libmemcached-ketama-weighted"
	lateKeys      = 30_000
	lateRate      = 2000
	lateWorkers   = 16
	lateProcesses = 20
	latePatience  = 90 * time.Second
)

// BenchmarkLate measures on loopback how many items an application loses in a scaling: moves that follow
// clients, and moves that begin when the list changes. Each row takes up to a minute and a half: -bench Late
// -benchtime 1x.
func BenchmarkLate(b *testing.B) {
	spread := make([]time.Duration, lateProcesses)
	for i := range spread {
		spread[i] = time.Duration(i) * time.Minute / lateProcesses
	}
	for _, sizes := range [][2]int{{3, 2}, {2, 3}} {
		for _, list := range []struct {
			name string
			late []time.Duration
		}{{"at once", []time.Duration{0}}, {"20 s late", []time.Duration{20 * time.Second}}, {"60 s late", []time.Duration{time.Minute}}, {"spread", spread}} {
			for _, zipf := range []bool{false, true} {
				for _, follow := range []bool{false, true} {
					b.Run(fmt.Sprintf("%d to %d, %s, zipf %t, follow %t", sizes[0], sizes[1], list.name, zipf, follow), func(b *testing.B) {
						for range b.N {
							s := newScaling(b, sizes, list.late, zipf)
							s.run(follow)
						}
					})
				}
			}
		}
	}
}

// scaling is an application, while the number of members changes.
type scaling struct {
	b       *testing.B
	members []*memcachedtest.Mapped
	list    []routing.Server
	// rings are the one before and the one after, sizes their numbers of members.
	rings [2]routing.Owner
	sizes [2]int
	zipf  bool
	// late has for each process how late it is; changed is when the list changed, in Unix nanoseconds, 0 not yet.
	late    []time.Duration
	changed atomic.Int64

	reads, lost, old, undone atomic.Int64
}

func newScaling(b *testing.B, sizes [2]int, late []time.Duration, zipf bool) *scaling {
	b.Helper()
	s := &scaling{b: b, sizes: sizes, late: late, zipf: zipf}
	var addresses []string
	for range 3 {
		s.members = append(s.members, startMapped(b, "-m", "64"))
		addresses = append(addresses, s.members[len(s.members)-1].Address())
	}
	s.list = drainertest.MustParse(b, addresses)
	for i := range s.list {
		s.list[i].Name = fmt.Sprintf("cache-%d:11211", i) // the ring is the same in each run
	}
	for i, n := range sizes {
		var err error
		if s.rings[i], err = routing.New(lateRing, s.list[:n]); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func (s *scaling) run(follow bool) {
	ctx, stop := context.WithCancel(s.b.Context())
	var filled, working sync.WaitGroup
	began := make(chan struct{})
	filled.Add(lateWorkers)
	for n := range lateWorkers {
		w := s.worker(n)
		working.Go(func() {
			w.fill()
			filled.Done()
			<-began
			w.work(ctx)
		})
	}
	filled.Wait()
	close(began)
	start := time.Now()
	end := s.move(follow)
	last := slices.Max(s.late) + 5*time.Second
	time.Sleep(time.Until(time.Unix(0, s.changed.Load()).Add(last)))
	took := time.Since(start)
	stop()
	working.Wait()
	s.b.ReportMetric(float64(s.lost.Load())/(float64(s.reads.Load())/took.Seconds()), "hits-lost-s")
	s.b.ReportMetric(float64(s.old.Load()), "old-values")
	s.b.ReportMetric(float64(s.undone.Load()), "undone-deletes")
	s.b.ReportMetric(end.Seconds(), "moved-after-s")
}

// move prepares movers, changes the list, and returns how long after that they ended.
func (s *scaling) move(follow bool) time.Duration {
	file := filepath.Join(s.b.TempDir(), "begin")
	var prepared, moves sync.WaitGroup
	for i := range s.sizes[0] {
		if s.sizes[1] < s.sizes[0] && i < s.sizes[1] {
			continue // no key moves between members that stay
		}
		var once sync.Once
		prepared.Add(1)
		e := &Engine{SourceID: "the-claim", Owner: s.rings[1], Servers: s.list[:s.sizes[1]], UnreachableTimeout: wait.Long, Log: io.Discard,
			Export: &Export{Address: exporting(s.b, s.members[i]), Client: lateRing},
			Begin:  &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: follow},
			Progress: func(p contract.Progress) {
				if p.Phase == contract.PhasePrepared {
					once.Do(prepared.Done)
				}
			}}
		moves.Go(func() {
			var r contract.Receipt
			if i < s.sizes[1] {
				r = e.MoveFrom(s.b.Context(), i, s.b.TempDir(), latePatience)
			} else {
				r = e.MoveFromLeaving(s.b.Context(), s.list[i], s.b.TempDir(), latePatience)
			}
			if r.Reason != "" {
				s.b.Errorf("%+v", r)
			}
		})
	}
	prepared.Wait()
	changed := time.Now()
	s.changed.Store(changed.UnixNano())
	time.Sleep(150 * time.Millisecond) // until a kubelet shows a mover the annotation of its pod
	if err := os.WriteFile(file, []byte("2"), 0o600); err != nil {
		s.b.Fatal(err)
	}
	moves.Wait()
	return time.Since(changed)
}

// lateWorker makes requests, each as one of the application's processes.
type lateWorker struct {
	*scaling
	random *rand.Rand
	conns  []*memcache.Conn
	keys   []lateKey
	// sums has, for each key, the sum of the weights up to this key.
	sums []float64
}

type lateKey struct {
	name    string
	version int
	deleted bool
}

func (s *scaling) worker(n int) *lateWorker {
	w := &lateWorker{scaling: s, random: rand.New(rand.NewPCG(1, uint64(n)))}
	for _, m := range s.members {
		w.conns = append(w.conns, m.Dial())
	}
	sum := 0.0
	for k := n; k < lateKeys; k += lateWorkers {
		w.keys = append(w.keys, lateKey{name: fmt.Sprintf("key:%d", k), version: 1})
		weight := 1.0
		if s.zipf {
			weight = math.Pow(float64(len(w.keys)), -0.99)
		}
		sum += weight
		w.sums = append(w.sums, sum)
	}
	return w
}

func (w *lateWorker) fill() {
	for i := range w.keys {
		w.must(w.store(0, &w.keys[i]))
	}
}

func (w *lateWorker) must(err error) {
	if err != nil {
		w.b.Error(err)
	}
}

// work makes requests at a fixed rate.
func (w *lateWorker) work(ctx context.Context) {
	const pause = time.Second * lateWorkers / lateRate
	for due := time.Now().Add(time.Duration(w.random.IntN(int(pause)))); ctx.Err() == nil; due = due.Add(pause) {
		time.Sleep(time.Until(due))
		i, _ := slices.BinarySearch(w.sums, w.random.Float64()*w.sums[len(w.sums)-1])
		k, process := &w.keys[min(i, len(w.keys)-1)], w.random.IntN(len(w.late))
		switch n := w.random.IntN(100); {
		case n < 2:
			w.must(w.remove(process, k))
		case n < 10:
			k.version++
			w.must(w.store(process, k))
		default:
			w.must(w.read(process, k))
		}
	}
}

// at returns where a process looks for a key.
func (w *lateWorker) at(process int, k *lateKey) *memcache.Conn {
	ring := w.rings[0]
	if changed := w.changed.Load(); changed != 0 && time.Since(time.Unix(0, changed)) >= w.late[process] {
		ring = w.rings[1]
	}
	return w.conns[ring.Owner([]byte(k.name))]
}

func (w *lateWorker) store(process int, k *lateKey) error {
	value := fmt.Appendf(make([]byte, 0, 200), "%d ", k.version)
	value = append(value, bytes.Repeat([]byte("v"), cap(value)-len(value))...)
	answer, err := ask(w.at(process, k), fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", k.name, len(value), value))
	if k.deleted = false; err == nil && answer != "STORED" {
		err = errors.New(answer)
	}
	return err
}

func (w *lateWorker) remove(process int, k *lateKey) error {
	k.deleted = true
	_, err := ask(w.at(process, k), "delete "+k.name+"\r\n")
	return err
}

func (w *lateWorker) read(process int, k *lateKey) error {
	v, err := w.at(process, k).Get([]byte(k.name))
	switch {
	case err != nil:
		return err
	case v == nil && k.deleted:
		return nil
	case v == nil:
		w.reads.Add(1)
		w.lost.Add(1)
		return w.store(process, k)
	case k.deleted:
		w.undone.Add(1)
		return w.remove(process, k)
	}
	w.reads.Add(1)
	number, _, _ := bytes.Cut(v.Data, []byte(" "))
	if version, err := strconv.Atoi(string(number)); err != nil || version < k.version {
		w.old.Add(1)
		return errors.Join(err, w.store(process, k))
	}
	return nil
}
