package build

import (
	appsv1 "k8s.io/api/apps/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// KeepClaimTemplates leaves a StatefulSet's templates of claims as they were born: they
// can't change, and what is built now may be others. They are taken from the object
// itself: who applied them is forgotten where it was restored from a backup.
func KeepClaimTemplates(desired *appsac.StatefulSetApplyConfiguration, live *appsv1.StatefulSet) {
	desired.Spec.VolumeClaimTemplates = nil
	for i := range live.Spec.VolumeClaimTemplates {
		desired.Spec.WithVolumeClaimTemplates(convert[coreac.PersistentVolumeClaimApplyConfiguration](&live.Spec.VolumeClaimTemplates[i]))
	}
}
