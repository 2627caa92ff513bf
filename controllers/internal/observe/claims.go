package observe

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
)

// observeClaims reads the cluster's claims from the cache.
func (r *Reader) observeClaims(ctx context.Context, o *State) (err error) {
	o.Claims, err = r.For(o.Cluster).Claims(ctx)
	o.Claims = slices.DeleteFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool { return !identity.OwnClaim(o.Cluster.Name, &c) })
	return err
}

// AddUnlabelledClaim adds a claim that a live search has found and that gets no label, so that the plan knows it.
// AddUnlabelledClaim reads once more which claims are obstructed.
func (r *Reader) AddUnlabelledClaim(o *State, uid types.UID) {
	for i := range o.Found.Unlabelled {
		if c := &o.Found.Unlabelled[i]; c.UID == uid {
			o.Claims = append(o.Claims, *c)
		}
	}
	o.Obstructed = r.Obstructed.Known(client.ObjectKeyFromObject(o.Cluster), o.Now)
}

// MemberOrdinal is the ordinal of the member that uses a claim with this name; MaxSize for a claim
// that no member uses.
func MemberOrdinal(cluster string, claim *corev1.PersistentVolumeClaim) int32 {
	ordinal, ok := build.ClaimOrdinal(cluster, claim.Name)
	if !ok {
		return cachev1alpha1.MaxSize // an aside claim
	}
	return ordinal
}

// findClaims searches live for claims that the cache should have: those of members that run or whose pod
// can't be created, of Jobs, of drains in status, and those that have our finalizer and lost their label. If
// claims of a paused cluster are missing, findClaims returns an error, because nothing may be adopted. For a
// cluster that is being deleted findClaims does nothing, and the claims in the cache are released.
func (r *Reader) findClaims(ctx context.Context, o *State) error {
	missing := o.missingClaims()
	if err := r.addProtected(ctx, o, missing); err != nil {
		return err
	}
	if o.Cluster.DeletionTimestamp != nil || !missing.any() {
		return nil
	}
	found, err := r.findMissing(ctx, o.Cluster, missing)
	if err != nil {
		return err
	}
	for i := range found.Others {
		if slices.Contains(missing.members, found.Others[i].Name) {
			return OwnerOf(o.Cluster).NameTaken(&found.Others[i])
		}
	}
	if n := len(found.Unlabelled); n > 0 && Paused(o.Cluster) {
		return read.Refuse("claims lack the label %s: %d; they are adopted when spec.paused is false", cachev1alpha1.LabelCluster, n)
	}
	o.Found = found
	unseen := slices.DeleteFunc(slices.Clone(found.Claims), func(c claims.Claim) bool {
		return slices.ContainsFunc(slices.Concat(o.Claims, found.Unlabelled), func(known corev1.PersistentVolumeClaim) bool { return known.UID == c.UID })
	})
	if len(unseen) > 0 { // otherwise their Jobs would be taken for Jobs of claims that are gone
		return read.Refuse("the cache does not have claim %s yet", unseen[0].Name)
	}
	return nil
}

// addProtected adds claims that have our finalizer and have lost the label. The cache does not have them, and
// status may not name their drain yet.
func (r *Reader) addProtected(ctx context.Context, o *State, m *missing) error {
	protected, err := r.For(o.Cluster).Protected(ctx)
	for _, name := range protected {
		if !slices.Contains(m.names, name) && !o.has(name) {
			m.names = append(m.names, name)
		}
	}
	return err
}

// has tells whether the cache has a claim of the cluster with this name.
func (o *State) has(name string) bool {
	return slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
}

// findMissing looks for the missing claims, by their names if all names are known.
func (r *Reader) findMissing(ctx context.Context, cluster *cachev1alpha1.Memcached, m *missing) (*read.LiveClaims, error) {
	if m.unnamed || m.drained {
		return r.For(cluster).LiveClaims(ctx, m.names...)
	}
	found := &read.LiveClaims{}
	return found, r.For(cluster).LookFor(ctx, found, m.names...)
}

// missing has the signs that claims are missing from the cache.
type missing struct {
	// members are the names of the missing claims of members that run, or whose pod can't be
	// created because a claim with that name is being deleted.
	members []string
	// unnamed: status counts more drains than it names, and not all of their claims are in the
	// cache. drained: a Job is for a missing claim.
	unnamed, drained bool
	// names are the names of all missing claims, as far as they are known.
	names []string
}

func (m *missing) any() bool { return len(m.names) > 0 || m.unnamed || m.drained }

func (o *State) missingClaims() *missing {
	m := &missing{}
	for i := range o.Pods {
		ordinal, ok := build.PodOrdinal(o.Cluster.Name, o.Pods[i].Name)
		if name := build.ClaimName(o.Cluster.Name, ordinal); ok && o.Pods[i].Status.Phase == corev1.PodRunning && !o.has(name) {
			m.members = append(m.members, name)
		}
	}
	if o.NotCreated != nil {
		for ordinal := range ptr.Deref(o.StatefulSet.Spec.Replicas, 1) {
			if name := build.ClaimName(o.Cluster.Name, ordinal); !o.has(name) && !slices.Contains(m.members, name) {
				m.members = append(m.members, name)
			}
		}
	}
	drains := o.Cluster.Status.Drains
	m.names = slices.Clone(m.members)
	for i := range drains {
		if !o.has(drains[i].Claim) {
			m.names = append(m.names, drains[i].Claim)
		}
	}
	if n := int(o.Cluster.Status.Draining); n > len(drains) { // status does not name them all
		for i := range o.Claims {
			if _, marked := o.Claims[i].Annotations[cachev1alpha1.AnnotationLeaving]; marked {
				n--
			}
		}
		m.unnamed = n > 0
	}
	m.drained = slices.ContainsFunc(slices.Concat(o.Jobs, o.Moves), func(job batchv1.Job) bool {
		return job.DeletionTimestamp == nil &&
			!slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.UID == identity.ClaimUID(&job) })
	})
	return m
}
