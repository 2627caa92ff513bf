package trim

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Bounds of a StatefulSet that a StatefulSetDrain names, and of its pods. Claims of more templates than
// MaxTemplates, and members by a selector that is larger than maxSelector bytes, can't be drained.
const (
	MaxTemplates = 16
	maxSelector  = 4 << 10
	maxClaims    = 2 * MaxTemplates
)

// Target keeps what decides about the claims of a StatefulSet that a StatefulSetDrain names.
func Target(object any) (any, error) {
	set, ok := object.(*appsv1.StatefulSet)
	if !ok {
		return object, nil
	}
	metadata(&set.ObjectMeta, ofTargets)
	s := &set.Spec
	kept := appsv1.StatefulSetSpec{
		Replicas: s.Replicas, Ordinals: s.Ordinals, ServiceName: name(s.ServiceName), PodManagementPolicy: appsv1.PodManagementPolicyType(name(string(s.PodManagementPolicy))),
	}
	if keep := s.PersistentVolumeClaimRetentionPolicy; keep != nil {
		kept.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(name(string(keep.WhenDeleted))),
			WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(name(string(keep.WhenScaled))),
		}
	}
	if s.Selector != nil && s.Selector.Size() <= maxSelector {
		kept.Selector = s.Selector
	}
	for i := range s.VolumeClaimTemplates[:min(len(s.VolumeClaimTemplates), MaxTemplates+1)] {
		template := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name(s.VolumeClaimTemplates[i].Name)}}
		if ptr.Deref(s.VolumeClaimTemplates[i].Spec.VolumeMode, "") == corev1.PersistentVolumeBlock {
			template.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		}
		kept.VolumeClaimTemplates = append(kept.VolumeClaimTemplates, template)
	}
	set.Spec = kept
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Status.ObservedGeneration, Replicas: set.Status.Replicas, ReadyReplicas: set.Status.ReadyReplicas}
	return set, nil
}

// TargetPod keeps of a pod that a StatefulSet's selector matches whether it is ready, and which claims
// it mounts.
func TargetPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	metadata(&pod.ObjectMeta, nil)
	spec := corev1.PodSpec{NodeName: name(pod.Spec.NodeName)}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && len(spec.Volumes) < maxClaims {
			spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name(claim.ClaimName)},
			}})
		}
	}
	pod.Spec = spec
	status := corev1.PodStatus{Phase: corev1.PodPhase(name(string(pod.Status.Phase)))}
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }); i >= 0 {
		c := &pod.Status.Conditions[i]
		status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: corev1.ConditionStatus(name(string(c.Status))), LastTransitionTime: c.LastTransitionTime}}
	}
	pod.Status = status
	return pod, nil
}

// TooManyTemplates tells whether not all of the StatefulSet's volumeClaimTemplates are kept.
func TooManyTemplates(set *appsv1.StatefulSet) bool {
	return len(set.Spec.VolumeClaimTemplates) > MaxTemplates
}

// Replicas is how many members a StatefulSet wants.
func Replicas(set *appsv1.StatefulSet) int32 { return ptr.Deref(set.Spec.Replicas, 1) }
