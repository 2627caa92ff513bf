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
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/trim"
)

// NewObjects returns a cache of the claims, Jobs and drainers' pods of all StatefulSetDrains in these
// namespaces, or in all if none are given. The manager starts it with its own cache.
func NewObjects(mgr ctrl.Manager, namespaces ...string) (cache.Cache, error) {
	labelled, err := labels.NewRequirement(cachev1alpha1.LabelStatefulSetDrain, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	objects := map[client.Object]cache.ByObject{}
	for o, f := range map[client.Object]toolscache.TransformFunc{
		&corev1.Pod{}: trim.Pod, &corev1.PersistentVolumeClaim{}: trim.Claim, &batchv1.Job{}: trim.Job,
	} {
		objects[o] = cache.ByObject{Label: labels.NewSelector().Add(*labelled), Transform: f}
	}
	c, err := read.NewCache(mgr, objects, namespaces...)
	if err != nil {
		return nil, fmt.Errorf("watch the objects of StatefulSetDrains: %w", err)
	}
	return c, nil
}
