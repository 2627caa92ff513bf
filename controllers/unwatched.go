package controllers

import (
	"context"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/unwatched"
)

func (r *applier) access() unwatched.Access {
	return unwatched.Access{Client: r.Client, Live: r.Live}
}

// writeBinding writes the Secret of spec.binding, or takes it back.
func (r *applier) writeBinding(ctx context.Context, a plan.WriteBinding) (err error) {
	r.done.binding, err = r.bindings.Apply(ctx, r.access(), r.cluster, build.ListedServers(r.cluster, a.Listed), r.Clock.Now())
	return err
}

// applyServiceMonitor applies the ServiceMonitor, or takes it back.
func (r *applier) applyServiceMonitor(ctx context.Context) (err error) {
	r.done.monitored, err = r.monitors.Apply(ctx, r.access(), r.cluster, r.Clock.Now())
	return err
}
