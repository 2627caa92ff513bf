package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// autoscaler makes an HPA for the cluster. There are no metrics here, so it scales only
// by its bounds.
func (w *world) autoscaler(least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	w.Helper()
	h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: cachev1alpha1.GroupVersion.String(), Kind: "Memcached", Name: name,
		},
		MinReplicas: ptr.To(least), MaxReplicas: most,
	}}
	h.Name = name
	w.create(h)
	return h
}

func TestAutoscalerScalesThroughDrains(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	h := w.autoscaler(3, 5)
	w.settled(3)
	w.eventually("the autoscaler reads the scale", func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(h), h); err != nil {
			return err
		}
		for _, c := range h.Status.Conditions {
			// Without metrics the autoscaler can't do more. If the selector were wrong, it would say
			// InvalidSelector.
			if c.Type == autoscalingv2.ScalingActive && c.Reason == "FailedGetResourceMetric" && h.Status.CurrentReplicas == 3 {
				return nil
			}
		}
		return fmt.Errorf("%s", asJSON(h.Status))
	})

	kubes.Play(w.namespace, player.Hang)
	left := w.claim(2)
	w.change(h, `{"spec":{"minReplicas":1,"maxReplicas":2}}`)
	w.drainRuns(left.UID)
	w.selectorIsTheMembers()
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(2, left.UID)
	m := w.settled(2)
	equal(w, "the drain", m.Status.LastDrains[0].Added, int64(7))
}

// selectorIsTheMembers checks that the selector selects all members, and nothing else: an autoscaler averages
// over the pods that it selects.
func (w *world) selectorIsTheMembers() {
	w.Helper()
	selector, err := labels.Parse(w.memcached().Status.Selector)
	if err != nil {
		w.Fatal(err)
	}
	var pods corev1.PodList
	w.list(&pods, client.MatchingLabelsSelector{Selector: selector})
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	equal(w, "pods of status.selector, beside a drainer", names, []string{"cache-0", "cache-1"})
}

func TestFlappingAutoscalerLosesNothing(t *testing.T) {
	tier.Second(t, "TestAutoscalerScalesThroughDrains")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	h := w.autoscaler(1, 3)
	for i := range 6 {
		size := int32(2 + i%2)
		w.change(h, fmt.Sprintf(`{"spec":{"minReplicas":%d,"maxReplicas":%d}}`, size, size))
		w.eventually(fmt.Sprintf("the autoscaler wants %d", size), func() error {
			if n := *w.memcached().Spec.Size; n != size {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	m := w.settled(3)
	if len(m.Status.LastDrains) == 0 {
		w.Fatal(errors.New("nothing was drained"))
	}
	for _, d := range m.Status.LastDrains {
		equal(w, "how claim "+d.ClaimUID+" went", d.Result, "Drained")
	}
}
