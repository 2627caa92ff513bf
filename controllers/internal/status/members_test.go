package status

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TestTheMembersThatAreNotReadyAreNamed: three at most, and only wanted ones.
func TestTheMembersThatAreNotReadyAreNamed(t *testing.T) {
	unready := func(ordinals ...int32) func(*Input) {
		return func(in *Input) {
			for _, i := range ordinals {
				in.Pods[i] = pod(i, false)
			}
		}
	}
	ends := func(ordinal int32) func(*Input) {
		return func(in *Input) { in.Pods[ordinal].DeletionTimestamp = &metav1.Time{Time: now} }
	}
	failed := func(ordinal int32) func(*Input) {
		return func(in *Input) { in.Pods[ordinal].Status.Phase = corev1.PodFailed }
	}
	plain := func(in *Input) {
		in.Cluster.Spec.Storage = nil
		for i := range in.Pods {
			in.Pods[i].Name = fmt.Sprintf("cache-5d9f8-%c", 'x'+i)
		}
	}
	size := func(n int32) func(*Input) {
		return func(in *Input) { in.Cluster.Spec.Size = ptr.To(n) }
	}
	for name, test := range map[string]struct {
		in        *Input
		available string
		scaling   string
	}{
		"one":                     {input(3).with(unready(1)), "2 of 3 members are ready; not ready: cache-1", "3 members exist, 2 are ready, 3 are wanted; not ready: cache-1"},
		"in their order":          {input(11).with(unready(10, 2)), "9 of 11 members are ready; not ready: cache-2, cache-10", "11 members exist, 9 are ready, 11 are wanted; not ready: cache-2, cache-10"},
		"three":                   {input(3).with(unready(0, 1, 2)), "0 of 3 members are ready; not ready: cache-0, cache-1, cache-2", "3 members exist, 0 are ready, 3 are wanted; not ready: cache-0, cache-1, cache-2"},
		"more than three":         {input(5).with(unready(0, 1, 2, 3, 4)), "0 of 5 members are ready; not ready: cache-0, cache-1, cache-2 and 2 more", "5 members exist, 0 are ready, 5 are wanted; not ready: cache-0, cache-1, cache-2 and 2 more"},
		"one that restarts":       {input(2).with(ends(1)), "1 of 2 members are ready; not ready: cache-1", "1 members exist, 1 are ready, 2 are wanted; not ready: cache-1"},
		"one that ended":          {input(2).with(failed(1)), "1 of 2 members are ready; not ready: cache-1", "1 members exist, 1 are ready, 2 are wanted; not ready: cache-1"},
		"one that leaves":         {input(3).with(unready(0, 2)).with(ends(2)).with(size(2)), "1 of 2 members are ready; not ready: cache-0", "2 members exist, 1 are ready, 2 are wanted; not ready: cache-0"},
		"one that is yet to come": {input(2).with(size(3)), "2 of 3 members are ready", "2 members exist, 2 are ready, 3 are wanted"},
		"without storage":         {input(3).with(unready(1)).with(plain), "2 of 3 members are ready; not ready: cache-5d9f8-y", "3 members exist, 2 are ready, 3 are wanted; not ready: cache-5d9f8-y"},
		"without storage, one that another one replaces": {input(3).with(plain).with(ends(1)), "2 of 3 members are ready", "2 members exist, 2 are ready, 3 are wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := compute(t, test.in).Conditions
			for kind, want := range map[string]string{
				cachev1alpha1.ConditionAvailable:   test.available,
				cachev1alpha1.ConditionProgressing: test.scaling,
				cachev1alpha1.ConditionReady:       test.scaling,
			} {
				if c := meta.FindStatusCondition(conditions, kind); c.Message != want {
					t.Errorf("%s: %q, want %q", kind, c.Message, want)
				}
			}
		})
	}
}
