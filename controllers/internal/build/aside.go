package build

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// AsideClaim is the claim that takes over the volume of one that is being deleted. It has
// the leaving mark from the start, and a person's request.
func AsideClaim(claim *corev1.PersistentVolumeClaim, name string, now time.Time) *corev1.PersistentVolumeClaim {
	annotations := map[string]string{
		cachev1alpha1.AnnotationAsideOf: string(claim.UID),
		cachev1alpha1.AnnotationLeaving: now.UTC().Format(time.RFC3339),
	}
	if mark, ok := claim.Annotations[cachev1alpha1.AnnotationLeaving]; ok {
		annotations[cachev1alpha1.AnnotationLeaving] = mark
	}
	if adopted, ok := claim.Annotations[cachev1alpha1.AnnotationAdopted]; ok {
		annotations[cachev1alpha1.AnnotationAdopted] = adopted
	}
	// A retry is not needed: another claim is drained anew.
	if request, ok := claim.Annotations[cachev1alpha1.AnnotationDrain]; ok && request != cachev1alpha1.DrainRetry {
		annotations[cachev1alpha1.AnnotationDrain] = request
	}
	spec := claim.Spec.DeepCopy()
	// These choose or fill a new volume; this one exists.
	spec.Selector, spec.DataSource, spec.DataSourceRef = nil, nil, nil
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   claim.Namespace,
			Labels:      maps.Clone(claim.Labels),
			Annotations: annotations,
			Finalizers:  []string{cachev1alpha1.ClaimFinalizer},
		},
		Spec: *spec,
	}
}
