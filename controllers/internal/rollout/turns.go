package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

const (
	// defaultAtOnce is how many clusters are rolled out at once by an upgrade.
	defaultAtOnce = 3
	// turnInterval is how often a cluster that waits for its turn asks for it, should
	// nobody tell it.
	turnInterval = time.Minute
	// unreadyPatience is how long a cluster whose members aren't ready waits at least:
	// by then an operator that starts has seen those that are, and they go first.
	unreadyPatience = time.Minute
)

// Options of the turns.
type Options struct {
	// Cache has the Memcacheds. Live reads StatefulSets and Deployments from the API
	// server, once.
	Cache, Live client.Reader
	// AtOnce is how many clusters have a turn at the same time; 0 stands for 3.
	AtOnce int
	Clock  clock.PassiveClock
	// Wake tells a cluster to ask again. It must not wait, and must not ask itself.
	Wake func(cluster client.ObjectKey)
	// Tell is told how many roll-outs are under way, and how many clusters wait.
	Tell func(underWay, waiting int)
}

// Turns hands out the turns of roll-outs that an upgrade of the operator begins. Who has
// one is on the objects (Record); this is the same, and never behind: it has what this
// operator wrote, and what was there, read live, before it gave the first one.
type Turns struct {
	options Options
	mu      sync.Mutex
	// searching is held while turns are looked for that an earlier operator gave.
	searching sync.Mutex
	// turns that were given and not given back.
	turns map[client.ObjectKey]Mark
	// waiting are the clusters that wait for one.
	waiting map[client.ObjectKey]waiter
	// ended are the marks that this operator took off: a cache that is behind has them.
	ended map[client.ObjectKey]Mark
	// searched: the turns that an earlier operator gave are among them.
	searched bool
}

type waiter struct {
	// since when it waits, and when it asked last.
	since, asked time.Time
	// ready are all of its members.
	ready bool
}

// waits tells whether it still does: one that doesn't ask any more has other troubles.
func (w waiter) waits(now time.Time) bool { return now.Sub(w.asked) < 3*turnInterval }

// NewTurns returns turns of which none is given yet.
func NewTurns(options Options) *Turns {
	return &Turns{
		options: options,
		turns:   map[client.ObjectKey]Mark{}, waiting: map[client.ObjectKey]waiter{}, ended: map[client.ObjectKey]Mark{},
	}
}

// Decision on the template of a cluster's members.
type Decision struct {
	// Record to write with the template.
	Record Record
	// Keep: the members keep the template that they have.
	Keep bool
	// Settled: the template is the wanted one, and nothing is under way.
	Settled bool
	// Why the members wait for their turn; empty if they don't.
	Why string
	// Again is when to decide again although nothing has changed; 0 stands for never.
	Again time.Duration

	// was is the mark before, or nil; began: this begins a roll-out by an upgrade.
	was   *Mark
	began bool
}

// Decide what becomes of the members' template: whether they are to have the wanted one
// now, or when it is their turn. It returns an error if it has to know of an earlier
// operator's turns, and can't read them.
func (t *Turns) Decide(ctx context.Context, key client.ObjectKey, m *Members) (*Decision, error) {
	was := ptr.Deref(m.Recorded, Record{})
	d := &Decision{Record: Record{Generation: m.Generation, Spec: m.Spec}, Keep: m.Kept}
	if m.Kept {
		d.Record = Record{Generation: was.Generation, Spec: was.Spec}
	} else if m.Recorded != nil && was.Spec == m.Spec && m.OtherSize {
		d.Record.Generation = was.Generation // it goes with the size, when that is applied
	}
	d.was = t.mark(key, m.Recorded)
	d.Record.Mark = d.was
	now := t.options.Clock.Now()
	switch Next(m, d.was, now) {
	case Apply:
		d.Record.Mark, d.Settled = nil, !m.Kept
	case GoOn:
		t.goOn(key, *d.was)
		if d.was.Unready {
			d.Again = max(0, d.was.Since.Add(UnreadyTime).Sub(now))
		}
	case Ask:
		var err error
		if d.Record.Mark, d.Why, err = t.turn(ctx, key, m.Ready); err != nil {
			return nil, err
		}
		d.began, d.Keep = d.Record.Mark != nil, d.Record.Mark == nil
		if d.Why != "" {
			d.Again = turnInterval
		}
	}
	return d, nil
}

// Applied takes note that what was decided is written: if the mark is off, the turn is
// given back.
func (t *Turns) Applied(key client.ObjectKey, d *Decision) {
	if d.Record.Mark == nil && d.Why == "" {
		t.giveBack(key, d.was)
	}
}

// Refused takes note that what was decided is surely not written: a roll-out that would
// have begun by it has not.
func (t *Turns) Refused(key client.ObjectKey, d *Decision) {
	if d.began {
		t.giveBack(key, nil)
	}
}

// Forget a cluster that is gone.
func (t *Turns) Forget(key client.ObjectKey) {
	t.giveBack(key, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ended, key) // a cluster that is deleted may never show that its mark is off
}

// tell how many have a turn and wait for one.
func (t *Turns) tell() { t.options.Tell(len(t.turns), len(t.waiting)) }

// mark of the cluster's roll-out: the one on its object, or the one that this operator
// wrote, and the cache doesn't have yet.
func (t *Turns) mark(key client.ObjectKey, recorded *Record) *Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, isEnded := t.ended[key]
	switch {
	case recorded == nil || recorded.Mark == nil:
		delete(t.ended, key)
	case !isEnded || ended != *recorded.Mark:
		return recorded.Mark
	}
	if mark, ok := t.turns[key]; ok {
		return &mark
	}
	return nil
}

// goOn keeps that the cluster has a turn.
func (t *Turns) goOn(key client.ObjectKey, mark Mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(key, mark)
}

func (t *Turns) give(key client.ObjectKey, mark Mark) {
	t.turns[key] = mark
	delete(t.waiting, key)
}

// turn asks for the cluster's turn, whose members are ready or not. It returns the mark
// of its roll-out, or why it has to wait.
func (t *Turns) turn(ctx context.Context, key client.ObjectKey, ready bool) (*Mark, string, error) {
	if err := t.findTurns(ctx); err != nil {
		return nil, "", err
	}
	now := t.options.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.tell()
	since := now
	if w, waits := t.waiting[key]; waits {
		since = w.since
	}
	t.waiting[key] = waiter{since, now, ready}
	if !ready && (now.Sub(since) < unreadyPatience || t.someReady(now)) {
		t.callNext(ctx, key)
		return nil, "the operator's version changes the members; not all of them are ready, and clusters whose members are go first", nil
	}
	limit := cmp.Or(t.options.AtOnce, defaultAtOnce)
	if n := t.underWay(ctx); n >= limit {
		return nil, fmt.Sprintf("the operator's version changes the members; %d other clusters go first, and %d may at once", n, limit), nil
	}
	mark := Mark{Since: now.UTC().Truncate(time.Second), Unready: !ready}
	t.give(key, mark)
	return &mark, "", nil
}

func (t *Turns) someReady(now time.Time) bool {
	for _, w := range t.waiting {
		if w.ready && w.waits(now) {
			return true
		}
	}
	return false
}

// underWay is how many roll-outs hold up the next one. That of a cluster which is
// paused, or on its way out, or gone, does not.
func (t *Turns) underWay(ctx context.Context) int {
	n := 0
	for key, mark := range t.turns {
		cluster := &cachev1alpha1.Memcached{}
		err := t.options.Cache.Get(ctx, key, cluster)
		out := apierrors.IsNotFound(err) || err == nil && (cluster.Spec.Paused || cluster.DeletionTimestamp != nil)
		if !out && !mark.Over(t.options.Clock.Now()) {
			n++
		}
	}
	return n
}

// findTurns adds those that an earlier operator gave, once: the cache may be behind.
// Clusters that this operator doesn't watch have turns of their own.
func (t *Turns) findTurns(ctx context.Context) error {
	t.searching.Lock()
	defer t.searching.Unlock()
	t.mu.Lock()
	looked := t.searched
	t.mu.Unlock()
	if looked {
		return nil
	}
	found := map[client.ObjectKey]Mark{}
	if err := t.lookForTurns(ctx, found); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, mark := range found {
		if _, since := t.ended[key]; !since {
			t.give(key, mark)
		}
	}
	t.searched = true
	return nil
}

func (t *Turns) lookForTurns(ctx context.Context, found map[client.ObjectKey]Mark) error {
	var clusters cachev1alpha1.MemcachedList
	if err := t.options.Cache.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	watched, namespaces := map[client.ObjectKey]bool{}, map[string]bool{}
	for i := range clusters.Items {
		watched[client.ObjectKeyFromObject(&clusters.Items[i])] = true
		namespaces[clusters.Items[i].Namespace] = true
	}
	for _, kind := range []string{"StatefulSet", "Deployment"} {
		err := t.lookForTurnsOf(ctx, kind, watched, found)
		if apierrors.IsForbidden(err) { // an operator for some namespaces
			err = nil
			for namespace := range namespaces {
				err = errors.Join(err, t.lookForTurnsOf(ctx, kind, watched, found, client.InNamespace(namespace)))
			}
		}
		if err != nil {
			return fmt.Errorf("look for roll-outs under way: %w", err)
		}
	}
	return nil
}

func (t *Turns) lookForTurnsOf(
	ctx context.Context, kind string, watched map[client.ObjectKey]bool, marks map[client.ObjectKey]Mark, options ...client.ListOption,
) error {
	const page = 200
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind + "List"))
	for more := true; more; more = list.Continue != "" {
		options := append(slices.Clone(options), client.HasLabels{cachev1alpha1.LabelCluster}, client.Limit(page), client.Continue(list.Continue))
		if err := t.options.Live.List(ctx, list, options...); err != nil {
			return err
		}
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			record := Parse(list.Items[i].Annotations[cachev1alpha1.AnnotationTemplate])
			if record != nil && record.Mark != nil && watched[key] {
				marks[key] = *record.Mark
			}
		}
	}
	return nil
}

// giveBack gives the cluster's turn back, or its place among those that wait for one, and
// tells who is next. The mark is the one that was taken off, or nil.
func (t *Turns) giveBack(key client.ObjectKey, mark *Mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, had := t.turns[key]
	_, waited := t.waiting[key]
	if !had && !waited {
		return
	}
	if mark != nil {
		t.ended[key] = *mark
	}
	delete(t.turns, key)
	delete(t.waiting, key)
	t.tell()
	t.callNext(context.Background(), key)
}

// StandAside lets others go before a cluster that a person has paused.
func (t *Turns) StandAside(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, had := t.turns[key]
	_, waited := t.waiting[key]
	delete(t.waiting, key)
	if had || waited {
		t.callNext(context.Background(), key)
	}
}

// callNext tells as many clusters as there are turns to ask again: those whose members
// are ready, or, if no such one waits, those that have been patient; of these the ones that
// have waited longest. One that would not get a turn is not called: it would call others.
func (t *Turns) callNext(ctx context.Context, but client.ObjectKey) {
	free := cmp.Or(t.options.AtOnce, defaultAtOnce) - t.underWay(ctx)
	if free <= 0 {
		return
	}
	now := t.options.Clock.Now()
	unready := !t.someReady(now)
	var next []client.ObjectKey
	for key, w := range t.waiting {
		if key != but && w.waits(now) && (w.ready || unready && now.Sub(w.since) >= unreadyPatience) {
			next = append(next, key)
		}
	}
	slices.SortFunc(next, func(a, b client.ObjectKey) int {
		return t.waiting[a].since.Compare(t.waiting[b].since)
	})
	for _, key := range next[:min(free, len(next))] {
		t.options.Wake(key)
	}
}
