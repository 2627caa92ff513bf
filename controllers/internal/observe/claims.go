package observe

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// LiveClaims are the claims of members, present and past, found by the names that the StatefulSet
// uses. Unlabelled are claims that the cache can't see: they came back from a snapshot, another
// chart left them, or they lost their label. Others are claims that another owner controls.
type LiveClaims struct {
	Claims             []claims.Claim
	Unlabelled, Others []corev1.PersistentVolumeClaim
	// there has the names of all these claims, and of claims that were looked for and don't exist.
	there map[string]bool
}

// page is how many objects are read at once. Any client may have created them, with any size.
const page = 32

// LiveClaims reads the cluster's claims live: those with its label and, by their names, those that
// a watch has seen without the label and those that the caller names. It reads no objects of other
// owners in the namespace, so their number doesn't matter.
func (r *Reader) LiveClaims(ctx context.Context, cluster *cachev1alpha1.Memcached, names ...string) (*LiveClaims, error) {
	found := &LiveClaims{there: map[string]bool{}}
	list := &corev1.PersistentVolumeClaimList{}
	err := r.labelled(ctx, list, cluster, func() {
		for i := range list.Items {
			found.add(cluster.Name, &list.Items[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the claims of Memcached %s: %w", cluster.Name, err)
	}
	known, err := r.knownNames(ctx, cluster, &corev1.PersistentVolumeClaimList{}, kindClaims)
	if err != nil {
		return nil, err
	}
	return found, r.lookFor(ctx, cluster, found, slices.Concat(known, names))
}

// mostByName bounds how many objects are read by their names. For more names, all objects of the
// namespace are read, in pages.
const mostByName = 16

// lookFor adds the claims with these names to found.
func (r *Reader) lookFor(ctx context.Context, cluster *cachev1alpha1.Memcached, found *LiveClaims, names []string) error {
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(name string) bool { return found.there[name] })
	for _, name := range names {
		found.there[name] = true
	}
	if len(names) > mostByName {
		list := &corev1.PersistentVolumeClaimList{}
		err := eachPage(ctx, r.Live, list, func() {
			for i := range list.Items {
				if at := slices.Index(names, list.Items[i].Name); at >= 0 {
					found.add(cluster.Name, &list.Items[i])
					names = slices.Delete(names, at, at+1)
				}
			}
		}, client.InNamespace(cluster.Namespace))
		if err != nil {
			return fmt.Errorf("list the claims of the namespace: %w", err)
		}
		r.gone(cluster, kindClaims, names...)
		return nil
	}
	for _, name := range names {
		claim, err := Get[corev1.PersistentVolumeClaim](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
		if err != nil {
			return fmt.Errorf("get claim %s: %w", name, err)
		}
		if claim == nil {
			r.gone(cluster, kindClaims, name)
			continue
		}
		found.add(cluster.Name, claim)
	}
	return nil
}

// add adds a claim to the list it belongs to, if its name is that of a member's claim.
func (l *LiveClaims) add(cluster string, claim *corev1.PersistentVolumeClaim) {
	if of, ok := build.ClaimCluster(claim.Name); !ok || of != cluster {
		return
	}
	_, _ = trim.Claim(claim) // trim.Claim never fails
	l.there[claim.Name] = true
	if !identity.OwnClaim(cluster, claim) {
		l.Others = append(l.Others, *claim)
		return
	}
	if _, labelled := claim.Labels[cachev1alpha1.LabelCluster]; !labelled {
		l.Unlabelled = append(l.Unlabelled, *claim)
	}
	if c, ok := PlanClaim(cluster, claim); ok {
		l.Claims = append(l.Claims, c)
	}
}

// observeClaims reads the cluster's claims from the cache.
func (r *Reader) observeClaims(ctx context.Context, key client.ObjectKey, o *State) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.list(ctx, key, &claims); err != nil {
		return err
	}
	o.Claims = slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !identity.OwnClaim(key.Name, &c) })
	r.see(o.Cluster, kindClaims, namesOf(o.Claims))
	return nil
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

// findClaims searches live for claims that the cache should have: those of members that run or
// whose pod can't be created, of Jobs, and of drains in status. If a paused cluster lacks some,
// findClaims returns an error, because nothing may be adopted. For a cluster that is being deleted
// it does nothing, and the claims in the cache are released.
func (r *Reader) findClaims(ctx context.Context, o *State) error {
	missing := o.missingClaims()
	if o.Cluster.DeletionTimestamp != nil || !missing.any() {
		return nil
	}
	found, err := r.findMissing(ctx, o.Cluster, missing)
	if err != nil {
		return err
	}
	for i := range found.Others {
		if slices.Contains(missing.members, found.Others[i].Name) {
			return identity.NameTaken(&found.Others[i])
		}
	}
	if n := len(found.Unlabelled); n > 0 && Paused(o.Cluster) {
		return Refuse("claims lack the label %s: %d; they are adopted when spec.paused is false", cachev1alpha1.LabelCluster, n)
	}
	o.Found = found
	unseen := slices.DeleteFunc(slices.Clone(found.Claims), func(c claims.Claim) bool {
		return slices.ContainsFunc(slices.Concat(o.Claims, found.Unlabelled), func(known corev1.PersistentVolumeClaim) bool { return known.UID == c.UID })
	})
	if len(unseen) > 0 { // otherwise their Jobs would be taken for Jobs of claims that are gone
		return Refuse("the cache does not have claim %s yet", unseen[0].Name)
	}
	return nil
}

// findMissing looks for the missing claims, by their names if all names are known.
func (r *Reader) findMissing(ctx context.Context, cluster *cachev1alpha1.Memcached, m *missing) (*LiveClaims, error) {
	if m.unnamed || m.drained {
		return r.LiveClaims(ctx, cluster, m.names...)
	}
	found := &LiveClaims{there: map[string]bool{}}
	return found, r.lookFor(ctx, cluster, found, m.names)
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
	has := func(name string) bool {
		return slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
	}
	for i := range o.Pods {
		ordinal, ok := build.PodOrdinal(o.Cluster.Name, o.Pods[i].Name)
		if name := build.ClaimName(o.Cluster.Name, ordinal); ok && o.Pods[i].Status.Phase == corev1.PodRunning && !has(name) {
			m.members = append(m.members, name)
		}
	}
	if o.NotCreated != nil {
		for ordinal := range ptr.Deref(o.StatefulSet.Spec.Replicas, 1) {
			if name := build.ClaimName(o.Cluster.Name, ordinal); !has(name) && !slices.Contains(m.members, name) {
				m.members = append(m.members, name)
			}
		}
	}
	drains := o.Cluster.Status.Drains
	m.names = slices.Clone(m.members)
	for i := range drains {
		if !has(drains[i].Claim) {
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
