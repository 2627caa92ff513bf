package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

var kindClaims = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

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
