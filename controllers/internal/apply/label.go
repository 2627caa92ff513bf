package apply

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
)

// Label restores the label of the cluster's objects that the cache doesn't have, and adopts the
// claims among those found that existed before their members. Until then the plan doesn't know what
// belongs to the cluster. For a paused cluster Label writes nothing.
func (a *Applier) Label(ctx context.Context, cluster *cachev1alpha1.Memcached, unlabelled []client.Object, found *read.LiveClaims) error {
	if observe.Paused(cluster) {
		return nil
	}
	var failed error
	for _, object := range unlabelled {
		failed = errors.Join(failed, a.writer(cluster).Label(ctx, object))
	}
	if found != nil {
		failed = errors.Join(failed, a.adopt(ctx, cluster, found))
	}
	return failed
}

// labelFound is Label for the objects that the guards of this plan's steps have found.
func (r *run) labelFound(ctx context.Context) error {
	var failed error
	for _, object := range r.unlabelled {
		failed = errors.Join(failed, r.claims.Label(ctx, object))
	}
	for _, claim := range r.unadopted {
		failed = errors.Join(failed, r.adoptClaim(ctx, r.cluster, claim))
	}
	return failed
}
