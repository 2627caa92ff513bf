package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// The node decides which settings a member can't have: Degraded says which one to lower.
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
		cluster := apitest.MakeMemcached("cache").Defaulted().Obj()
		cluster.Spec.Resources.Limits = ofMemory
		if got := looping(cluster, &c, &test.ended, true); !strings.Contains(got.message, test.want) {
			t.Errorf("%s: %q, want %q", name, got.message, test.want)
		}
	}
}

var ofMemory = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("96Mi")}

// A container that is killed for its memory says which limit that is, where the spec has one.
func TestAContainerThatRunsOutOfMemorySaysWhoseLimitItIs(t *testing.T) {
	for container, field := range map[string]string{
		"memcached": "spec.resources", "install": "spec.resources", "router": "spec.router.resources",
	} {
		for limits, want := range map[bool]string{true: "; raise " + field + ".limits.memory", false: "; " + field + " has no memory limit: the limit is that of a LimitRange"} {
			c := apitest.MakeMemcached("cache").Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
				s.Router = &cachev1alpha1.RouterSpec{}
			}).Defaulted().Obj()
			if limits {
				c.Spec.Resources.Limits, c.Spec.Router.Resources.Limits = ofMemory, ofMemory
			}
			killed := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
			if got := looping(c, &corev1.ContainerStatus{Name: container, RestartCount: 9}, killed, true).message; !strings.Contains(got, want) {
				t.Errorf("%s, with a limit %v: %q, want %q", container, limits, got, want)
			}
			if got := looping(c, &corev1.ContainerStatus{Name: "istio-proxy", RestartCount: 9}, killed, true).message; strings.Contains(got, "spec.") {
				t.Errorf("a container of others: %q", got)
			}
		}
	}
}

// The kubelet wants to know the user by number, which an image may not say.
func TestAnImageWhoseUserHasNoNumberSaysWhatToSet(t *testing.T) {
	const words = "container has runAsNonRoot and image has non-numeric user (memcache), cannot verify user is non-root"
	c := &corev1.ContainerStatus{Name: "memcached", State: waiting("CreateContainerConfigError", words)}
	got := containerTrouble(apitest.MakeMemcached("cache").Defaulted().Obj(), c, &waits{now: now})
	if got == nil || !strings.Contains(got.message, words+"; set spec.podTemplate.securityContext.runAsUser") || !strings.Contains(got.message, "--assigned-users=false") {
		t.Errorf("status says %+v", got)
	}
}
