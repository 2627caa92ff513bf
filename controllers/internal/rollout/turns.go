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
	// defaultAtOnce is how many clusters an upgrade rolls out at once.
	defaultAtOnce = 3
	// turnInterval is how often a waiting cluster asks for its turn, if Wake doesn't call it
	// before.
	turnInterval = time.Minute
	// unreadyPatience is how long a cluster whose members aren't ready waits at least. In this time
	// a starting operator sees the clusters whose members are ready, which go first.
	unreadyPatience = time.Minute
)

// Options are the options of Turns.
type Options struct {
	// Cache has the Memcacheds. Live reads StatefulSets and Deployments once.
	Cache, Live client.Reader
	// Routers: these are the turns of clusters' routers, not of their members.
	Routers bool
	// AtOnce is how many clusters have a turn at the same time; 0 stands for 3.
	AtOnce int
	Clock  clock.PassiveClock
	// Wake makes a cluster ask again. Wake must not block, and must not call Turns.
	Wake func(cluster client.ObjectKey)
	// Tell is called with how many roll-outs are under way, and how many clusters wait.
	Tell func(underWay, waiting int)
}

// Turns gives turns for roll-outs that an upgrade begins. The objects record the turns, too
// (Record), but the cache of them may be stale. Turns has the records that this operator wrote, and
// those that it read live before it gave the first turn.
type Turns struct {
	options Options
	mu      sync.Mutex
	// searching serializes the search for turns that an earlier operator gave.
	searching sync.Mutex
	// turns has the turns that were given, and not given back.
	turns map[client.ObjectKey]Turn
	// waiting has the clusters that wait for a turn.
	waiting map[client.ObjectKey]waiter
	// ended has the turns that this operator removed. A stale cache still has them.
	ended map[client.ObjectKey]Turn
	// searched: turns also has the turns that an earlier operator gave.
	searched bool
}

type waiter struct {
	// since is when the cluster began to wait, asked when it last asked.
	since, asked time.Time
	// ready: all members of the cluster are ready.
	ready bool
}

// waits tells whether the cluster still waits. A cluster that no longer asks has other problems.
func (w waiter) waits(now time.Time) bool { return now.Sub(w.asked) < 3*turnInterval }

// NewTurns returns Turns with no turn given yet.
func NewTurns(options Options) *Turns {
	return &Turns{
		options: options,
		turns:   map[client.ObjectKey]Turn{}, waiting: map[client.ObjectKey]waiter{}, ended: map[client.ObjectKey]Turn{},
	}
}

// Decision is the decision about the template of a cluster's members.
type Decision struct {
	// Record is to be written with the template.
	Record Record
	// Keep: the members keep their present template.
	Keep bool
	// Settled: the template is as wanted, and no roll-out is under way.
	Settled bool
	// Why says why the members wait for their turn; empty if they don't wait.
	Why string
	// DueIn is after what time to decide again even if there is no event; 0 for never.
	DueIn time.Duration

	// was is the turn before, or nil. began: this decision begins the roll-out of an upgrade.
	was   *Turn
	began bool
}

// Decide decides whether the members get the wanted template now, or in their turn. Decide fails if it needs
// the turns that an earlier operator gave, and can't read them.
func (t *Turns) Decide(ctx context.Context, key client.ObjectKey, m *Members) (*Decision, error) {
	was := ptr.Deref(m.Recorded, Record{})
	d := &Decision{Record: Record{Generation: m.Generation, Spec: m.Spec}, Keep: m.Kept}
	if m.Kept {
		d.Record = Record{Generation: was.Generation, Spec: was.Spec}
	} else if m.Recorded != nil && was.Spec == m.Spec && m.OtherSize {
		d.Record.Generation = was.Generation // the generation is recorded only together with the spec's size
	}
	d.was = t.turnOf(key, m.Recorded)
	d.Record.Turn = d.was
	now := t.options.Clock.Now()
	switch Next(m, d.was, now) {
	case Apply:
		d.Record.Turn, d.Settled = nil, !m.Kept
	case GoOn:
		t.goOn(key, *d.was)
		if d.was.Unready {
			d.DueIn = max(0, d.was.Since.Add(UnreadyTime).Sub(now))
		}
	case Ask:
		var err error
		if d.Record.Turn, d.Why, err = t.take(ctx, key, m.Ready); err != nil {
			return nil, err
		}
		d.began, d.Keep = d.Record.Turn != nil, d.Record.Turn == nil
		if d.Why != "" {
			d.DueIn = turnInterval
		}
	}
	return d, nil
}

// Applied notes that the decision was written. If the write removed the turn, the turn is given
// back.
func (t *Turns) Applied(key client.ObjectKey, d *Decision) {
	if d.Record.Turn == nil && d.Why == "" {
		t.giveBack(key, d.was)
	}
}

// Refused notes that the decision was certainly not written, so a roll-out that it would have begun
// has not begun.
func (t *Turns) Refused(key client.ObjectKey, d *Decision) {
	if d.began {
		t.giveBack(key, nil)
	}
}

// Forget forgets a cluster that is gone.
func (t *Turns) Forget(key client.ObjectKey) {
	t.giveBack(key, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ended, key) // a deleted cluster may never show that its turn was removed
}

func (t *Turns) tell() { t.options.Tell(len(t.turns), len(t.waiting)) }

// turnOf is the turn of the cluster's roll-out: the recorded one, or our later write.
func (t *Turns) turnOf(key client.ObjectKey, recorded *Record) *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, isEnded := t.ended[key]
	switch {
	case recorded == nil || recorded.Turn == nil:
		delete(t.ended, key)
	case !isEnded || ended != *recorded.Turn:
		return recorded.Turn
	}
	if turn, ok := t.turns[key]; ok {
		return &turn
	}
	return nil
}

// goOn notes that the cluster has a turn.
func (t *Turns) goOn(key client.ObjectKey, turn Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(key, turn)
}

func (t *Turns) give(key client.ObjectKey, turn Turn) {
	t.turns[key] = turn
	delete(t.waiting, key)
}

// take asks for the cluster's turn, and returns the turn, or why the cluster has to wait.
func (t *Turns) take(ctx context.Context, key client.ObjectKey, ready bool) (*Turn, string, error) {
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
		return nil, fmt.Sprintf("the operator's version changes the %[1]s; clusters whose %[1]s are all ready go first", t.what()), nil
	}
	limit := cmp.Or(t.options.AtOnce, defaultAtOnce)
	if n := t.underWay(ctx); n >= limit {
		return nil, fmt.Sprintf("the operator's version changes the %s; %d other clusters go first, at most %d at once", t.what(), n, limit), nil
	}
	turn := Turn{Since: now.UTC().Truncate(time.Second), Unready: !ready}
	t.give(key, turn)
	return &turn, "", nil
}

// what names the pods that are rolled out: members or routers.
func (t *Turns) what() string {
	if t.options.Routers {
		return "routers"
	}
	return "members"
}

func (t *Turns) someReady(now time.Time) bool {
	for _, w := range t.waiting {
		if w.ready && w.waits(now) {
			return true
		}
	}
	return false
}

// underWay is how many roll-outs delay the next one. A cluster that is paused, being deleted or
// gone delays no other.
func (t *Turns) underWay(ctx context.Context) int {
	n := 0
	for key, turn := range t.turns {
		cluster := &cachev1alpha1.Memcached{}
		err := t.options.Cache.Get(ctx, key, cluster)
		out := apierrors.IsNotFound(err) || err == nil && (cluster.Spec.Paused || cluster.DeletionTimestamp != nil)
		if !out && !turn.Over(t.options.Clock.Now()) {
			n++
		}
	}
	return n
}

// findTurns adds, once, the turns that an earlier operator gave, by live reads because the cache
// may be stale. Clusters that this operator doesn't watch are left out.
func (t *Turns) findTurns(ctx context.Context) error {
	t.searching.Lock()
	defer t.searching.Unlock()
	t.mu.Lock()
	looked := t.searched
	t.mu.Unlock()
	if looked {
		return nil
	}
	found := map[client.ObjectKey]Turn{}
	if err := t.lookForTurns(ctx, found); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, turn := range found {
		if _, since := t.ended[key]; !since {
			t.give(key, turn)
		}
	}
	t.searched = true
	return nil
}

func (t *Turns) lookForTurns(ctx context.Context, found map[client.ObjectKey]Turn) error {
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
	ctx context.Context, kind string, watched map[client.ObjectKey]bool, turns map[client.ObjectKey]Turn, options ...client.ListOption,
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
			labels := list.Items[i].Labels
			if routers := labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentRouter; routers != t.options.Routers {
				continue
			}
			if t.options.Routers {
				key.Name = labels[cachev1alpha1.LabelCluster]
			}
			record := Parse(list.Items[i].Annotations[cachev1alpha1.AnnotationTemplate])
			if record != nil && record.Turn != nil && watched[key] {
				turns[key] = *record.Turn
			}
		}
	}
	return nil
}

// giveBack gives back the cluster's turn, or its place among the waiting clusters, and wakes the
// next one. turn is the turn that was removed, or nil.
func (t *Turns) giveBack(key client.ObjectKey, turn *Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, had := t.turns[key]
	_, waited := t.waiting[key]
	if !had && !waited {
		return
	}
	if turn != nil {
		t.ended[key] = *turn
	}
	delete(t.turns, key)
	delete(t.waiting, key)
	t.tell()
	t.callNext(context.Background(), key)
}

// StandAside lets other clusters go before a paused one.
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

// callNext wakes as many clusters as there are free turns: first those whose members are ready and, if there
// are none, those that have waited for unreadyPatience; the longest waiting first. A cluster that would get
// no turn is not woken, because it would wake others.
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
