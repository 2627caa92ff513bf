// Package build makes the objects of a cluster. Its functions are pure: the
// spec goes in, an apply configuration (or the Job to create) comes out.
//
// Fields that the API server would default inside a list with keys are spelled
// out (a port's protocol), so that what is applied and what the server reports
// as applied are equal, and a reconcile at rest writes nothing.
package build

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Options are what the operator's deployment decides.
type Options struct {
	// MemcachedImage where spec.image is empty.
	MemcachedImage string
	// ExporterImage where spec.exporter.image is empty.
	ExporterImage string
	// OperatorImage holds the drainer, at DrainerPath.
	OperatorImage string
}

const (
	// DrainerPath is the drainer in the operator's image.
	DrainerPath = "/drainer"
	// volumeName of the members' volumes; claims are named data-<name>-<ordinal>.
	volumeName = "data"
	dataDir    = "/data"
	// supervisorDir holds the copy of the drainer that runs as a member's PID 1.
	supervisorVolume = "supervisor"
	supervisorDir    = "/supervisor"
	// memoryDir holds the warm file of a member of mode Saved.
	memoryVolume = "memory"
	memoryDir    = "/memory"
	// scratchDir is for the list of keys of a live move.
	scratchVolume = "scratch"
	scratchDir    = "/scratch"
	// memcachedUID is the user of the official image.
	memcachedUID = 11211

	// ContainerMemcached is the container of a member that others are beside.
	ContainerMemcached = "memcached"
	// ContainerDrainer is the container of a drain's or a placement's pod that moves
	// items; others may have been put beside it.
	ContainerDrainer = "drainer"
	portName         = "memcached"
)

// Labels of every object of the cluster.
func Labels(c *cachev1alpha1.Memcached, component string) map[string]string {
	return map[string]string{
		cachev1alpha1.LabelCluster:   c.Name,
		cachev1alpha1.LabelName:      cachev1alpha1.AppName,
		cachev1alpha1.LabelInstance:  c.Name,
		cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy,
		cachev1alpha1.LabelComponent: component,
	}
}

// Selector of the members' pods. It never changes: a StatefulSet's is immutable.
func Selector(c *cachev1alpha1.Memcached) map[string]string {
	return map[string]string{
		cachev1alpha1.LabelName:      cachev1alpha1.AppName,
		cachev1alpha1.LabelInstance:  c.Name,
		cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMember,
	}
}

// ClaimName of a member, as the StatefulSet controller names it.
func ClaimName(cluster string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", volumeName, cluster, ordinal)
}

// ClaimOrdinal is the inverse of ClaimName; false for a claim of another name.
func ClaimOrdinal(cluster, claim string) (int32, bool) {
	return ordinalAfter(volumeName+"-"+cluster+"-", claim)
}

// ClaimCluster is the name of the cluster whose member's claim, or aside claim, has
// this name; false for a claim of another name.
func ClaimCluster(claim string) (string, bool) {
	rest, ok := strings.CutPrefix(claim, volumeName+"-")
	if i := strings.LastIndex(rest, asideInfix); i >= 0 && len(rest[i+len(asideInfix):]) == hashLength {
		rest = rest[:i]
	}
	i := strings.LastIndexByte(rest, '-')
	if !ok || i <= 0 {
		return "", false
	}
	_, ok = ordinalAfter("", rest[i+1:])
	return rest[:i], ok
}

// asideInfix stands between the name of a member's claim and the hash of the
// claim whose volume was set aside.
const asideInfix = "-aside-"

// AsideName of the claim that takes over the volume of a member's claim: the same
// for the same claim, another one for a later claim of the same name.
func AsideName(cluster string, ordinal int32, uid types.UID) string {
	return ClaimName(cluster, ordinal) + asideInfix + hash(string(uid))
}

// AsideOrdinal is whose volume an aside claim took over; false for a claim of
// another name.
func AsideOrdinal(cluster, claim string) (int32, bool) {
	i := strings.LastIndex(claim, asideInfix)
	if i < 0 || len(claim[i+len(asideInfix):]) != hashLength {
		return 0, false
	}
	return ClaimOrdinal(cluster, claim[:i])
}

// PodName of a member.
func PodName(cluster string, ordinal int32) string {
	return fmt.Sprintf("%s-%d", cluster, ordinal)
}

// PodOrdinal is the inverse of PodName; false for a pod of another name.
func PodOrdinal(cluster, pod string) (int32, bool) { return ordinalAfter(cluster+"-", pod) }

func ordinalAfter(prefix, name string) (int32, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || n >= cachev1alpha1.MaxSize || strconv.FormatInt(n, 10) != digits {
		return 0, false
	}
	return int32(n), true
}

// JobName of the drain of a claim: the same for the same claim, another one for
// a later claim of the same name.
func JobName(claim string, uid types.UID) string { return jobName(claim, "-drain-"+hash(string(uid))) }

// PlacementName of the Job that places what a claim's member holds: another one
// for each ring.
func PlacementName(claim string, uid types.UID, target string) string {
	return jobName(claim, "-place-"+hash(ring.Source(uid, target)))
}

func jobName(claim, suffix string) string {
	const maxName = 63 // the Job's name becomes a label of its pods
	if len(claim) > maxName-len(suffix) {
		claim = strings.TrimRight(claim[:maxName-len(suffix)], "-.")
	}
	return claim + suffix
}

const hashLength = 8

func hash(of string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(of))
	return fmt.Sprintf("%0*x", hashLength, h.Sum32())
}

// owner makes the Memcached the owner and controller of an object.
func owner(c *cachev1alpha1.Memcached) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(cachev1alpha1.GroupVersion.String()).
		WithKind("Memcached").
		WithName(c.Name).
		WithUID(c.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// ownerReference is owner, for objects that are created and not applied.
func ownerReference(c *cachev1alpha1.Memcached) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, cachev1alpha1.GroupVersion.WithKind("Memcached"))
}
