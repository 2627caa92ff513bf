package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// volumesSized is the condition VolumesSized: whether the members' volumes are as large as the spec
// wants.
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
	if in.Plan.GrowthWaits {
		size, memory := build.VolumeSize(in.Cluster), in.Cluster.Spec.Memory
		if in.Plan.KeepsTemplate {
			return condition(kind, false, cachev1alpha1.ReasonVolumesWait,
				"memory %s does not fit on %d volumes, so no member can try it, and a volume never shrinks again: set storage.size, to %s or as large as they are to be, or lower memory; "+
					"the members stay as they are until then", memory, len(small), size)
		}
		return condition(kind, false, cachev1alpha1.ReasonVolumesWait,
			"%d volumes are to grow to %s each, because memory is %s: they do when the first member with it is ready, or when storage.size says so", len(small), size, memory)
	}
	if in.GrowthRefused != "" {
		return condition(kind, false, cachev1alpha1.ReasonVolumesCannotGrow,
			"%d volumes are smaller than storage.size, and can't grow: %s%s", len(small), in.GrowthRefused, until)
	}
	return condition(kind, false, cachev1alpha1.ReasonVolumesGrow,
		"%d volumes are smaller than storage.size, the first is that of claim %s: the storage has still to grow them%s",
		len(small), small[len(small)-1].Name, until)
}
