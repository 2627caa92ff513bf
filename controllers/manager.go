package controllers

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// NewScheme has the kinds that the controllers read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(cachev1alpha1.AddToScheme(scheme))
	return scheme
}

// CacheOptions keep the operator's memory to what it manages and reads: the
// objects with our label, in these namespaces, or in all where none is given,
// without what no reconcile asks for.
func CacheOptions(namespaces ...string) cache.Options {
	selector := labels.SelectorFromSet(labels.Set{cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy})
	trimmed := func(f toolscache.TransformFunc) cache.ByObject { return cache.ByObject{Label: selector, Transform: f} }
	applied := trimmed(trimApplied)
	options := cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: trimmed(trimPod), &corev1.PersistentVolumeClaim{}: trimmed(trimClaim), &batchv1.Job{}: {Label: selector},
			&corev1.Service{}: applied, &appsv1.StatefulSet{}: applied, &appsv1.Deployment{}: applied,
			&corev1.ConfigMap{}: applied, &networkingv1.NetworkPolicy{}: applied, &policyv1.PodDisruptionBudget{}: applied,
		},
		DefaultTransform:            cache.TransformStripManagedFields(),
		ReaderFailOnMissingInformer: true,
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

// trimPod keeps of a pod's spec only where it runs, the rest is the StatefulSet's
// or the Job's, and of its init containers only those that left a message. Of those that are gone a transform may be given
// something else than a pod.
func trimPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		pod.Status.PodIPs, pod.Status.HostIPs = nil, nil
		pod.Status.InitContainerStatuses = slices.DeleteFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Terminated == nil || c.State.Terminated.Message == ""
		})
	}
	return object, nil
}

// trimClaim keeps of a claim's status only its phase and its volume's size.
func trimClaim(object any) (any, error) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		claim.ManagedFields = nil
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: claim.Status.Phase, Capacity: claim.Status.Capacity}
	}
	return object, nil
}

// trimApplied keeps of who set which field only what we have applied: a
// reconcile compares with that.
func trimApplied(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager != cachev1alpha1.ManagedBy
		}))
	}
	return object, nil
}
