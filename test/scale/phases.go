package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/harness"
)

const (
	// members of a cluster.
	members = 4
	// perNamespace is how many clusters share a namespace.
	perNamespace = 100
	// writers is how many create and patch at the same time.
	writers = 16
)

// key returns that of the i-th cluster.
func key(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("scale-%d", i/perNamespace), Name: fmt.Sprintf("cache-%d", i)}
}

// claim returns the key of a member's claim.
func claim(cluster types.NamespacedName, ordinal int) types.NamespacedName {
	return types.NamespacedName{Namespace: cluster.Namespace, Name: fmt.Sprintf("data-%s-%d", cluster.Name, ordinal)}
}

func cluster(key types.NamespacedName, size int) *cachev1alpha1.Memcached {
	return &cachev1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: cachev1alpha1.MemcachedSpec{
			Size: ptr.To(int32(size)),
			Storage: &cachev1alpha1.StorageSpec{
				Size:             resource.MustParse("1Gi"),
				StorageClassName: ptr.To(storageClass),
			},
			// kwok doesn't play movers that wait for clients.
			Routing: cachev1alpha1.RoutingSpec{Client: "libmemcached-ketama-weighted", Patience: &metav1.Duration{}},
			// The large cluster drains several volumes at once, all others one.
			Drain: cachev1alpha1.DrainSpec{Parallelism: 10},
		},
	}
}

// routedKey returns that of the i-th cluster with routers.
func routedKey(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("routed-%d", i/perNamespace), Name: fmt.Sprintf("cache-%d", i)}
}

// routed returns a cluster with two routers and discovery. kwok's routers answer no question of the operator.
func routed(key types.NamespacedName, size int) *cachev1alpha1.Memcached {
	c := cluster(key, size)
	c.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To(int32(2))}
	c.Spec.Discovery = &cachev1alpha1.DiscoverySpec{}
	return c
}

// each calls f for every number from from to to-1, several at a time.
func each(ctx context.Context, from, to int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := from; i < to; i++ {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(ctx, i)
		})
	}
	return group.Wait()
}

// create makes the clusters from..to, as fast as the API server takes them, and
// waits until all are available.
func (w *world) create(from, to int, key func(int) types.NamespacedName, cluster func(types.NamespacedName, int) *cachev1alpha1.Memcached) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		began := time.Now()
		var keys []types.NamespacedName
		for i := from; i < to; i++ {
			keys = append(keys, key(i))
			if i%perNamespace != 0 {
				continue
			}
			if err := w.createNamespace(ctx, key(i).Namespace); err != nil {
				return 0, err
			}
		}
		err := each(ctx, from, to, func(ctx context.Context, i int) error {
			return w.client.Create(ctx, cluster(key(i), members))
		})
		if err != nil {
			return 0, err
		}
		err = w.awaitClusters(ctx, keys, "available", func(s clusterState) bool { return s.available })
		return time.Since(began).Seconds(), err
	}
}

func (w *world) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.IgnoreAlreadyExists(w.client.Create(ctx, namespace))
}

func (w *world) awaitClusters(ctx context.Context, keys []types.NamespacedName, what string, is func(clusterState) bool) error {
	return w.until(ctx, w.options.limit, "all clusters are "+what, func() (string, bool) {
		n := w.tracker.count(keys, is)
		return fmt.Sprintf("%d of %d are", n, len(keys)), n == len(keys)
	})
}

// rest lets a while pass.
func (w *world) rest(d time.Duration) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		end := time.Now().Add(d)
		err := w.until(ctx, d+time.Minute, "the time of rest is over", func() (string, bool) {
			left := time.Until(end)
			return fmt.Sprintf("%.0f s are left", left.Seconds()), left <= 0
		})
		return d.Seconds(), err
	}
}

// restart starts another manager and waits until it has seen every cluster.
func (w *world) restart(clusters int) phase {
	return func(ctx context.Context, c *column) (float64, error) {
		began := time.Now()
		if err := w.startManager(ctx); err != nil {
			return 0, err
		}
		c.notes[rowReady] = fmt.Sprintf("%.1f", time.Since(w.manager().started).Seconds())
		err := w.seen(ctx, float64(clusters))
		return time.Since(began).Seconds(), err
	}
}

// resync waits until the manager has reconciled so many clusters twice, without an event of theirs.
func (w *world) resync(clusters int) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		began := time.Now()
		before, err := w.manager().load(ctx)
		if err != nil {
			return 0, err
		}
		err = w.seen(ctx, before.reconciles+2*float64(clusters))
		return time.Since(began).Seconds(), err
	}
}

// seen waits until the manager has made so many reconciles, and has none left.
func (w *world) seen(ctx context.Context, reconciles float64) error {
	return w.until(ctx, w.options.limit, "every cluster is reconciled", func() (string, bool) {
		l, err := w.manager().load(ctx)
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%.0f reconciles", l.reconciles), l.reconciles >= reconciles && l.depth+l.active == 0
	})
}

// scaleDown takes the last member off the first n clusters, all at once, and waits until the claims are gone.
func (w *world) scaleDown(n int, key func(int) types.NamespacedName) phase {
	return func(ctx context.Context, c *column) (float64, error) {
		began := time.Now()
		asked := make([]time.Time, n)
		claims := make([]types.NamespacedName, n)
		err := each(ctx, 0, n, func(ctx context.Context, i int) error {
			asked[i], claims[i] = time.Now(), claim(key(i), members-1)
			return w.resize(ctx, key(i), members-1)
		})
		if err != nil {
			return 0, err
		}
		if err := w.awaitGone(ctx, claims); err != nil {
			return 0, err
		}
		seconds := time.Since(began).Seconds()
		took := make([]float64, n)
		for i, claim := range claims {
			took[i] = w.tracker.goneAt(claim).Sub(asked[i]).Seconds()
		}
		median, last := harness.Median(took), slices.Max(took)
		c.notes[rowMedian], c.notes[rowLast] = fmt.Sprintf("%.1f", median), fmt.Sprintf("%.1f", last)
		c.notes[rowStarve] = fmt.Sprintf("%.2f", last/median)
		return seconds, w.awaitClusters(ctx, keysBelow(n, key), "settled", func(s clusterState) bool { return s.settled })
	}
}

func keysBelow(n int, key func(int) types.NamespacedName) []types.NamespacedName {
	keys := make([]types.NamespacedName, n)
	for i := range keys {
		keys[i] = key(i)
	}
	return keys
}

func (w *world) resize(ctx context.Context, key types.NamespacedName, size int) error {
	c := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, size))
	return w.client.Patch(ctx, c, patch)
}

func (w *world) awaitGone(ctx context.Context, claims []types.NamespacedName) error {
	return w.until(ctx, w.options.limit, "the claims are gone", func() (string, bool) {
		gone := w.tracker.goneOf(claims)
		return fmt.Sprintf("%d of %d are", gone, len(claims)), gone == len(claims)
	})
}

// large is the one cluster of many members.
var large = types.NamespacedName{Namespace: "large", Name: "cache"}

func (w *world) createLarge(size int) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		began := time.Now()
		if err := w.createNamespace(ctx, large.Namespace); err != nil {
			return 0, err
		}
		if err := w.client.Create(ctx, cluster(large, size)); err != nil {
			return 0, err
		}
		err := w.awaitClusters(ctx, []types.NamespacedName{large}, "available", func(s clusterState) bool { return s.available })
		return time.Since(began).Seconds(), err
	}
}

func (w *world) shrinkLarge(from, to int) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		began := time.Now()
		var claims []types.NamespacedName
		for i := to; i < from; i++ {
			claims = append(claims, claim(large, i))
		}
		if err := w.resize(ctx, large, to); err != nil {
			return 0, err
		}
		if err := w.awaitGone(ctx, claims); err != nil {
			return 0, err
		}
		seconds := time.Since(began).Seconds()
		return seconds, w.awaitClusters(ctx, []types.NamespacedName{large}, "settled", func(s clusterState) bool { return s.settled })
	}
}
