package ask

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// samplerOptions are those of a sampler of targets T that answer with a V.
type samplerOptions[T comparable, V any] struct {
	// Ask asks a target, and has to return when the context ends.
	Ask func(ctx context.Context, target T) (V, error)
	// Changed is called when there is news of a cluster. Changed must not block.
	Changed func(cluster types.NamespacedName)
	// Timeout of a question.
	Timeout time.Duration
	// Interval between two questions to a target that answers, and the least time between
	// two news of a cluster.
	Interval time.Duration
	// Soon tells whether a reconcile waits for an answer that will change soon: then SoonInterval replaces
	// Interval, until a target has been wanted for SoonFor. A nil Soon is always false.
	Soon                  func(V) bool
	SoonInterval, SoonFor time.Duration
	// Together: a cluster gets news only when all its targets have answered or failed.
	Together bool
	// Workers is how many ask at once; PerCluster how many of them for one cluster.
	Workers, PerCluster int
	// Targets is how many targets are remembered. Further ones are never asked.
	Targets int
	Clock   clock.WithTicker
}

// sample has the known facts about a target.
type sample[V any] struct {
	// Value of the last answer; the zero value if Err says why there is none.
	Value V
	Err   string
	// Known: the target has answered or failed.
	Known bool
	// Since is when the target was first wanted.
	Since time.Time
}

// slowest is the longest pause between two questions to a target that doesn't answer, in intervals.
const slowest = 16

// tooMany is the Err of a target that is never asked.
const tooMany = "too many are asked already"

// sampler asks, beside the reconciles, for facts that no watch has: how far a drainer is, how full a member
// is. A reconcile names the facts that it wants, and gets the known ones. When these change, the cluster is
// reconciled again. So no reconcile waits for a dead node.
//
// Everything is bounded: the time of a question, how many are asked at once, in all and for each cluster,
// how many targets are remembered, and how often a cluster gets news. A target that is no longer wanted is
// forgotten.
//
// A nil sampler knows nothing.
type sampler[T comparable, V any] struct {
	options samplerOptions[T, V]
	asks    workqueue.TypedDelayingInterface[question[T]]
	news    workqueue.TypedDelayingInterface[types.NamespacedName]

	mu       sync.Mutex
	clusters map[types.NamespacedName]*cluster[T, V]
	targets  int
}

type question[T comparable] struct {
	cluster types.NamespacedName
	target  T
}

type cluster[T comparable, V any] struct {
	targets map[T]*target[V]
	// asking is how many of its targets are being asked, or are next (turns). waiting are
	// those that are due and have to wait, in order.
	asking  int
	turns   map[question[T]]bool
	waiting []question[T]
	// changed: something is new since the last news, which was sent at told. telling: the
	// next news is scheduled.
	changed, telling bool
	told             time.Time
	// soon: a reconcile waits for news.
	soon bool
}

type target[V any] struct {
	sample[V]
	due      time.Time
	failures int
}

// newSampler returns a sampler that asks after Start.
func newSampler[T comparable, V any](options samplerOptions[T, V]) *sampler[T, V] {
	return &sampler[T, V]{
		options:  options,
		asks:     workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[question[T]]{Clock: options.Clock}),
		news:     workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: options.Clock}),
		clusters: map[types.NamespacedName]*cluster[T, V]{},
	}
}

// Want replaces the targets of a cluster that are asked from now on, and returns their known answers.
func (s *sampler[T, V]) Want(key types.NamespacedName, targets ...T) map[T]sample[V] {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[key]
	if c == nil && len(targets) == 0 {
		return nil
	}
	if c == nil {
		c = &cluster[T, V]{targets: map[T]*target[V]{}, turns: map[question[T]]bool{}}
		s.clusters[key] = c
	}
	for t := range c.targets {
		if !slices.Contains(targets, t) {
			delete(c.targets, t)
			s.targets--
		}
	}
	if len(targets) == 0 {
		delete(s.clusters, key)
		return nil
	}
	known := make(map[T]sample[V], len(targets))
	for _, t := range targets {
		known[t] = s.want(key, c, t)
	}
	return known
}

func (s *sampler[T, V]) want(key types.NamespacedName, c *cluster[T, V], t T) sample[V] {
	if c.targets[t] == nil {
		now := s.options.Clock.Now()
		if s.targets >= s.options.Targets {
			return sample[V]{Err: tooMany, Known: true, Since: now}
		}
		c.targets[t] = &target[V]{sample: sample[V]{Since: now}, due: now}
		s.targets++
		s.asks.Add(question[T]{key, t})
	}
	return c.targets[t].sample
}

// Start asks until the context ends.
func (s *sampler[T, V]) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for range s.options.Workers {
		running.Go(func() {
			for s.askNext(ctx) {
			}
		})
	}
	running.Go(func() {
		for s.tellNext() {
		}
	})
	<-ctx.Done()
	s.asks.ShutDown()
	s.news.ShutDown()
	running.Wait()
	return nil
}

func (s *sampler[T, V]) askNext(ctx context.Context) bool {
	q, shutdown := s.asks.Get()
	if shutdown {
		return false
	}
	defer s.asks.Done(q)
	c := s.begin(q)
	if c == nil {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	value, err := s.options.Ask(limited, q.target)
	if err != nil {
		s.end(q, c, sample[V]{Err: err.Error()})
	} else {
		s.end(q, c, sample[V]{Value: value})
	}
	return true
}

// begin returns the cluster of a target that is to be asked now, or nil.
func (s *sampler[T, V]) begin(q question[T]) *cluster[T, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[q.cluster]
	if c == nil {
		return nil // forgotten
	}
	hasTurn := c.turns[q]
	delete(c.turns, q)
	t := c.targets[q.target]
	var wait time.Duration
	if t != nil {
		wait = t.due.Sub(s.options.Clock.Now())
	}
	switch {
	case t == nil || wait > 0:
		if wait > 0 {
			s.asks.AddAfter(q, wait) // it was forgotten meanwhile, and is wanted again
		}
		if hasTurn {
			s.pass(c)
		}
		return nil
	case hasTurn:
	case c.asking >= s.options.PerCluster:
		c.waiting = append(c.waiting, q)
		return nil
	default:
		c.asking++
	}
	return c
}

// end stores the answer if it is still wanted, and schedules the next question. asked is
// the cluster that the question was for.
func (s *sampler[T, V]) end(q question[T], asked *cluster[T, V], answer sample[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[q.cluster]
	if c == nil {
		return
	}
	if c == asked {
		s.pass(c)
	}
	t := c.targets[q.target]
	if t == nil {
		return
	}
	interval := s.options.Interval
	now := s.options.Clock.Now()
	soon := func(v V) bool {
		return s.options.Soon != nil && s.options.Soon(v) && now.Sub(t.Since) < s.options.SoonFor
	}
	if t.failures++; answer.Err == "" {
		if t.failures = 0; soon(answer.Value) {
			interval = s.options.SoonInterval
		}
	} else {
		interval = min(interval<<min(t.failures-1, slowest), slowest*interval)
	}
	answer.Known, answer.Since = true, t.Since
	if !reflect.DeepEqual(answer, t.sample) {
		c.changed, c.soon = true, c.soon || soon(t.Value)
	}
	t.sample, t.due = answer, now.Add(interval)
	s.asks.AddAfter(q, interval)
	s.tell(q.cluster, c)
}

// pass gives a free turn to the target that has waited longest. Meanwhile the turn stays counted in asking,
// so that no other target takes it.
func (s *sampler[T, V]) pass(c *cluster[T, V]) {
	if len(c.waiting) == 0 {
		c.asking--
		return
	}
	q := c.waiting[0]
	c.waiting, c.turns[q] = c.waiting[1:], true
	s.asks.Add(q)
}

// tell schedules news of the cluster, if there is any.
func (s *sampler[T, V]) tell(key types.NamespacedName, c *cluster[T, V]) {
	if !c.changed || c.telling && !c.soon || s.options.Together && !c.complete() {
		return
	}
	c.telling = true
	interval := s.options.Interval
	if c.soon {
		interval = s.options.SoonInterval
	}
	s.news.AddAfter(key, c.told.Add(interval).Sub(s.options.Clock.Now()))
}

func (c *cluster[T, V]) complete() bool {
	for _, t := range c.targets {
		if !t.Known {
			return false
		}
	}
	return true
}

func (s *sampler[T, V]) tellNext() bool {
	key, shutdown := s.news.Get()
	if shutdown {
		return false
	}
	defer s.news.Done(key)
	if s.newsOf(key) {
		s.options.Changed(key)
	}
	return true
}

// newsOf tells whether there is news of the cluster that may be sent now.
func (s *sampler[T, V]) newsOf(key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[key]
	if c == nil || !c.telling {
		return false
	}
	c.telling, c.changed, c.soon, c.told = false, false, false, s.options.Clock.Now()
	return true
}
