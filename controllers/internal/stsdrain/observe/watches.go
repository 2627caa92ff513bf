package observe

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/memcached-operator/controllers/internal/trim"
)

// Watches has the watches of all StatefulSetDrains.
type Watches struct {
	clients kubernetes.Interface
	changed func(types.NamespacedName)

	mu sync.Mutex
	// running is the context of all watches; nil before Start and after its end.
	running context.Context
	of      map[types.NamespacedName]*pair
	// open counts the watches that have not ended.
	open sync.WaitGroup
	// count is the number of open watches.
	count atomic.Int32
}

// pair has the two watches of one StatefulSetDrain.
type pair struct {
	owner types.UID
	set   *informer
	// pods is nil while there is no StatefulSet. selector is theirs.
	pods     *informer
	selector string
}

// informer is a watch and what it has seen.
type informer struct {
	cache.SharedIndexInformer
	stop context.CancelFunc
}

// Seen is what the watches of a StatefulSetDrain have seen; read-only, because the caches share it.
type Seen struct {
	// Known: the watches have begun. Until then the rest is empty, and changed is called when they have.
	Known bool
	// Set is the StatefulSet; nil if there is none.
	Set *appsv1.StatefulSet
	// Pods are those that its selector matches, by name.
	Pods []*corev1.Pod
}

// NewWatches returns Watches that call changed, which must not block, for a StatefulSetDrain when its
// StatefulSet or a pod has changed.
func NewWatches(clients kubernetes.Interface, changed func(owner types.NamespacedName)) *Watches {
	return &Watches{clients: clients, changed: changed, of: map[types.NamespacedName]*pair{}}
}

// Start lets watches begin until the context ends, and then waits until they have ended.
func (w *Watches) Start(ctx context.Context) error {
	w.mu.Lock()
	w.running = ctx
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.running, w.of = nil, map[types.NamespacedName]*pair{}
	w.mu.Unlock()
	w.open.Wait()
	return nil
}

// See returns what is known of the StatefulSet with this name and its pods. The first call begins the
// watches.
func (w *Watches) See(owner types.NamespacedName, uid types.UID, set string) Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		return Seen{}
	}
	p := w.of[owner]
	if p == nil || p.owner != uid {
		p.end()
		p = &pair{owner: uid, set: w.watchSet(owner, set)}
		w.of[owner] = p
	}
	if !p.set.HasSynced() {
		return Seen{}
	}
	found := p.set.GetStore().List()
	if len(found) == 0 {
		p.endPods()
		return Seen{Known: true}
	}
	seen := Seen{Known: true, Set: found[0].(*appsv1.StatefulSet)}
	selector := "" // too large to be kept
	if s := seen.Set.Spec.Selector; s != nil {
		selector = metav1.FormatLabelSelector(s)
	}
	if p.pods == nil || p.selector != selector {
		p.endPods()
		p.pods, p.selector = w.watchPods(owner, seen.Set, selector), selector
	}
	if p.pods == nil {
		return seen
	}
	if !p.pods.HasSynced() {
		return Seen{}
	}
	for _, pod := range p.pods.GetStore().List() {
		seen.Pods = append(seen.Pods, pod.(*corev1.Pod))
	}
	slices.SortFunc(seen.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return seen
}

// Watched is how many watches are open.
func (w *Watches) Watched() int { return int(w.count.Load()) }

// Forget ends the watches of a StatefulSetDrain that is gone.
func (w *Watches) Forget(owner types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[owner].end()
	delete(w.of, owner)
}

func (p *pair) end() {
	if p != nil {
		p.set.stop()
		p.endPods()
	}
}

func (p *pair) endPods() {
	if p.pods != nil {
		p.pods.stop()
		p.pods = nil
	}
}

func (w *Watches) watchSet(owner types.NamespacedName, name string) *informer {
	sets := w.clients.AppsV1().StatefulSets(owner.Namespace)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return w.begin(owner, &appsv1.StatefulSet{}, trim.Target, listWatch(sets.List, sets.Watch, func(o *metav1.ListOptions) { o.FieldSelector = only }))
}

// watchPods watches no pods if the selector can't be used.
func (w *Watches) watchPods(owner types.NamespacedName, set *appsv1.StatefulSet, selector string) *informer {
	if _, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err != nil || selector == "" {
		return nil
	}
	pods := w.clients.CoreV1().Pods(owner.Namespace)
	return w.begin(owner, &corev1.Pod{}, trim.TargetPod, listWatch(pods.List, pods.Watch, func(o *metav1.ListOptions) { o.LabelSelector = selector }))
}

// listWatch is the source of a watch, which selects by the options that narrow sets.
func listWatch[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error),
	begin func(context.Context, metav1.ListOptions) (watch.Interface, error), narrow func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return begin(ctx, o)
		},
	}
}

// begin begins a watch, and doesn't wait for its end.
func (w *Watches) begin(owner types.NamespacedName, kind runtime.Object, transform cache.TransformFunc, source *cache.ListWatch) *informer {
	ctx, stop := context.WithCancel(w.running)
	is := &informer{SharedIndexInformer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, w.clients), kind, 0, cache.Indexers{}), stop: stop}
	_ = is.SetTransform(transform) // fails only if it has started
	registered, _ := is.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed(owner) },
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				w.changed(owner)
			}
		},
		DeleteFunc: func(any) { w.changed(owner) },
	})
	w.count.Add(1)
	w.open.Go(func() {
		defer w.count.Add(-1)
		is.RunWithContext(ctx)
	})
	w.open.Go(func() { // if there is no object, no event says that the watch has begun
		if cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			w.changed(owner)
		}
	})
	return is
}

// same tells whether what is kept of an object has not changed.
func same(before, after any) bool {
	a, isObject := before.(metav1.Object)
	b, too := after.(metav1.Object)
	if !isObject || !too {
		return false
	}
	old, ok := before.(runtime.Object)
	if !ok || a.GetUID() != b.GetUID() {
		return false
	}
	old = old.DeepCopyObject()
	old.(metav1.Object).SetResourceVersion(b.GetResourceVersion())
	return equality.Semantic.DeepEqual(old, after)
}
