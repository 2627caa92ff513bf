package controllers

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// NewScheme returns a scheme with the kinds that the controllers read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(cachev1alpha1.AddToScheme(scheme))
	return scheme
}

// CacheOptions limit the cache to the objects that Selector selects, in these namespaces, or in all
// if none are given. Fields that no reconcile reads are dropped.
func CacheOptions(namespaces ...string) cache.Options {
	trimmed := func(o client.Object, f toolscache.TransformFunc) cache.ByObject {
		return cache.ByObject{Label: identity.Selector(o), Transform: f}
	}
	options := cache.Options{
		ByObject:                    map[client.Object]cache.ByObject{},
		DefaultTransform:            cache.TransformStripManagedFields(),
		DefaultNamespaces:           read.InNamespaces(namespaces),
		ReaderFailOnMissingInformer: true,
	}
	for o, f := range map[client.Object]toolscache.TransformFunc{
		&corev1.Pod{}: trim.Pod, &corev1.PersistentVolumeClaim{}: trim.Claim, &batchv1.Job{}: trim.Job,
		&corev1.Service{}: trim.Applied, &appsv1.StatefulSet{}: trim.Applied, &appsv1.Deployment{}: trim.Applied,
		&corev1.ConfigMap{}: trim.Applied, &discoveryv1.EndpointSlice{}: trim.Applied, &networkingv1.NetworkPolicy{}: trim.Applied, &policyv1.PodDisruptionBudget{}: trim.Applied,
	} {
		options.ByObject[o] = trimmed(o, f)
	}
	return options
}
