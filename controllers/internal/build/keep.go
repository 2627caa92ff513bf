package build

import (
	appsv1 "k8s.io/api/apps/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// KeepClaimTemplates keeps a StatefulSet's claim templates, which can't change. The live object is their
// source, because a restored backup doesn't have its managed fields.
func KeepClaimTemplates(desired *appsac.StatefulSetApplyConfiguration, live *appsv1.StatefulSet) {
	desired.Spec.VolumeClaimTemplates = nil
	for i := range live.Spec.VolumeClaimTemplates {
		desired.Spec.WithVolumeClaimTemplates(convert[coreac.PersistentVolumeClaimApplyConfiguration](&live.Spec.VolumeClaimTemplates[i]))
	}
}
