package apply

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/observe"
)

// Label puts the label back on objects of the cluster that the cache doesn't have, and
// holds those claims for it that were there before their members. Before that nobody can
// say what belongs to the cluster. For a paused one nothing is written.
func (a *Applier) Label(ctx context.Context, o *observe.State) error {
	if observe.Paused(o.Cluster) {
		return nil
	}
	var failed error
	for _, object := range o.Unlabelled {
		failed = errors.Join(failed, a.putLabel(ctx, object, o.Cluster.Name))
	}
	if o.Found != nil {
		failed = errors.Join(failed, a.adopt(ctx, o.Cluster, o.Found))
	}
	return failed
}

// putLabel makes the object one that the cache selects.
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
	// Under a lock: what was looked at is what is labelled.
	return a.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
