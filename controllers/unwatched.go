package controllers

import (
	"context"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/unwatched"
)

func (r *MemcachedReconciler) access() unwatched.Access {
	return unwatched.Access{Client: r.Client, Live: r.Live}
}

// writeBinding writes the Secret of spec.binding, or takes it back.
func (r *MemcachedReconciler) writeBinding(ctx context.Context, o *observed, a plan.WriteBinding) (err error) {
	o.binding, err = r.bindings.Apply(ctx, r.access(), o.cluster, build.ListedServers(o.cluster, a.Listed), r.Clock.Now())
	return err
}

// applyServiceMonitor applies the ServiceMonitor, or takes it back.
func (r *MemcachedReconciler) applyServiceMonitor(ctx context.Context, o *observed) (err error) {
	o.monitored, err = r.monitors.Apply(ctx, r.access(), o.cluster, r.Clock.Now())
	return err
}
