package apply

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

// event tells of a write that succeeded.
func (a *Applier) event(cluster *cachev1alpha1.Memcached, reason, action, note string, args ...any) {
	a.Events.Eventf(cluster, nil, corev1.EventTypeNormal, reason, action, note, args...)
}

// claimEvent tells of a write that succeeded, about one of the claims.
func (a *Applier) claimEvent(cluster *cachev1alpha1.Memcached, claim plan.ClaimRef, reason, action, note string, args ...any) {
	if cluster.UID == "" {
		return // nobody would find it
	}
	a.Events.Eventf(cluster, RelatedClaim(cluster, claim.Name), corev1.EventTypeNormal, reason, action, note, args...)
}

// RelatedClaim tells the events of one drain from those of another: the recorder
// takes two that differ in their note only for one that came twice, and keeps
// the first one's note.
func RelatedClaim(cluster *cachev1alpha1.Memcached, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
}
