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
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// LiveClaims are the claims of members, present and past, by their names: those that the
// StatefulSet would use. Unlabelled are those that the cache can't see: they came back
// from a snapshot, another chart left them, or they lost their label. Others are those
// that somebody else controls.
type LiveClaims struct {
	Claims             []claim.Claim
	Unlabelled, Others []corev1.PersistentVolumeClaim
	// there are the names of all of them, and of those that were looked for and are not there.
	there map[string]bool
}

// page is how many objects are read at once. Anybody may have made them, of any size.
const page = 32

// LiveClaims reads the cluster's claims: those with its label, and by their names those that a watch
// has seen without it, and those that the caller names. It reads nothing of what belongs to others in the
// namespace, however much that is.
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

// mostByName bounds how many objects are read by their names. For more, all of their namespace are read, in pages.
const mostByName = 16

// lookFor adds to found the claims of these names.
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

// add sorts a claim into those of the cluster, if its name is one of a member's claims.
func (l *LiveClaims) add(cluster string, claim *corev1.PersistentVolumeClaim) {
	if of, ok := build.ClaimCluster(claim.Name); !ok || of != cluster {
		return
	}
	_, _ = trim.Claim(claim) // which never fails
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
	r.see(key, kindClaims, namesOf(claims.Items))
	o.Claims = slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !identity.OwnClaim(key.Name, &c) })
	return nil
}

// MemberOrdinal is the ordinal of the member that uses a claim of this name; MaxSize if
// none does.
func MemberOrdinal(cluster string, claim *corev1.PersistentVolumeClaim) int32 {
	ordinal, ok := build.ClaimOrdinal(cluster, claim.Name)
	if !ok {
		return cachev1alpha1.MaxSize // an aside claim
	}
	return ordinal
}

// findClaims searches live for claims that the cache should have: those of members that run
// or whose pod can't be created, of Jobs, and of drains in status. If a paused cluster lacks some, it returns
// an error, because nothing may be adopted. For a cluster that is being deleted it does
// nothing: what is known is released.
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
	behind := slices.DeleteFunc(slices.Clone(found.Claims), func(c claim.Claim) bool {
		return slices.ContainsFunc(slices.Concat(o.Claims, found.Unlabelled), func(known corev1.PersistentVolumeClaim) bool { return known.UID == c.UID })
	})
	if len(behind) > 0 { // otherwise their Jobs would be taken for Jobs of claims that are gone
		return Refuse("the cache does not have claim %s yet", behind[0].Name)
	}
	return nil
}

// findMissing looks for the claims by their names, if these are all known.
func (r *Reader) findMissing(ctx context.Context, cluster *cachev1alpha1.Memcached, m *missing) (*LiveClaims, error) {
	if m.unnamed || m.drained {
		return r.LiveClaims(ctx, cluster, m.names...)
	}
	found := &LiveClaims{there: map[string]bool{}}
	return found, r.lookFor(ctx, cluster, found, m.names)
}

// missing has signs of claims that the cache doesn't have.
type missing struct {
	// members are the names of the claims of members that run, or whose pod can't be
	// created: a claim that is being deleted is in its way.
	members []string
	// unnamed: status counts more drains than it names, and not all of their claims are known. drained: there
	// is a Job for a claim that is missing.
	unnamed, drained bool
	// names of all that are missing, as far as they are known.
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
