package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// tracker watches the clusters and their claims.
type tracker struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]clusterState
	claims   map[types.NamespacedName]bool
	gone     map[types.NamespacedName]time.Time
}

// clusterState is a cluster's status about its present spec.
type clusterState struct {
	available, settled bool
}

func newTracker(ctx context.Context, c cache.Cache) (*tracker, error) {
	t := &tracker{
		clusters: map[types.NamespacedName]clusterState{},
		claims:   map[types.NamespacedName]bool{},
		gone:     map[types.NamespacedName]time.Time{},
	}
	for _, o := range []client.Object{&cachev1alpha1.Memcached{}, &corev1.PersistentVolumeClaim{}} {
		informer, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", o, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { t.set(o.(client.Object)) },
			UpdateFunc: func(_, o any) { t.set(o.(client.Object)) },
			DeleteFunc: func(o any) {
				if o, ok := o.(client.Object); ok {
					t.remove(o)
				}
			},
		}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tracker) set(o client.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	c, ok := o.(*cachev1alpha1.Memcached)
	if !ok {
		t.claims[key] = true
		delete(t.gone, key)
		return
	}
	current := c.Status.ObservedGeneration == c.Generation
	t.clusters[key] = clusterState{
		available: current && meta.IsStatusConditionTrue(c.Status.Conditions, cachev1alpha1.ConditionAvailable),
		settled:   current && c.Status.Phase == cachev1alpha1.PhaseRunning,
	}
}

func (t *tracker) remove(o client.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if _, ok := o.(*cachev1alpha1.Memcached); ok {
		delete(t.clusters, key)
		return
	}
	delete(t.claims, key)
	t.gone[key] = time.Now()
}

// count returns how many of the clusters are in such a state.
func (t *tracker) count(keys []types.NamespacedName, is func(clusterState) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, key := range keys {
		if is(t.clusters[key]) {
			n++
		}
	}
	return n
}

// goneOf returns how many of the claims are gone.
func (t *tracker) goneOf(claims []types.NamespacedName) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, key := range claims {
		if !t.gone[key].IsZero() {
			n++
		}
	}
	return n
}

func (t *tracker) goneAt(claim types.NamespacedName) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone[claim]
}
