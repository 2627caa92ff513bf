package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What a member can't have depends on its node: Degraded says which setting to lower.
func TestAMemberThatTheNodeCannotHaveSaysWhichSettingToLower(t *testing.T) {
	for name, test := range map[string]struct {
		ended corev1.ContainerStateTerminated
		want  string
	}{
		"connections": {corev1.ContainerStateTerminated{ExitCode: 71, Message: "failed to set rlimit for open files. Try starting as root or requesting smaller maxconns value."}, "lower spec.maxConnections"},
		"memory":      {corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}, "raise spec.resources.limits.memory, or lower spec.memory"},
		"threads":     {corev1.ContainerStateTerminated{ExitCode: 1, Message: "Can't create thread: Resource temporarily unavailable"}, "lower spec.threads"},
	} {
		c := corev1.ContainerStatus{Name: "memcached", RestartCount: 9}
		if got := looping(&c, &test.ended, true); !strings.Contains(got.message, test.want) {
			t.Errorf("%s: %q, want %q", name, got.message, test.want)
		}
	}
}
