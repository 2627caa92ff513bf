package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	meta "example.com/memcached-operator/drainer/memcache"
)

// Steady has the results of an application that knows its own values exactly. Each of its workers has keys of
// its own. So a worker reads its last written value, unless the cache has lost that value, or returns an
// older one.
type Steady struct {
	Requests int64
	// Misses counts keys that should be there, Old values that are not the last one, Undone values that were
	// deleted.
	Misses, Old, Undone, Errors int64
	// Resent is how many requests were sent again; see StartRedialing.
	Resent int64
	// Slowest is how long the slowest request took.
	Slowest time.Duration
	// Examples are wrong answers, ten at most.
	Examples []string
}

// Wrong is how many answers were wrong.
func (s *Steady) Wrong() int64 { return s.Misses + s.Old + s.Undone + s.Errors }

const (
	steadyWorkers = 8
	// There are few keys, so that each is asked for again and again although the load is small.
	steadyKeys  = 40 // for each worker
	steadyPause = 50 * time.Millisecond
	// steadyLeast is how many requests are made before it stops.
	steadyLeast = 1000
)

// StartSteady starts such an application. Its library knows one address; dialer has its TLS and login. stop
// ends it when it has made steadyLeast requests, or one answer was wrong.
func StartSteady(dialer meta.Dialer, address string) (stop func() Steady) {
	return startSteady(dialer.DialContext, address)
}

// StartRedialing starts an application whose library also dials anew if the server has closed the connection
// between two requests, and sends the request without an answer again. (gomemcache itself returns an error,
// mostly EOF.)
func StartRedialing(dialer meta.Dialer, address string) (stop func() Steady) {
	r := &redialer{dial: dialer.DialContext}
	end := startSteady(r.DialContext, address)
	return func() Steady {
		saw := end()
		saw.Resent = r.resent.Load()
		return saw
	}
}

func startSteady(dial func(ctx context.Context, network, address string) (net.Conn, error), address string) (stop func() Steady) {
	client := memcache.New(address)
	client.DialContext = dial
	client.MaxIdleConns, client.Timeout = steadyWorkers, patience
	ctx, cancel := context.WithCancel(context.Background())
	s := &steady{client: client}
	var running sync.WaitGroup
	for n := range steadyWorkers {
		running.Go(func() {
			w := &steadyWorker{steady: s, name: fmt.Sprintf("steady:%d", n), random: rand.New(rand.NewPCG(1, uint64(n))), numbers: make([]uint64, steadyKeys), unsure: map[string]bool{}}
			for ctx.Err() == nil {
				w.request()
				time.Sleep(steadyPause)
			}
		})
	}
	return func() Steady {
		for s.few() {
			time.Sleep(steadyPause)
		}
		cancel()
		running.Wait()
		_ = client.Close()
		return s.saw
	}
}

type steady struct {
	client *memcache.Client

	mu  sync.Mutex
	saw Steady
}

// few tells whether there were few requests so far, and no wrong answer.
func (s *steady) few() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saw.Requests < steadyLeast && s.saw.Wrong() == 0
}

// note counts one request, and its wrong answer in count, which is nil if the answer was right.
func (s *steady) note(began time.Time, count *int64, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saw.Requests++
	s.saw.Slowest = max(s.saw.Slowest, time.Since(began))
	if count != nil {
		*count++
		if len(s.saw.Examples) < 10 {
			s.saw.Examples = append(s.saw.Examples, began.UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
		}
	}
}

type steadyWorker struct {
	*steady
	name   string
	random *rand.Rand
	// numbers are the values; 0 is none. unsure are the keys whose last write got no answer: their next request
	// is a set.
	numbers []uint64
	unsure  map[string]bool
}

// request makes a random request. Half of them are reads.
func (w *steadyWorker) request() {
	i := w.random.IntN(len(w.numbers))
	key, n := fmt.Sprintf("%s:%d", w.name, i), &w.numbers[i]
	began := time.Now()
	what := w.random.IntN(10)
	if w.unsure[key] {
		what = 0
	}
	switch what {
	case 0, 1:
		*n += 1 + w.random.Uint64N(1000)
		w.wrote(began, key, w.client.Set(&memcache.Item{Key: key, Value: strconv.AppendUint(nil, *n, 10)}), nil)
	case 2:
		err := w.client.Add(&memcache.Item{Key: key, Value: []byte("1")})
		w.wrote(began, key, err, unless(*n == 0, memcache.ErrNotStored))
		*n = max(*n, 1)
	case 3:
		got, err := w.client.Increment(key, 1)
		w.wrote(began, key, err, unless(*n != 0, memcache.ErrCacheMiss))
		if *n != 0 && err == nil {
			*n++
			w.compare(began, key, got, *n)
		}
	case 4:
		w.wrote(began, key, w.client.Delete(key), unless(*n != 0, memcache.ErrCacheMiss))
		*n = 0
	default:
		w.read(began, key, *n)
	}
}

func unless(holds bool, err error) error {
	if holds {
		return nil
	}
	return err
}

// wrote checks the answer to a write. If the write found no item, but there is one, that is a miss; if it found
// an item, but there is none, that is an undone delete.
func (w *steadyWorker) wrote(began time.Time, key string, got, want error) {
	delete(w.unsure, key)
	switch {
	case errors.Is(got, want):
		w.note(began, nil, "")
	case errors.Is(got, memcache.ErrCacheMiss), got == nil && errors.Is(want, memcache.ErrNotStored):
		w.note(began, &w.saw.Misses, "%s is missing", key)
	case errors.Is(got, memcache.ErrNotStored), got == nil:
		w.note(began, &w.saw.Undone, "%s is there", key)
	default:
		w.unsure[key] = true
		w.note(began, &w.saw.Errors, "%s: %v", key, got)
	}
}

func (w *steadyWorker) read(began time.Time, key string, want uint64) {
	it, err := w.client.Get(key)
	switch {
	case err == nil:
		n, err := strconv.ParseUint(string(it.Value), 10, 64)
		if err != nil {
			w.note(began, &w.saw.Errors, "%s is %q", key, it.Value)
			return
		}
		w.compare(began, key, n, want)
	case errors.Is(err, memcache.ErrCacheMiss) && want == 0:
		w.note(began, nil, "")
	case errors.Is(err, memcache.ErrCacheMiss):
		w.note(began, &w.saw.Misses, "%s is missing", key)
	default:
		w.note(began, &w.saw.Errors, "%s: %v", key, err)
	}
}

func (w *steadyWorker) compare(began time.Time, key string, got, want uint64) {
	switch {
	case got == want:
		w.note(began, nil, "")
	case want == 0:
		w.note(began, &w.saw.Undone, "%s is %d, and was deleted", key, got)
	default:
		w.note(began, &w.saw.Old, "%s is %d, not %d", key, got, want)
	}
}
