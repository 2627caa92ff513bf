package read

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
)

// Owner is the owner of claims, Jobs and pods: a Memcached, or a StatefulSetDrain.
type Owner struct {
	// Object is the Memcached or the StatefulSetDrain, and Kind the word for it in messages.
	Object client.Object
	Kind   string
	// Label is on its claims and Jobs; the value is the name of Object. Cached finds them in the
	// cache, and Pods finds live the pods that may use the claims.
	Label  string
	Cached client.ListOption
	Pods   []client.ListOption
	// PodName is the name of the pod of the member with this ordinal.
	PodName func(ordinal int32) string
	// Named tells whether a claim with this name may be a member's, or an aside claim. Owns tells
	// whether such a claim is the owner's.
	Named func(claim string) bool
	Owns  func(*corev1.PersistentVolumeClaim) bool
	// Claim translates a claim, with the marks that only this kind of owner writes on it; false if it is no
	// member's. See package function Claim.
	Claim func(*corev1.PersistentVolumeClaim) (claims.Claim, bool)
	// OwnsJob tells whether the Job is the owner's.
	OwnsJob func(*batchv1.Job) bool
	// Receipt returns the report that the drainer of this pod of the Job, which has ended, has left. An error
	// says why the report doesn't count.
	Receipt func(*batchv1.Job, *corev1.Pod) (*action.Receipt, error)
	// Grace is the grace period that the template of drainers' pods gives, in seconds; 0 if it gives
	// none. MoreMemory says what to change if a drainer is killed for lack of memory.
	Grace      int64
	MoreMemory string
}

// key names the owner.
func (o *Owner) key() client.ObjectKey { return client.ObjectKeyFromObject(o.Object) }

// is names the owner in errors.
func (o *Owner) is() string { return o.Kind + " " + o.Object.GetName() }

// NameTaken returns an error about an object of another owner.
func (o *Owner) NameTaken(object client.Object) error { return identity.NameTakenFor(o.Kind, object) }

// find are the options that find the owner's objects by its label.
func (o *Owner) find() []client.ListOption {
	return []client.ListOption{client.InNamespace(o.Object.GetNamespace()), client.MatchingLabels{o.Label: o.Object.GetName()}}
}

// finds tells whether the cache finds the claim for the owner: among all that have the label, by the name, or by the
// label's value. Then another owner's name in the label hides a claim.
func (o *Owner) finds(claim *corev1.PersistentVolumeClaim) bool {
	value, labelled := claim.Labels[o.Label]
	_, byValue := o.Cached.(client.MatchingLabels)
	return labelled && (!byValue || value == o.Object.GetName())
}
