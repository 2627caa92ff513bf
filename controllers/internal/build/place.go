package build

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Patience is how long a leaving member waits for its last client; the API server sets the
// default.
func Patience(c *cachev1alpha1.Memcached) time.Duration {
	return max(0, ptr.Deref(c.Spec.Routing.Patience, metav1.Duration{}).Duration)
}

// MoveDeadline is how long the mover of a leaving member may be at work.
func MoveDeadline(c *cachev1alpha1.Memcached) time.Duration { return deadline(c) + Patience(c) }

// scratchSize is twice the most that a list of keys takes, in bytes.
const scratchSize = 2 << 30

// PlacementJob moves items of the claim's member to their owners among the first members,
// by the ring of that target. A member that is none of them is leaving: it gives all its
// items away, and waits for its last client. The Job mounts no volume: the member's supervisor streams the items,
// or else memcached is asked for them. Items owned by lost members are discarded.
func PlacementJob(c *cachev1alpha1.Memcached, o Options, claim string, uid types.UID, ordinal int32, target string, members int32, lost ...int32) *batchv1.Job {
	args := contract.Rebalance{
		Source:     reached(c, max(members, ordinal+1))[ordinal],
		ExportPort: exportPort(c),
		Move:       moveArgs(c, ring.Source(uid, target), members),
	}
	args.Scratch = scratchDir
	if ordinal >= members {
		args.Patience, args.Deadline = Patience(c), MoveDeadline(c)
	}
	for _, i := range lost {
		args.Discard = append(args.Discard, reached(c, members)[i])
	}
	pod := movingPod(c)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: scratchVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratchSize, resource.BinarySI)},
	}})
	pod.Containers = []corev1.Container{movingContainer(c, o.OperatorImage, append([]string{DrainerPath}, args.Args()...),
		[]corev1.VolumeMount{{Name: scratchVolume, MountPath: scratchDir}})}
	return movingJob(c, PlacementName(claim, uid, target), cachev1alpha1.ComponentPlacement, map[string]string{
		cachev1alpha1.AnnotationClaimUID: string(uid),
		cachev1alpha1.AnnotationTarget:   target,
	}, pod)
}
