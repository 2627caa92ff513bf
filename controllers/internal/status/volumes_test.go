package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

func TestVolumesSizedTellsWhatGrowsAndWhatMayNot(t *testing.T) {
	small := func(in *Input) {
		in.Plan.SmallClaims = []action.ClaimRef{{Name: "data-cache-1"}, {Name: "data-cache-0"}}
	}
	kept := func(in *Input) { in.Plan.KeepsTemplate = true }
	refused := func(in *Input) { in.GrowthRefused = "the class says no" }
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
		// progressing is the reason of the condition Progressing.
		progressing string
	}{
		"as wanted":     {input(2), cachev1alpha1.ReasonSizedAsWanted, "no volume", cachev1alpha1.ReasonAsWanted},
		"growing":       {input(2).with(small), cachev1alpha1.ReasonVolumesGrow, "2 volumes are smaller than storage.size, the first is that of claim data-cache-0", cachev1alpha1.ReasonAsWanted},
		"no room":       {input(2).with(small).with(kept), cachev1alpha1.ReasonVolumesGrow, "memory does not fit", cachev1alpha1.ReasonVolumesGrow},
		"refused":       {input(2).with(small).with(refused), cachev1alpha1.ReasonVolumesCannotGrow, "2 volumes are smaller than storage.size, and can't grow: the class says no", cachev1alpha1.ReasonAsWanted},
		"refused, kept": {input(2).with(small).with(refused).with(kept), cachev1alpha1.ReasonVolumesCannotGrow, "memory does not fit", cachev1alpha1.ReasonVolumesCannotGrow},
		"refused once":  {input(2).with(refused), cachev1alpha1.ReasonSizedAsWanted, "no volume", cachev1alpha1.ReasonAsWanted},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionVolumesSized)
			if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
				t.Fatalf("got %+v, want %s with %q", c, test.reason, test.message)
			}
			if sized := c.Status == "True"; sized != (test.reason == cachev1alpha1.ReasonSizedAsWanted) {
				t.Errorf("%s is %s", c.Reason, c.Status)
			}
			if p := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing); p.Reason != test.progressing {
				t.Errorf("progressing: %+v", p)
			}
		})
	}
}
