package apply

import (
	"context"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/unwatched"
)

func (r *run) access() unwatched.Access {
	return unwatched.Access{Client: r.Client, Live: r.Reader.Live}
}

// writeBinding writes the Secret of spec.binding, or deletes it.
func (r *run) writeBinding(ctx context.Context, a action.WriteBinding) (err error) {
	r.done.Binding, err = r.Bindings.Apply(ctx, r.access(), r.cluster, build.ClientServers(r.cluster, r.ports, a.ListSize), r.now)
	return err
}

// applyServiceMonitor applies the ServiceMonitor, or deletes it.
func (r *run) applyServiceMonitor(ctx context.Context) (err error) {
	r.done.Monitored, err = r.Monitors.Apply(ctx, r.access(), r.cluster, r.now)
	return err
}
