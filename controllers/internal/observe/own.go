package observe

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// Own reads the cluster's object of that name from the cache; nil if there is none, or if it
// belongs to another owner. If the cache doesn't have its content, because it is large or not
// adopted yet, Own reads it live.
func Own[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *Reader, cluster *cachev1alpha1.Memcached, name string) (P, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: name}
	object, err := read.Get[T, P](ctx, r.Cache, key)
	if err == nil && object != nil && identity.OwnsOrAdopts(cluster, object) && !trim.Whole(object) {
		object, err = read.Get[T, P](ctx, r.Live, key)
	}
	if err != nil || object == nil || !identity.OwnsOrAdopts(cluster, object) {
		return nil, err
	}
	return object, nil
}

// ownOrLive is Own for an object that a plan depends on. An object that the cache lacks is read
// live. If it exists, either the cache is stale, or the object lacks its label and is added to
// o.Unlabelled.
func ownOrLive[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *Reader, o *State, name string) (P, error) {
	cluster := o.Cluster
	object, err := Own[T, P](ctx, r, cluster, name)
	if err != nil || object != nil || cluster.UID == "" {
		return object, err
	}
	live, err := read.Get[T, P](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
	if err != nil || live == nil || !identity.OwnsOrAdopts(cluster, live) {
		return nil, err
	}
	o.Unlabelled = append(o.Unlabelled, live)
	return live, nil
}
