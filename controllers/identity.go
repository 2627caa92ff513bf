package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/controllers/internal/trim"
)

// Whose an object is (invariant 12). A label can be copied, lost and rewritten by
// anybody, so it is never proof:
//
//	what the operator makes   the UID of its controller is the Memcached's
//	a member's pod            the UID of its controller is the StatefulSet's
//	a drainer's pod           its controller is a Job, of that UID where it counts as proof
//	a member's claim          its name, as Kubernetes has it: a StatefulSet takes any
//	                          claim of the right name, whoever made it; and once it has
//	                          our finalizer, whoever controls it
//
// What has no controller may be adopted where Kubernetes would: an object that a
// deleted Memcached of this name has left (kubectl delete --cascade=orphan).

// owns tells whether the cluster controls the object. Of a Memcached that is gone only
// the name is known.
func owns(cluster *cachev1alpha1.Memcached, object metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || cluster.UID != "" {
		return ref != nil && ref.UID == cluster.UID
	}
	return ref.Name == cluster.Name && build.IsMemcached(ref)
}

// mine tells whether the object, which has a name of the cluster's, is the cluster's:
// it controls it, or nobody does and its labels are left from a Memcached of this name.
func mine(cluster *cachev1alpha1.Memcached, object metav1.Object) bool {
	if metav1.GetControllerOfNoCopy(object) != nil {
		return owns(cluster, object)
	}
	labels := object.GetLabels()
	if of, is := labels[cachev1alpha1.LabelCluster]; is {
		return of == cluster.Name
	}
	// Operators before LabelCluster went by these.
	return labels[cachev1alpha1.LabelManagedBy] == cachev1alpha1.ManagedBy && labels[cachev1alpha1.LabelInstance] == cluster.Name
}

// own reads the cluster's object of that name from the cache; nil where there is none,
// or somebody else's. One whose content the cache does not keep, because it has still to
// be adopted or is large, is read live.
func own[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *MemcachedReconciler, cluster *cachev1alpha1.Memcached, name string) (P, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: name}
	object, err := get[T, P](ctx, r.Client, key)
	if err == nil && object != nil && mine(cluster, object) && !trim.Whole(object) {
		object, err = get[T, P](ctx, r.Live, key)
	}
	if err != nil || object == nil || !mine(cluster, object) {
		return nil, err
	}
	return object, nil
}

// surely is own for what a plan rests on: what the cache lacks is read live. Where it is
// there all the same, the cache is behind, or its label is gone: then it is among
// o.unlabelled.
func surely[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *MemcachedReconciler, o *observed, name string) (P, error) {
	cluster := o.cluster
	object, err := own[T, P](ctx, r, cluster, name)
	if err != nil || object != nil || cluster.UID == "" {
		return object, err
	}
	live, err := get[T, P](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
	if err != nil || live == nil || !mine(cluster, live) {
		return nil, err
	}
	o.unlabelled = append(o.unlabelled, live)
	return live, nil
}

// label puts the label back on objects of the cluster that the cache doesn't have, and
// holds those claims for it that were there before their members. Before that nobody can
// say what belongs to the cluster. For a paused one nothing is written.
func (r *MemcachedReconciler) label(ctx context.Context, o *observed) error {
	if paused(o.cluster) {
		return nil
	}
	var failed error
	for _, object := range o.unlabelled {
		failed = errors.Join(failed, r.putLabel(ctx, object, o.cluster.Name))
	}
	if o.found != nil {
		failed = errors.Join(failed, r.adopt(ctx, o.cluster, o.found))
	}
	return failed
}

// putLabel makes the object one that the cache selects.
func (r *MemcachedReconciler) putLabel(ctx context.Context, object client.Object, cluster string) error {
	if object.GetLabels()[cachev1alpha1.LabelCluster] == cluster {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cachev1alpha1.LabelCluster] = cluster
	object.SetLabels(labels)
	// Under a lock: what was looked at is what is labelled.
	return r.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// memberPod tells whether the pod is a member's. One without a controller is the
// StatefulSet's, if it has a member's name: its controller adopts it.
func memberPod(o *observed, pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if o.cluster.Spec.Storage == nil {
		return ref != nil && ref.Kind == "ReplicaSet" && strings.HasPrefix(ref.Name, o.cluster.Name+"-")
	}
	if _, named := build.PodOrdinal(o.cluster.Name, pod.Name); ref == nil || !named {
		return named
	}
	return ref.Kind == "StatefulSet" && ref.Name == o.cluster.Name && (o.statefulSet == nil || ref.UID == o.statefulSet.UID)
}

// drainerPod tells whether the pod may be of a drainer's Job, which may be gone: whether
// that Job is the cluster's, if there is one, is for dropForeign to say.
func drainerPod(pod *corev1.Pod) bool {
	ref, d := metav1.GetControllerOfNoCopy(pod), duties(pod)
	return ref != nil && ref.Kind == "Job" && d != duty{} && strings.HasSuffix(ref.Name, d.jobName())
}

// ownJob tells whether the Job drains, or moves items between members, for the cluster:
// the cluster controls it, and its annotations say what it does. Of a Memcached that is
// deleted, the garbage collector may have taken the controller off (--cascade=orphan):
// then the label and the name have to be the operator's.
func ownJob(cluster *cachev1alpha1.Memcached, job *batchv1.Job) bool {
	d := duties(job)
	if d == (duty{}) || metav1.GetControllerOfNoCopy(job) != nil || cluster.DeletionTimestamp == nil {
		return d != duty{} && owns(cluster, job)
	}
	return job.Labels[cachev1alpha1.LabelCluster] == cluster.Name && strings.HasSuffix(job.Name, d.jobName())
}

// ownClaim tells whether the claim's name is that of a member's claim, and that it is held
// for the cluster, or that nobody else controls it. Its member, or the StatefulSet, may:
// Kubernetes makes them its owners where somebody told the StatefulSet to delete claims.
func ownClaim(cluster string, claim *corev1.PersistentVolumeClaim) bool {
	if of, ok := build.ClaimCluster(claim.Name); !ok || of != cluster {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(claim)
	switch {
	case ref == nil, controllerutil.ContainsFinalizer(claim, cachev1alpha1.ClaimFinalizer):
		return true
	case ref.Kind == "Pod":
		_, member := build.PodOrdinal(cluster, ref.Name)
		return member
	}
	return ref.Kind == "StatefulSet" && ref.Name == cluster
}

// taken is the error where somebody else's object has a name that the cluster needs.
func taken(object client.Object) error {
	return &status.NameTakenError{Kind: kindOf(object), Name: object.GetName(), By: controllerOf(object)}
}

// controllerOf names who controls the object; empty for nobody.
func controllerOf(object metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	}
	return ""
}
