// Package build makes the objects of a cluster. Its functions are pure: they turn the spec into an
// apply configuration, or into the Job to create.
//
// In lists with keys, fields that the API server would default are set explicitly (a port's
// protocol). Then the applied configuration equals what the server reports as applied, and a
// reconcile at rest writes nothing.
package build

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Options are the settings of the operator's Deployment.
type Options struct {
	// OnMiss is how routers reach the source of spec.warmFrom, which they ask for items that they miss; nil
	// if they don't ask.
	OnMiss *From
	// MemcachedImage is used if spec.image is empty.
	MemcachedImage string
	// OperatorNamespace is where the operator runs; empty outside of a cluster.
	OperatorNamespace string
	// OperatorImage contains the drainer, at DrainerPath.
	OperatorImage string
	// AssignedUsers: the platform gives the pods of a namespace their user, group and fsGroup, and
	// refuses other ones (OpenShift).
	AssignedUsers bool
}

const (
	// DrainerPath is the path of the drainer in the operator's image.
	DrainerPath = "/drainer"
	// volumeName is the name of the members' volumes; claims are named data-<name>-<ordinal>.
	volumeName = "data"
	dataDir    = "/data"
	// supervisorDir has the copy of the drainer that runs as a member's PID 1.
	supervisorVolume = "supervisor"
	supervisorDir    = "/supervisor"
	// supervisorSize bounds the volume with the copy, in bytes; the program has 10 MB.
	supervisorSize = 32 << 20
	// memoryDir has the warm file of a member in mode Saved.
	memoryVolume = "memory"
	memoryDir    = "/memory"
	// scratchDir is for the list of keys of a move.
	scratchVolume = "scratch"
	scratchDir    = "/scratch"
	// memcachedUID is the user of the official image.
	memcachedUID = 11211

	// ContainerMemcached is memcached's container in a member's pod.
	ContainerMemcached = "memcached"
	// ContainerInstall is the init container that copies the supervisor into the pod.
	ContainerInstall = "install"
	// ContainerDrainer is the drainer's container in the pod of a drain or a move; other software
	// may have added more containers.
	ContainerDrainer = "drainer"
	portName         = "memcached"
)

// Labels returns the labels of the cluster's objects of a component.
func Labels(c *cachev1alpha1.Memcached, component string) map[string]string {
	return map[string]string{
		cachev1alpha1.LabelCluster:   c.Name,
		cachev1alpha1.LabelName:      cachev1alpha1.AppName,
		cachev1alpha1.LabelInstance:  c.Name,
		cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy,
		cachev1alpha1.LabelComponent: component,
	}
}

// Selector selects the members' pods. The selector must never change, because a StatefulSet's is immutable.
func Selector(c *cachev1alpha1.Memcached) map[string]string {
	return map[string]string{
		cachev1alpha1.LabelName:      cachev1alpha1.AppName,
		cachev1alpha1.LabelInstance:  c.Name,
		cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMember,
	}
}

// ClaimName is the name of a member's claim, as the StatefulSet controller names it.
func ClaimName(cluster string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", volumeName, cluster, ordinal)
}

// ClaimOrdinal is the inverse of ClaimName; false for any other name.
func ClaimOrdinal(cluster, claim string) (int32, bool) { return ordinalOf(cluster, claim, false) }

// ClaimCluster is the name of the cluster in the name of this claim or aside claim; false for any
// other name.
func ClaimCluster(claim string) (string, bool) {
	c, ok := parseClaim(claim)
	return c.cluster, ok
}

// asideInfix stands between a claim's name and the hash of its UID.
const asideInfix = "-aside-"

// AsideName is the name of the claim that takes over the volume of a member's claim. The name depends on the
// claim's UID, so a later claim of the same name has another aside name.
func AsideName(cluster string, ordinal int32, uid types.UID) string {
	return ClaimName(cluster, ordinal) + asideInfix + hash(string(uid))
}

// AsideOrdinal is the ordinal of the member whose volume an aside claim has; false for
// any other name.
func AsideOrdinal(cluster, claim string) (int32, bool) { return ordinalOf(cluster, claim, true) }

func ordinalOf(cluster, claim string, aside bool) (int32, bool) {
	c, ok := parseClaim(claim)
	if !ok || c.cluster != cluster || c.aside != aside {
		return 0, false
	}
	return c.ordinal, true
}

// parsedClaimName is a claim's name, parsed.
type parsedClaimName struct {
	cluster string
	ordinal int32
	aside   bool
}

// parseClaim parses a name that ClaimName or AsideName made. The two can't be confused: after the
// last hyphen a claim's name has an ordinal, and an aside name has a hash, which is longer. So even
// a cluster may be called x-1-aside-01234567.
func parseClaim(name string) (parsedClaimName, bool) {
	of, ok := strings.CutPrefix(name, volumeName+"-")
	aside := false
	if i := strings.LastIndex(of, asideInfix); i >= 0 && isHash(of[i+len(asideInfix):]) {
		of, aside = of[:i], true
	}
	i := strings.LastIndexByte(of, '-')
	if !ok || i <= 0 {
		return parsedClaimName{}, false
	}
	ordinal, ok := ordinalAfter("", of[i+1:])
	if !ok {
		return parsedClaimName{}, false
	}
	return parsedClaimName{of[:i], ordinal, aside}, true
}

// PodName is the name of a member's pod.
func PodName(cluster string, ordinal int32) string {
	return fmt.Sprintf("%s-%d", cluster, ordinal)
}

// PodOrdinal is the inverse of PodName; false for any other name.
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

// DrainName is the name of the Job that drains a claim. A later claim of the same name has another
// Job name.
func DrainName(claim string, uid types.UID) string {
	return boundedJobName(claim, "-drain-"+hash(string(uid)))
}

// MoveName is the name of the Job that moves the items of a claim's member. Each ring (target) has
// another Job name.
func MoveName(claim string, uid types.UID, target string) string {
	return boundedJobName(claim, "-move-"+hash(ring.Source(uid, target)))
}

func boundedJobName(claim, suffix string) string {
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

func isHash(s string) bool {
	return len(s) == hashLength && strings.Trim(s, "0123456789abcdef") == ""
}

// owner makes the Memcached the controller of an object.
func owner(c *cachev1alpha1.Memcached) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(cachev1alpha1.GroupVersion.String()).
		WithKind("Memcached").
		WithName(c.Name).
		WithUID(c.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// IsMemcached tells whether the owner is a Memcached of any version.
func IsMemcached(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == cachev1alpha1.Group && ref.Kind == "Memcached"
}

// ownerReference is like owner, for objects that are created, not applied.
func ownerReference(c *cachev1alpha1.Memcached) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, cachev1alpha1.GroupVersion.WithKind("Memcached"))
}
