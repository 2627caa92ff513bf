package controllers

import (
	"context"

	"example.com/memcached-operator/controllers/internal/unwatched"
)

func (r *MemcachedReconciler) access() unwatched.Access {
	return unwatched.Access{Client: r.Client, Live: r.Live}
}

// applyBinding applies the Secret of spec.binding.
func (r *MemcachedReconciler) applyBinding(ctx context.Context, o *observed) (err error) {
	o.binding, err = r.bindings.Apply(ctx, r.access(), o.cluster, o.servers, r.Clock.Now())
	return err
}

// applyServiceMonitor applies the ServiceMonitor, or takes it back.
func (r *MemcachedReconciler) applyServiceMonitor(ctx context.Context, o *observed) (err error) {
	o.monitored, err = r.monitors.Apply(ctx, r.access(), o.cluster, r.Clock.Now())
	return err
}
