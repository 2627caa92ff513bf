package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

// TestWarmNamesTheMembersThatStartedCold by their containers' termination messages.
func TestWarmNamesTheMembersThatStartedCold(t *testing.T) {
	const cold = `{"coldStartNeedsBytes":134217728,"freeBytes":66060288}`
	ended := func(ordinal int, message string) func(*Input) {
		return func(in *Input) {
			in.Pods[ordinal].Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "memcached", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Message: message}},
			}}
		}
	}
	foretold := func(in *Input) {
		in.Pods[1].Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: "install", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: cold}},
		}}
	}
	besides := func(in *Input) {
		s := &in.Pods[1].Status
		another := corev1.ContainerStatus{Name: "before", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "well"}}}
		s.InitContainerStatuses = append([]corev1.ContainerStatus{another}, s.InitContainerStatuses...)
	}
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
	}{
		"never ended":            {input(2), cachev1alpha1.ReasonKeptCache, "no member"},
		"saved":                  {input(2).with(ended(1, "")), cachev1alpha1.ReasonKeptCache, "no member"},
		"something else":         {input(2).with(ended(1, `{"exitCode":1}`)), cachev1alpha1.ReasonKeptCache, "no member"},
		"no room":                {input(2).with(ended(1, cold)), cachev1alpha1.ReasonStartedCold, "cache-1 (needs 128 MiB, has 63 MiB)"},
		"it could not save":      {input(2).with(ended(1, `{"saveOutdated":true,"saveError":"no space left on device"}`)), cachev1alpha1.ReasonStartedCold, "cache-1 (its last pod could not save: no space left on device)"},
		"lost with its pod":      {input(2).with(ended(1, `{"saveOutdated":true}`)), cachev1alpha1.ReasonStartedCold, "cache-1 (its last pod was lost without a save)"},
		"a part of its save":     {input(2).with(ended(1, `{"saveIncomplete":"its save was cut short: 5 of 9 pages are missing"}`)), cachev1alpha1.ReasonStartedCold, "cache-1 (it has only a part of its items: its save was cut short: 5 of 9 pages are missing)"},
		"a new pod":              {input(2).with(foretold), cachev1alpha1.ReasonStartedCold, "cache-1 (needs"},
		"another init container": {input(2).with(foretold).with(besides), cachev1alpha1.ReasonStartedCold, "cache-1 (needs"},
		"saved in a new pod":     {input(2).with(foretold).with(ended(1, "")), cachev1alpha1.ReasonKeptCache, "no member"},
		"room":                   {input(2).with(ended(1, `{"coldStartNeedsBytes":5,"freeBytes":5}`)), cachev1alpha1.ReasonKeptCache, "no member"},
		"many":                   {input(5).with(ended(0, cold)).with(ended(1, cold)).with(ended(2, cold)).with(ended(4, cold)), cachev1alpha1.ReasonStartedCold, "and 1 more"},
		"others to be moved":     {input(2).with(func(in *Input) { in.Plan.Moves = make([]plan.MoveState, 3) }), cachev1alpha1.ReasonMoving, "not moved yet: 3;"},
	} {
		t.Run(name, func(t *testing.T) {
			c := meta.FindStatusCondition(compute(t, test.in).Conditions, cachev1alpha1.ConditionWarm)
			if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
				t.Fatalf("got %+v, want %s with %q", c, test.reason, test.message)
			}
			if warm := c.Status == "True"; warm != (test.reason == cachev1alpha1.ReasonKeptCache) {
				t.Errorf("%s is %s", c.Reason, c.Status)
			}
		})
	}
}
