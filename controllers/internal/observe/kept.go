package observe

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/status"
)

// Kept returns the deleted objects that another owner's finalizer keeps: neither ours nor one of
// Kubernetes.
func (o *State) Kept() []status.Kept {
	var objects []client.Object
	if o.StatefulSet != nil {
		objects = append(objects, o.StatefulSet)
	}
	for _, jobs := range [][]batchv1.Job{o.Jobs, o.Moves, o.Warms, o.EndedJobs} {
		for i := range jobs {
			objects = append(objects, &jobs[i])
		}
	}
	for i := range o.Claims {
		objects = append(objects, &o.Claims[i])
	}
	var kept []status.Kept
	for _, object := range objects {
		at := slices.IndexFunc(object.GetFinalizers(), foreignFinalizer)
		if deleted := object.GetDeletionTimestamp(); deleted != nil && at >= 0 {
			kept = append(kept, status.Kept{
				Kind: identity.KindOf(object), Name: object.GetName(), Finalizer: object.GetFinalizers()[at], Since: deleted.Time,
			})
		}
	}
	return kept
}

func foreignFinalizer(finalizer string) bool {
	domain, _, qualified := strings.Cut(finalizer, "/")
	switch {
	case !qualified:
		return finalizer != metav1.FinalizerDeleteDependents && finalizer != metav1.FinalizerOrphanDependents
	case domain == cachev1alpha1.Group:
		return false
	}
	return domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasSuffix(domain, ".k8s.io")
}
