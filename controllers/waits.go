package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/apply"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

// wait collects when to reconcile again if no event comes earlier.
func (r *MemcachedReconciler) wait(o *outcome, p *plan.Plan) {
	now := r.Clock.Now()
	o.Waits.AtMost(o.done.Waits.Shortest)
	o.Waits.AtMost(read.DrainerStarts(o.DrainerPods, now))
	o.Waits.AtMost(o.MoversPrepare(now))
	if !p.Wake.IsZero() {
		o.Waits.AtMost(max(p.Wake.Sub(now), time.Millisecond))
	}
	o.Waits.AtMost(apply.BindingRecheck(o.done.Binding))
	o.Waits.When(observe.VolumesWait(p), read.VolumeInterval)
	o.Waits.AtMost(apply.MonitorRecheck(o.done.Monitored))
	o.Waits.When(o.growthRefused() != "", observe.GrowthInterval)
}

// wakes is a source of reconciles without a watch: a sampler has a new answer, a roll-out may
// begin, or a wait is over and its reconcile failed.
type wakes struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// Start implements source.Source.
func (w *wakes) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// now asks for a reconcile at once.
func (w *wakes) now(key client.ObjectKey) { w.after(key, 0) }

// after asks for a reconcile after d.
func (w *wakes) after(key client.ObjectKey, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.AddAfter(ctrl.Request{NamespacedName: key}, d)
	}
}

const (
	// retryFirst and retryLast bound the time between two attempts of a failed reconcile.
	retryFirst = 500 * time.Millisecond
	retryLast  = time.Minute
)

// backoff doubles from retryFirst to retryLast while a cluster's reconciles fail. Up to a fifth is added, so
// that clusters that failed together don't retry together.
type backoff struct {
	workqueue.TypedRateLimiter[ctrl.Request]
}

func newBackoff() backoff {
	return backoff{workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retryFirst, retryLast)}
}

// When implements workqueue.TypedRateLimiter.
func (b backoff) When(request ctrl.Request) time.Duration {
	const jitter = 0.2
	return wait.Jitter(b.TypedRateLimiter.When(request), jitter)
}
