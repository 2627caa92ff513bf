package apply

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/observe"
)

// Label restores the label of the cluster's objects that the cache doesn't have, and adopts the
// claims among those found that existed before their members. Until then the plan doesn't know what
// belongs to the cluster. For a paused cluster Label writes nothing.
func (a *Applier) Label(ctx context.Context, cluster *cachev1alpha1.Memcached, unlabelled []client.Object, found *observe.LiveClaims) error {
	if observe.Paused(cluster) {
		return nil
	}
	var failed error
	for _, object := range unlabelled {
		failed = errors.Join(failed, a.putLabel(ctx, object, cluster.Name))
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
		failed = errors.Join(failed, r.putLabel(ctx, object, r.cluster.Name))
	}
	for _, claim := range r.unadopted {
		failed = errors.Join(failed, r.adoptClaim(ctx, r.cluster, claim))
	}
	return failed
}

// putLabel adds the label by which the cache selects the object.
func (a *Applier) putLabel(ctx context.Context, object client.Object, cluster string) error {
	if object.GetLabels()[cachev1alpha1.LabelCluster] == cluster {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cachev1alpha1.LabelCluster] = cluster
	object.SetLabels(labels)
	// The optimistic lock makes sure that only the object that was read is labelled.
	return a.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
