// Package identity tells which cluster an object belongs to. Package identity is pure.
package identity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// The owner of an object (invariant 12). Any client can copy, remove or change a label, so a label
// is never proof:
//
//	what the operator makes   the UID of its controller is the Memcached's
//	a member's pod            the UID of its controller is the StatefulSet's
//	a drainer's pod           its controller is a Job; a receipt also needs the Job's UID
//	a member's claim          its name, because a StatefulSet uses any claim of the right
//	                          name; with our finalizer, any controller
//
// An object without a controller may be adopted, as in Kubernetes: a deleted Memcached of this name
// has left it (kubectl delete --cascade=orphan).

// Owns tells whether the cluster controls the object. If the Memcached is gone, only its
// name is known.
func Owns(cluster *cachev1alpha1.Memcached, object metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || cluster.UID != "" {
		return ref != nil && ref.UID == cluster.UID
	}
	return ref.Name == cluster.Name && build.IsMemcached(ref)
}

// OwnsOrAdopts tells whether an object with one of the cluster's names belongs to the cluster or
// may be adopted: the cluster controls it, or it has no controller and its label is from a
// Memcached of this name.
func OwnsOrAdopts(cluster *cachev1alpha1.Memcached, object metav1.Object) bool {
	if metav1.GetControllerOfNoCopy(object) != nil {
		return Owns(cluster, object)
	}
	return object.GetLabels()[cachev1alpha1.LabelCluster] == cluster.Name
}

// MemberPod tells whether the pod is a member's, and controlled by the StatefulSet if there is one.
// A pod without a controller counts if it has a member's name, because the StatefulSet adopts it.
func MemberPod(cluster *cachev1alpha1.Memcached, set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if cluster.Spec.Storage == nil {
		return ref != nil && ref.Kind == "ReplicaSet" && strings.HasPrefix(ref.Name, cluster.Name+"-")
	}
	if _, named := build.PodOrdinal(cluster.Name, pod.Name); ref == nil || !named {
		return named
	}
	return ref.Kind == "StatefulSet" && ref.Name == cluster.Name && (set == nil || ref.UID == set.UID)
}

// RouterPod tells whether the pod is controlled by a ReplicaSet of the routers' Deployment.
func RouterPod(cluster *cachev1alpha1.Memcached, pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == "ReplicaSet" && strings.HasPrefix(ref.Name, build.RouterName(cluster.Name)+"-")
}

// DrainerPod tells whether the pod may belong to a drainer's Job, even if the Job is gone. The
// owner of the Job is checked later (dropForeign).
func DrainerPod(pod *corev1.Pod) bool {
	ref, d := metav1.GetControllerOfNoCopy(pod), DutyOf(pod)
	return ref != nil && ref.Kind == "Job" && ref.APIVersion == batchv1.SchemeGroupVersion.String() && d != Duty{} && strings.HasSuffix(ref.Name, d.jobName())
}

// OwnJob tells whether the Job drains or moves for the cluster: the cluster controls it, and its
// annotations say what it does. When a Memcached is deleted with --cascade=orphan, the garbage
// collector removes the controller; then the label and the name have to be the operator's.
func OwnJob(cluster *cachev1alpha1.Memcached, job *batchv1.Job) bool {
	d := DutyOf(job)
	if d == (Duty{}) || metav1.GetControllerOfNoCopy(job) != nil || cluster.DeletionTimestamp == nil {
		return d != Duty{} && Owns(cluster, job)
	}
	return job.Labels[cachev1alpha1.LabelCluster] == cluster.Name && strings.HasSuffix(job.Name, d.jobName())
}

// OwnClaim tells whether the claim has the name of a member's claim, and either has our finalizer
// or is controlled by no other owner. Its pod and its StatefulSet may control it, because
// Kubernetes makes them its owners if the StatefulSet's retention policy is to delete claims.
func OwnClaim(cluster string, claim *corev1.PersistentVolumeClaim) bool {
	if of, ok := build.ClaimCluster(claim.Name); !ok || of != cluster {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(claim)
	switch {
	case ref == nil, slices.Contains(claim.Finalizers, cachev1alpha1.ClaimFinalizer):
		return true
	case ref.Kind == "Pod":
		_, member := build.PodOrdinal(cluster, ref.Name)
		return member
	}
	return ref.Kind == "StatefulSet" && ref.Name == cluster
}

// NameTakenError means that another owner's object has a name that a Memcached or a StatefulSetDrain
// (Needs) needs. By is its controller, if it has one.
type NameTakenError struct{ Needs, Kind, Name, By string }

func (e *NameTakenError) Error() string {
	by := ""
	if e.By != "" {
		by = ", but that of " + e.By
	}
	needs := cmp.Or(e.Needs, "Memcached")
	return fmt.Sprintf("%s %s exists and is not this %s's%s: delete it, or give the %s another name", e.Kind, e.Name, needs, by, needs)
}

// NameTaken returns a NameTakenError about an object that the Memcached needs.
func NameTaken(object metav1.Object) error { return NameTakenFor("Memcached", object) }

// NameTakenFor returns a NameTakenError about an object that an owner of this kind needs.
func NameTakenFor(kind string, object metav1.Object) error {
	return &NameTakenError{Needs: kind, Kind: KindOf(object), Name: object.GetName(), By: ControllerOf(object)}
}

// KindOf is the kind of an object of a built-in type.
func KindOf(object metav1.Object) string {
	kind := fmt.Sprintf("%T", object)
	return kind[strings.LastIndexByte(kind, '.')+1:]
}

// ControllerOf names the object's controller; empty if it has none.
func ControllerOf(object metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	}
	return ""
}

// ClusterName returns the name of the cluster that an object may belong to, none or one. The name
// comes from a claim's own name, from a Job's controller, or from the label of a pod or of a Job
// without a controller.
func ClusterName(o metav1.Object) []string {
	name := ""
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		name, _ = build.ClaimCluster(o.Name)
	case *batchv1.Job:
		if ref := metav1.GetControllerOfNoCopy(o); ref == nil {
			name = o.Labels[cachev1alpha1.LabelCluster]
		} else if build.IsMemcached(ref) {
			name = ref.Name
		}
	default:
		name = o.GetLabels()[cachev1alpha1.LabelInstance]
	}
	if name == "" {
		return nil
	}
	return []string{name}
}
