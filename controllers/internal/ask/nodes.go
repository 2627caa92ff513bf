package ask

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// NodeReader lists and watches nodes.
type NodeReader interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// unschedulable selects the nodes that take no pods. No others are read.
var unschedulable = fields.OneTermEqualSelector("spec.unschedulable", "true").String()

// Nodes knows which nodes take no pods, and since when it has known that. The watch begins with the first
// question, and is not in the manager's cache: an operator that may not watch nodes works all the same. A nil
// Nodes knows none.
type Nodes struct {
	nodes   NodeReader
	changed func(cluster types.NamespacedName)
	clock   clock.PassiveClock
	asked   chan struct{}
	once    sync.Once

	mu       sync.Mutex
	cordoned map[string]time.Time
	// on has the nodes of the clusters that ask.
	on map[types.NamespacedName][]string
	// known: a request has succeeded. synced: the nodes have been read. refused is why nodes can't be read;
	// empty if they can.
	known, synced bool
	refused       string
}

// NewNodes returns Nodes, which watch after Start and call changed for each cluster that has asked and has a
// member on a node that changes; changed must not block.
func NewNodes(nodes NodeReader, changed func(cluster types.NamespacedName)) *Nodes {
	return &Nodes{
		nodes: nodes, changed: changed, clock: clock.RealClock{}, asked: make(chan struct{}),
		cordoned: map[string]time.Time{}, on: map[types.NamespacedName][]string{},
	}
}

// Start watches until the context ends.
func (n *Nodes) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.asked:
	}
	_, watcher := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = unschedulable
				list, err := n.nodes.List(ctx, o)
				n.note(err)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = unschedulable
				w, err := n.nodes.Watch(ctx, o)
				n.note(err)
				return w, err
			},
		},
		ObjectType: &corev1.Node{},
		Transform: func(object any) (any, error) {
			if node, is := object.(*corev1.Node); is {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: node.ResourceVersion}}, nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { n.set(o, true) },
			DeleteFunc: func(o any) {
				if gone, is := o.(cache.DeletedFinalStateUnknown); is {
					o = gone.Obj
				}
				n.set(o, false)
			},
		},
	})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), watcher.HasSynced) {
			n.tell(func() { n.synced = true })
		}
	}()
	watcher.RunWithContext(ctx)
	return nil
}

// tell makes a change to the known facts, and calls changed for all clusters that ask.
func (n *Nodes) tell(change func()) {
	n.mu.Lock()
	change()
	wake := slices.Collect(maps.Keys(n.on))
	n.mu.Unlock()
	n.wake(wake)
}

// note notes whether nodes can be read.
func (n *Nodes) note(err error) {
	n.mu.Lock()
	before, now := n.refused, n.refused
	switch {
	case err == nil:
		n.known, now = true, ""
	case !n.known || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err): // any other error passes
		now = fmt.Sprintf("nodes can't be watched: %v", err)
	}
	n.mu.Unlock()
	if before != now {
		n.tell(func() { n.refused = now })
	}
}

// set notes that the node takes no pods, or that it takes pods again.
func (n *Nodes) set(object any, cordoned bool) {
	node, is := object.(*corev1.Node)
	if !is {
		return
	}
	n.mu.Lock()
	if delete(n.cordoned, node.Name); cordoned {
		n.cordoned[node.Name] = n.clock.Now()
	}
	var wake []types.NamespacedName
	for cluster, nodes := range n.on {
		if slices.Contains(nodes, node.Name) {
			wake = append(wake, cluster)
		}
	}
	n.mu.Unlock()
	n.wake(wake)
}

func (n *Nodes) wake(clusters []types.NamespacedName) {
	for _, cluster := range clusters {
		n.changed(cluster)
	}
}

// Cordoned returns which of these nodes, those of the cluster's members, take no pods, and since when, or why
// that is not known. pending: the answer will be known in a moment.
func (n *Nodes) Cordoned(cluster types.NamespacedName, nodes []string) (since map[string]time.Time, pending bool, unknown string) {
	if n == nil {
		return nil, false, "this operator watches no nodes"
	}
	n.once.Do(func() { close(n.asked) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on[cluster] = nodes
	since = map[string]time.Time{}
	for _, node := range nodes {
		if t, is := n.cordoned[node]; is {
			since[node] = t
		}
	}
	return since, !n.synced && n.refused == "", n.refused
}

// Forget tells that the cluster asks no more.
func (n *Nodes) Forget(cluster types.NamespacedName) {
	if n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.on, cluster)
	}
}
