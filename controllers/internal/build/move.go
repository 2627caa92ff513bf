package build

import (
	"fmt"
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

// Patience is how long a move waits for the last client that uses an earlier list; the API server
// sets the default.
func Patience(c *cachev1alpha1.Memcached) time.Duration {
	return max(0, ptr.Deref(c.Spec.Routing.Patience, metav1.Duration{}).Duration)
}

// MoveDeadline is how long a mover may be at work, patience included.
func MoveDeadline(c *cachev1alpha1.Memcached) time.Duration { return deadline(c) + Patience(c) }

// A prepared move reads AnnotationBegin of its own pod from a file, and begins when the annotation
// names its ring. beginWithin is how long it waits; the operator usually writes the annotation
// within seconds.
const (
	beginVolume = "begin"
	beginDir    = "/run/begin"
	beginFile   = "ring"
	beginWithin = time.Minute
)

// scratchSize is twice the most that a list of keys takes, in bytes.
const scratchSize = 2 << 30

// MoveJob moves the items of the claim's member to their owners among the first members, by the ring Target.
// A member that is none of the first is leaving: it gives all its items away, and its mover waits for its
// last client. The Job mounts no volume: the member's supervisor streams the items, or else the mover reads
// them from memcached. Items owned by lost members are discarded. A prepared Job waits until it is told to
// begin, and then until half of the clients have followed the list.
func MoveJob(c *cachev1alpha1.Memcached, o Options, p Move) *batchv1.Job {
	ordinal, to := p.Ordinal, RingOf(c, p.Members)
	to.Out = p.Out
	args := contract.Move{
		Source:     reached(c, p.Ports, ordinal),
		ExportPort: p.Ports.exported(c, ordinal),
		Transfer:   transferArgs(c, p.Ports, ring.Source(p.UID, p.Target), to),
	}
	args.Scratch, args.Patience, args.Deadline, args.Leases = scratchDir, Patience(c), MoveDeadline(c), p.Leases
	if to.IsOut(ordinal) { // only routers call it, and they find each item in either place
		args.Patience = 0
	}
	for _, i := range p.Lost {
		args.Discard = append(args.Discard, reached(c, p.Ports, i))
	}
	pod := movingPod(c, o)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: scratchVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratchSize, resource.BinarySI)},
	}})
	mounts := []corev1.VolumeMount{{Name: scratchVolume, MountPath: scratchDir}}
	begin := p.Target
	if p.Prepared {
		begin = ""
		args.Begin = contract.Begin{File: beginDir + "/" + beginFile, When: p.Target, Within: beginWithin}
		args.Begin.Follow = c.Spec.Router == nil && args.Patience > 0 // routers find an item in either place
		args.Deadline += beginWithin
		pod.Volumes = append(pod.Volumes, ownAnnotation(beginVolume, beginFile, cachev1alpha1.AnnotationBegin))
		mounts = append(mounts, corev1.VolumeMount{Name: beginVolume, MountPath: beginDir, ReadOnly: true})
	}
	withDrainer(c, &pod, movingContainer(c, o.OperatorImage, append([]string{DrainerPath}, args.Args()...), mounts))
	return movingJob(c, o, p.Ports, MoveName(p.Claim, p.UID, p.Target), cachev1alpha1.ComponentMove, map[string]string{
		cachev1alpha1.AnnotationClaimUID: string(p.UID),
		cachev1alpha1.AnnotationTarget:   p.Target,
		cachev1alpha1.AnnotationBegin:    begin,
	}, pod)
}

// ownAnnotation is a volume with a file that has an annotation of the pod that mounts it.
func ownAnnotation(volume, file, annotation string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: file, FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", annotation)}}},
	}}}
}

// Move is the input of MoveJob.
type Move struct {
	// Claim, by name and UID, and Ordinal of the member whose items are moved.
	Claim   string
	UID     types.UID
	Ordinal int32
	// Target names the ring, which has this number of Members, without the one that is Out (ring.Ring); Lost
	// members get no items.
	Target  string
	Members int32
	Out     int32
	Lost    []int32
	// Prepared: the Job waits until it is told to begin. Leases: each key is moved under its lease.
	Prepared, Leases bool
	// Ports are the members' ports.
	Ports Ports
}
