package observe

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/trim"
)

// Objects is a cache of the claims, Jobs and drainers' pods of all StatefulSetDrains. The manager starts
// it with its own cache.
type Objects struct{ cache.Cache }

// GetCache implements what the manager recognizes a cache by.
func (o Objects) GetCache() cache.Cache { return o.Cache }

// NewObjects adds the cache to the manager. It has the objects with LabelStatefulSetDrain in these
// namespaces, or in all if none are given.
func NewObjects(mgr ctrl.Manager, namespaces ...string) (Objects, error) {
	labelled, err := labels.NewRequirement(cachev1alpha1.LabelStatefulSetDrain, selection.Exists, nil)
	if err != nil {
		return Objects{}, err
	}
	options := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{},
	}
	for o, f := range map[client.Object]toolscache.TransformFunc{
		&corev1.Pod{}: trim.Pod, &corev1.PersistentVolumeClaim{}: trim.Claim, &batchv1.Job{}: trim.Job,
	} {
		options.ByObject[o] = cache.ByObject{Label: labels.NewSelector().Add(*labelled), Transform: f}
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	c, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return Objects{}, fmt.Errorf("watch the objects of StatefulSetDrains: %w", err)
	}
	return Objects{c}, mgr.Add(Objects{c})
}
