package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TestAdviceNamesTheMembersThatStartedCold by their containers' termination messages.
func TestAdviceNamesTheMembersThatStartedCold(t *testing.T) {
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
		in   *Input
		want string
	}{
		"another init container": {input(2).with(foretold).with(besides), "cache-1 (needs"},
		"never ended":            {input(2), ""},
		"saved":                  {input(2).with(ended(1, "")), ""},
		"something else":         {input(2).with(ended(1, `{"exitCode":1}`)), ""},
		"no room":                {input(2).with(ended(1, cold)), "cache-1 (needs 128 MiB, has 63 MiB)"},
		"it could not save":      {input(2).with(ended(1, `{"saveOutdated":true,"saveError":"no space left on device"}`)), "cache-1 (its last pod could not save: no space left on device)"},
		"lost with its pod":      {input(2).with(ended(1, `{"saveOutdated":true}`)), "cache-1 (its last pod was lost without a save)"},
		"a part of its save":     {input(2).with(ended(1, `{"saveIncomplete":"its save was cut short: 5 of 9 pages are missing"}`)), "cache-1 (it has only a part of its items: its save was cut short: 5 of 9 pages are missing)"},
		"a new pod":              {input(2).with(foretold), "cache-1 (needs"},
		"saved in a new pod":     {input(2).with(foretold).with(ended(1, "")), ""},
		"room":                   {input(2).with(ended(1, `{"coldStartNeedsBytes":5,"freeBytes":5}`)), ""},
		"many":                   {input(5).with(ended(0, cold)).with(ended(1, cold)).with(ended(2, cold)).with(ended(4, cold)), "and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			checkAdvice(t, compute(t, test.in).Advice, cachev1alpha1.ReasonStartedCold, test.want)
		})
	}
}
