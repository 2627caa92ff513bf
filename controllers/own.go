package controllers

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// own reads the cluster's object of that name from the cache; nil where there is none,
// or somebody else's. One whose content the cache does not keep, because it has still to
// be adopted or is large, is read live.
func own[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *MemcachedReconciler, cluster *cachev1alpha1.Memcached, name string) (P, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: name}
	object, err := get[T, P](ctx, r.Client, key)
	if err == nil && object != nil && identity.Mine(cluster, object) && !trim.Whole(object) {
		object, err = get[T, P](ctx, r.Live, key)
	}
	if err != nil || object == nil || !identity.Mine(cluster, object) {
		return nil, err
	}
	return object, nil
}

// surely is own for what a plan rests on: what the cache lacks is read live. Where it is
// there all the same, the cache is behind, or its label is gone: then it is among
// o.unlabelled.
func surely[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *MemcachedReconciler, o *observed, name string) (P, error) {
	cluster := o.cluster
	object, err := own[T, P](ctx, r, cluster, name)
	if err != nil || object != nil || cluster.UID == "" {
		return object, err
	}
	live, err := get[T, P](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
	if err != nil || live == nil || !identity.Mine(cluster, live) {
		return nil, err
	}
	o.unlabelled = append(o.unlabelled, live)
	return live, nil
}

// label puts the label back on objects of the cluster that the cache doesn't have, and
// holds those claims for it that were there before their members. Before that nobody can
// say what belongs to the cluster. For a paused one nothing is written.
func (r *MemcachedReconciler) label(ctx context.Context, o *observed) error {
	if paused(o.cluster) {
		return nil
	}
	var failed error
	for _, object := range o.unlabelled {
		failed = errors.Join(failed, r.putLabel(ctx, object, o.cluster.Name))
	}
	if o.found != nil {
		failed = errors.Join(failed, r.adopt(ctx, o.cluster, o.found))
	}
	return failed
}

// putLabel makes the object one that the cache selects.
func (r *MemcachedReconciler) putLabel(ctx context.Context, object client.Object, cluster string) error {
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
	return r.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
