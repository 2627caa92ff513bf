package trim

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// Claim keeps of a claim's status only its phase and its volume's size, and of its
// metadata what metadata does.
func Claim(object any) (any, error) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		metadata(claim)
		claim.ManagedFields = nil
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: claim.Status.Phase, Capacity: claim.Status.Capacity}
	}
	return object, nil
}

// Job keeps of a Job how it stands; what it does is in its annotations.
func Job(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		metadata(job)
		job.ManagedFields = nil
		job.Spec = batchv1.JobSpec{}
		job.Status = batchv1.JobStatus{StartTime: job.Status.StartTime, Failed: job.Status.Failed, Conditions: job.Status.Conditions}
		for i := range job.Status.Conditions {
			job.Status.Conditions[i].Message = text(job.Status.Conditions[i].Message)
		}
	}
	return object, nil
}

// Applied keeps of who set which field only what we have applied, since a
// reconcile compares with that, and of a ConfigMap no data of other people's.
func Applied(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone
	}
	metadata(o)
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager != cachev1alpha1.ManagedBy
	}))
	if list, ok := object.(*corev1.ConfigMap); ok {
		list.BinaryData = nil
		maps.DeleteFunc(list.Data, func(key, _ string) bool { return !build.IsServersKey(key) })
	}
	return object, nil
}

// metadata keeps the annotations that are the operator's. Others are no use to it, and
// may have 256 KiB. Of one that is longer than the operator writes it, it keeps that it
// is there: it is spoilt.
func metadata(o metav1.Object) {
	annotations := o.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !ours(key) })
	for key, value := range annotations {
		if len(value) > maxValue {
			annotations[key] = ""
		}
	}
	o.SetAnnotations(annotations)
}
