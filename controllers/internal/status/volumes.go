package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// growing is the condition Progressing while volumes are smaller than the spec wants; false if they can't
// grow without a person.
func growing(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionProgressing
	n := len(in.Plan.SmallClaims)
	switch {
	case in.Plan.GrowthWaits && in.Plan.KeepsTemplate:
		return condition(kind, false, cachev1alpha1.ReasonVolumesWait, "%s", memoryDoesNotFit(in))
	case in.Plan.GrowthWaits:
		return condition(kind, true, cachev1alpha1.ReasonVolumesWait, "the members are as wanted%s", volumesThatGrowLater(in))
	case in.GrowthRefused != "":
		return condition(kind, false, cachev1alpha1.ReasonVolumesCannotGrow, "%s", cannotGrow(in))
	}
	return condition(kind, true, cachev1alpha1.ReasonVolumesGrow,
		"%d volumes are smaller than storage.size, the first is that of claim %s: the storage has still to grow them%s",
		n, in.Plan.SmallClaims[n-1].Name, membersStay(in))
}

// volumesThatGrowLater says which volumes grow when a member runs with the new memory, as a part of what a
// roll-out says; empty if there are none.
func volumesThatGrowLater(in *Input) string {
	if !in.Plan.GrowthWaits || in.Plan.KeepsTemplate {
		return ""
	}
	return fmt.Sprintf("; %d volumes are to grow to %s each, because memory is %s: they do when the first member with it is ready, or when storage.size says so",
		len(in.Plan.SmallClaims), build.VolumeSize(in.Cluster), in.Cluster.Spec.Memory)
}

func memoryDoesNotFit(in *Input) string {
	return fmt.Sprintf("memory %s does not fit on %d volumes, so no member can try it, and a volume never shrinks again: set storage.size, to %s or to the size that volumes are to have, "+
		"or lower memory; the members stay as they are until then", in.Cluster.Spec.Memory, len(in.Plan.SmallClaims), build.VolumeSize(in.Cluster))
}

func cannotGrow(in *Input) string {
	return fmt.Sprintf("%d volumes are smaller than storage.size, and can't grow: %s%s", len(in.Plan.SmallClaims), in.GrowthRefused, membersStay(in))
}

// membersStay says that the members' pods change after the volumes; empty if they don't wait.
func membersStay(in *Input) string {
	if in.Plan.KeepsTemplate {
		return "; the members stay as they are until then, because memory does not fit"
	}
	return ""
}
