package observe

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
)

// The cluster's objects are found without reading other owners' objects in its namespace. The API
// server selects those that have the cluster's label. The names of the others are known: a watch
// tells which claims have a member's name and no label, a StatefulSet says which claims it uses,
// and a pod names its Job.

var (
	kindClaims = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	kindJobs   = batchv1.SchemeGroupVersion.WithKind("Job")
)

// labelled reads the cluster's objects live, by its label, one page at a time.
func (r *Reader) labelled(ctx context.Context, list client.ObjectList, cluster *cachev1alpha1.Memcached, each func()) error {
	return eachPage(ctx, r.Live, list, each, client.InNamespace(cluster.Namespace), client.MatchingLabels{cachev1alpha1.LabelCluster: cluster.Name})
}

// eachPage reads one page of a list at a time.
func eachPage(ctx context.Context, reader client.Reader, list client.ObjectList, each func(), options ...client.ListOption) error {
	for more := true; more; more = list.GetContinue() != "" {
		if err := reader.List(ctx, list, append(slices.Clone(options), client.Limit(page), client.Continue(list.GetContinue()))...); err != nil {
			return err
		}
		each()
	}
	return nil
}

// see remembers the names of the cluster's own objects that the cache has now. There may be any number
// of other owners' objects with its label.
func (r *Reader) see(cluster *cachev1alpha1.Memcached, kind schema.GroupVersionKind, own []string) {
	r.Seen.Note(client.ObjectKeyFromObject(cluster), kind.Kind, own)
}

// gone forgets names that no object has.
func (r *Reader) gone(cluster *cachev1alpha1.Memcached, kind schema.GroupVersionKind, names ...string) {
	r.Seen.Gone(client.ObjectKeyFromObject(cluster), kind.Kind, names...)
}

func namesOf[T any, P interface {
	*T
	client.Object
}](items []T) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = P(&items[i]).GetName()
	}
	return names
}

// knownNames are the names of the cluster's objects that the cache has or had, and of claims
// without the label. An object that has just lost its label is in no cache, so the names that the
// cache had count, too. Some of these objects may be gone.
func (r *Reader) knownNames(ctx context.Context, cluster *cachev1alpha1.Memcached, cached client.ObjectList, kind schema.GroupVersionKind) ([]string, error) {
	if r.Cache == nil {
		return nil, nil
	}
	var names, own []string
	key := client.ObjectKeyFromObject(cluster)
	err := r.list(ctx, key, cached)
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(cached, func(o runtime.Object) error {
		object := o.(client.Object)
		if names = append(names, object.GetName()); isOwn(cluster, object) {
			own = append(own, object.GetName())
		}
		return nil
	})
	r.see(cluster, kind, own)
	names = append(names, r.Seen.Known(key, kind.Kind)...)
	if err != nil || r.Unlabelled == nil || kind != kindClaims {
		return names, err
	}
	unlabelled := &metav1.PartialObjectMetadataList{}
	unlabelled.SetGroupVersionKind(kind)
	err = r.Unlabelled.List(ctx, unlabelled, client.InNamespace(key.Namespace), client.MatchingFields{clusterIndex: key.Name})
	for i := range unlabelled.Items {
		names = append(names, unlabelled.Items[i].Name)
	}
	return names, err
}

// isOwn tells whether the claim or Job is the cluster's.
func isOwn(cluster *cachev1alpha1.Memcached, object client.Object) bool {
	switch o := object.(type) {
	case *batchv1.Job:
		return identity.OwnJob(cluster, o)
	case *corev1.PersistentVolumeClaim:
		return identity.OwnClaim(cluster.Name, o)
	}
	return false
}

// unlabelled is a cache that the manager starts with its own cache.
type unlabelled struct{ cache.Cache }

func (u unlabelled) GetCache() cache.Cache { return u.Cache }

// WatchUnlabelled watches the metadata of the claims that lack the operator's label, in these
// namespaces, or in all if none are given. The cache keeps only their names.
func WatchUnlabelled(mgr ctrl.Manager, namespaces ...string) (client.Reader, error) {
	without, err := labels.NewRequirement(cachev1alpha1.LabelCluster, selection.DoesNotExist, nil)
	if err != nil {
		return nil, err
	}
	claims := &metav1.PartialObjectMetadata{}
	claims.SetGroupVersionKind(kindClaims)
	options := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{claims: {Label: labels.NewSelector().Add(*without), Transform: onlyNames}},
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	c, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("watch claims without the label: %w", err)
	}
	err = c.IndexField(context.Background(), claims, clusterIndex, func(o client.Object) []string {
		if of, is := build.ClaimCluster(o.GetName()); is {
			return []string{of}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("index claims without the label by cluster: %w", err)
	}
	return c, mgr.Add(unlabelled{c})
}

// onlyNames drops all fields but those that name the object.
func onlyNames(object any) (any, error) {
	if o, is := object.(*metav1.PartialObjectMetadata); is {
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
	}
	return object, nil
}
