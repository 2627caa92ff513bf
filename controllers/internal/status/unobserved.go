package status

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Unobserved changes the status of a cluster that could not be observed, because of a refusal or an
// error. The status stays, but it no longer says that all is well.
func Unobserved(cluster *cachev1alpha1.Memcached, why error, refusal bool, now time.Time) {
	reason := errorReason(why)
	if refusal {
		reason = cachev1alpha1.ReasonStepRefused
	}
	for kind, value := range map[string]bool{cachev1alpha1.ConditionDegraded: true, cachev1alpha1.ConditionReady: false} {
		c := condition(kind, value, reason, "%v", why)
		c.ObservedGeneration, c.LastTransitionTime = cluster.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&cluster.Status.Conditions, c)
	}
	if cluster.DeletionTimestamp == nil {
		cluster.Status.Phase = cachev1alpha1.PhaseDegraded
	}
}
