package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// volumesSized tells whether the members' volumes are as large as the spec wants.
func volumesSized(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionVolumesSized
	small := in.Plan.SmallClaims
	if len(small) == 0 {
		return condition(kind, true, cachev1alpha1.ReasonSizedAsWanted, "no volume of a member is smaller than storage.size")
	}
	until := ""
	if in.Plan.KeepsTemplate {
		until = "; the members stay as they are until then, because memory does not fit"
	}
	if in.GrowthRefused != "" {
		return condition(kind, false, cachev1alpha1.ReasonVolumesCannotGrow,
			"%d volumes are smaller than storage.size, and can't grow: %s%s", len(small), in.GrowthRefused, until)
	}
	return condition(kind, false, cachev1alpha1.ReasonVolumesGrow,
		"%d volumes are smaller than storage.size, the first is that of claim %s: the storage has still to grow them%s",
		len(small), small[len(small)-1].Name, until)
}
