package apply

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
)

// event records an event about a write that succeeded.
func (a *Applier) event(cluster *cachev1alpha1.Memcached, reason, action, note string, args ...any) {
	a.Events.Eventf(cluster, nil, corev1.EventTypeNormal, reason, action, note, args...)
}

// claimEvent records an event about a write to one of the claims.
func (a *Applier) claimEvent(cluster *cachev1alpha1.Memcached, claim action.ClaimRef, reason, action, note string, args ...any) {
	if cluster.UID == "" {
		return // the Memcached is gone, so there is no object for the event
	}
	a.Events.Eventf(cluster, Related(cluster, claim.Name), corev1.EventTypeNormal, reason, action, note, args...)
}

// tellMoved records an event about how the mover of a leaving member has ended.
func (r *run) tellMoved(a action.DeleteJob) {
	switch {
	case a.Moved == nil && a.NotMoved == "": // not the mover of a leaving member
	case a.Moved == nil && r.cluster.Spec.InPods(): // status has its receipt, with or without a mover
	case a.Moved == nil:
		r.claimEvent(r.cluster, a.Claim, "NotMoved", "Move", "claim %s: not all items were moved while its member was leaving (%s): "+
			"clients miss the others until its volume is drained", a.Claim.Name, a.NotMoved)
	default:
		r.done.Moved = append(r.done.Moved, a.Moved)
		settled := ""
		if !plan.ReceiptNumbers(a.Moved).Settled {
			settled = "; clients still called it when spec.routing.patience was over"
		}
		r.claimEvent(r.cluster, a.Claim, "Moved", "Move", "%s %s: while its member was leaving, %s%s", r.holder(), a.Claim.Name, summary(a.Moved), settled)
	}
}

// Related is the holder of that name: the events of two members are kept apart.
func Related(cluster *cachev1alpha1.Memcached, name string) runtime.Object {
	if cluster.Spec.InPods() {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
	}
	return RelatedClaim(cluster, name)
}

// RelatedClaim keeps the events of two drains apart: the recorder counts two events that
// differ only in their note as one, and keeps the first note.
func RelatedClaim(cluster *cachev1alpha1.Memcached, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
}

func summary(of *action.Receipt) string {
	r := plan.ReceiptNumbers(of)
	return fmt.Sprintf("%d items found, %d added, %d already present, %d expired, %d invalidated, %d bytes",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.Bytes)
}
