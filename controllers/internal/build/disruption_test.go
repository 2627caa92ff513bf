package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func TestEvictionsTakeOneMemberAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		size   int32
		budget cachev1alpha1.PodDisruptionBudgetSpec
		want   string
	}{
		"members step out": {3, cachev1alpha1.PodDisruptionBudgetSpec{Evictions: cachev1alpha1.EvictionsStepOut}, "0"},
		"of three":         {3, cachev1alpha1.PodDisruptionBudgetSpec{}, "1"},
		"of two":           {2, cachev1alpha1.PodDisruptionBudgetSpec{}, "1"},
		"of one":           {1, cachev1alpha1.PodDisruptionBudgetSpec{}, ""},
		"of none":          {0, cachev1alpha1.PodDisruptionBudgetSpec{}, ""},
		"switched off":     {3, cachev1alpha1.PodDisruptionBudgetSpec{Enabled: ptr.To(false)}, ""},
		"a share":          {9, cachev1alpha1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("34%"))}, "34%"},
	} {
		t.Run(name, func(t *testing.T) {
			b := DisruptionBudget(withStorage().Size(test.size).With(func(s *cachev1alpha1.MemcachedSpec) {
				s.PodDisruptionBudget = test.budget
			}).Defaulted().Obj(), test.budget.Evictions == cachev1alpha1.EvictionsStepOut)
			if b == nil {
				if test.want != "" {
					t.Fatal("there is none")
				}
				return
			}
			if got := b.Spec.MaxUnavailable.String(); got != test.want {
				t.Errorf("maxUnavailable %q, want %q", got, test.want)
			}
			if diff := cmp.Diff(Selector(withStorage().Obj()), b.Spec.Selector.MatchLabels); diff != "" {
				t.Errorf("selector: -want +got:\n%s", diff)
			}
		})
	}
}
