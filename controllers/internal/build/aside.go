package build

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// LeavingMark returns the annotations of the leaving mark: the time, the number, and the decision
// about the volume.
func LeavingMark(c *cachev1alpha1.Memcached, number int64, now time.Time) map[string]string {
	return map[string]string{
		cachev1alpha1.AnnotationLeaving: now.UTC().Format(time.RFC3339),
		cachev1alpha1.AnnotationLeft:    strconv.FormatInt(number, 10),
		cachev1alpha1.AnnotationPolicy:  Decision(c),
	}
}

// Decision is the part of spec.drain that decides about the volumes of members that leave now.
func Decision(c *cachev1alpha1.Memcached) string {
	policy := cmp.Or(c.Spec.Drain.Policy, cachev1alpha1.PolicyDrain)
	if c.Spec.Drain.OnUnrecoverable == cachev1alpha1.UnreadableRelease {
		return fmt.Sprintf("%s,%s", policy, cachev1alpha1.UnreadableRelease)
	}
	return string(policy)
}

// AsideClaim is the claim that takes over the volume of a claim that is being deleted. From the
// start it has a leaving mark, the first claim's own or else the given one, and a person's request.
// storedBy is the serial of the last ring by which clients stored items on the volume.
func AsideClaim(claim *corev1.PersistentVolumeClaim, name string, mark map[string]string, storedBy int64) *corev1.PersistentVolumeClaim {
	annotations := map[string]string{cachev1alpha1.AnnotationAsideOf: string(claim.UID)}
	if _, marked := claim.Annotations[cachev1alpha1.AnnotationLeaving]; marked {
		mark = map[string]string{}
		for _, key := range []string{cachev1alpha1.AnnotationLeaving, cachev1alpha1.AnnotationLeft, cachev1alpha1.AnnotationPolicy} {
			if value, ok := claim.Annotations[key]; ok {
				mark[key] = value
			}
		}
	}
	maps.Copy(annotations, mark)
	if storedBy > 0 {
		annotations[cachev1alpha1.AnnotationMoved] = strconv.FormatInt(storedBy, 10)
	}
	if adopted, ok := claim.Annotations[cachev1alpha1.AnnotationAdopted]; ok {
		annotations[cachev1alpha1.AnnotationAdopted] = adopted
	}
	// A retry is not needed, because a new claim is drained from the start.
	if request, ok := claim.Annotations[cachev1alpha1.AnnotationDrain]; ok && request != cachev1alpha1.DrainRetry {
		annotations[cachev1alpha1.AnnotationDrain] = request
	}
	spec := claim.Spec.DeepCopy()
	// These fields choose or fill a new volume, but this volume exists.
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
