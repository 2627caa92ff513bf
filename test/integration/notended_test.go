package integration

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
)

// denyPodDeletes makes the API server refuse, with this message, to delete the namespace's pods, until allow.
func (w *world) denyPodDeletes(pod, words string) (allow func()) {
	w.Helper()
	return w.denyAs(admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}, words, func() error {
		return admin.Delete(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod}}, client.DryRunAll)
	})
}

// A policy may keep a member's pod from being deleted. Status says so, in the API server's words.
func TestAnEndOfAMemberThatIsDeniedIsNamed(t *testing.T) {
	const words = "pods end in the evening only"
	t.Run("Memcached", func(t *testing.T) {
		w := newWorld(t)
		w.storageCluster(apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Moves = cachev1alpha1.MovesOff }), 3)
		was := w.claim(2)
		allow := w.denyPodDeletes(name+"-2", words)
		w.scale(2)
		w.eventually("the denial in status", func() error {
			m := w.memcached()
			for _, d := range m.Status.Drains {
				if strings.Contains(d.Message, "member 2 is not shut down: ") && strings.Contains(d.Message, words) {
					return nil
				}
			}
			return fmt.Errorf("drains are %s", asJSON(m.Status.Drains))
		})
		allow()
		w.claimGone(2, was.UID)
	})
	t.Run("StatefulSetDrain", func(t *testing.T) {
		w := queueWorld(t)
		kubes.Play(w.namespace, allMoved)
		allow := w.denyPodDeletes("queue-2", words)
		w.scaleQueue(2)
		w.stsDrainSays("Progressing", "True", cachev1alpha1.ReasonDraining, "member 2 is not shut down: ", words)
		allow()
		w.queueIsWell("it is drained", "data-queue-0", "data-queue-1")
	})
}

// The mark is taken off before the status is written. The row of a member that has returned is written when the API
// server takes a status again.
func TestTheRowOfAMemberThatReturnedOutlivesAStatusThatIsDenied(t *testing.T) {
	w := queueWorld(t)
	kubes.Linger(w.namespace, true)
	w.scaleQueue(2)
	w.stsDrainSays("Progressing", "True", cachev1alpha1.ReasonDraining, "member 2", "still shutting down")
	denied := make(chan struct{}, 1)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Resource == "statefulsetdrains/status" && strings.Contains(write.Body, "Returned") && len(denied) == 0 {
			denied <- struct{}{}
			return operator.Denied
		}
		return operator.NoFault
	})
	w.scaleQueue(3)
	w.eventually("it has returned", func() error {
		if got := w.results(); len(got) != 1 || got[0] != "2 Returned" {
			return fmt.Errorf("results %v", got)
		}
		return nil
	})
	if len(denied) == 0 {
		t.Error("no status was denied")
	}
}
