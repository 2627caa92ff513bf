package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

func TestProgressingTellsWhichVolumesGrowAndWhichMayNot(t *testing.T) {
	small := func(in *Input) {
		in.Plan.SmallClaims = []action.ClaimRef{{Name: "data-cache-1"}, {Name: "data-cache-0"}}
		in.Cluster.Spec.Memory = ptr.To(resource.MustParse("96Mi"))
	}
	kept := func(in *Input) { in.Plan.KeepsTemplate = true }
	waits := func(in *Input) { in.Plan.GrowthWaits = true }
	refused := func(in *Input) { in.GrowthRefused = "the class says no" }
	const asWanted, grow, wait, cannot = cachev1alpha1.ReasonAsWanted, cachev1alpha1.ReasonVolumesGrow, cachev1alpha1.ReasonVolumesWait, cachev1alpha1.ReasonVolumesCannotGrow
	for name, test := range map[string]struct {
		in      *Input
		is      metav1.ConditionStatus
		reason  string
		message string
		// degraded has the reason and the message, too.
		degraded bool
	}{
		"as wanted":           {input(2), "False", asWanted, "", false},
		"growing":             {input(2).with(small), "True", grow, "2 volumes are smaller than storage.size, the first is that of claim data-cache-0", false},
		"no room":             {input(2).with(small).with(kept), "True", grow, "memory does not fit", false},
		"no member has tried": {input(2).with(small).with(waits), "True", wait, "they do when the first member with it is ready", false},
		"the first one tries": {input(2).with(small).with(waits).with(func(in *Input) { in.MembersWritten = true }), "True", cachev1alpha1.ReasonRolling, "2 volumes are to grow", false},
		"no member can try":   {input(2).with(small).with(waits).with(kept), "False", wait, "memory 96Mi does not fit on 2 volumes", true},
		"refused":             {input(2).with(small).with(refused), "False", cannot, "2 volumes are smaller than storage.size, and can't grow: the class says no", true},
		"refused, kept":       {input(2).with(small).with(refused).with(kept), "False", cannot, "memory does not fit", true},
		"refused once":        {input(2).with(refused), "False", asWanted, "", false},
		"hibernated":          {input(0).with(small).with(kept), "False", asWanted, "", false}, // they grow when a pod uses them
		"hibernated, refused": {input(0).with(small).with(kept).with(refused), "False", asWanted, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			p := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing)
			if p.Status != test.is || p.Reason != test.reason || !strings.Contains(p.Message, test.message) {
				t.Errorf("got %+v, want %s with %q", p, test.reason, test.message)
			}
			d := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded)
			if test.degraded != (d.Status == metav1.ConditionTrue) || test.degraded && p.Reason != asWanted && (d.Reason != p.Reason || d.Message != p.Message) {
				t.Errorf("Degraded: %+v", d)
			}
		})
	}
}
