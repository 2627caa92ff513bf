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
}

// claimsPage is how many claims or Jobs of a namespace are read at once. Anybody may have
// made them, of any size.
const claimsPage = 32

// LiveClaims reads them.
func (r *Reader) LiveClaims(ctx context.Context, cluster *cachev1alpha1.Memcached) (*LiveClaims, error) {
	found := &LiveClaims{}
	list := &corev1.PersistentVolumeClaimList{}
	err := pages(ctx, r.Live, list, cluster.Namespace, func() error {
		for i := range list.Items {
			claim := &list.Items[i]
			if of, ok := build.ClaimCluster(claim.Name); !ok || of != cluster.Name {
				continue
			}
			if _, err := trim.Claim(claim); err != nil {
				return err
			}
			if !identity.OwnClaim(cluster.Name, claim) {
				found.Others = append(found.Others, *claim)
				continue
			}
			if _, labelled := claim.Labels[cachev1alpha1.LabelCluster]; !labelled {
				found.Unlabelled = append(found.Unlabelled, *claim)
			}
			if c, ok := PlanClaim(cluster.Name, claim); ok {
				found.Claims = append(found.Claims, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	return found, nil
}

// pages reads a namespace's objects live, one page at a time.
func pages(ctx context.Context, reader client.Reader, list client.ObjectList, namespace string, each func() error) error {
	for more := true; more; more = list.GetContinue() != "" {
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(claimsPage), client.Continue(list.GetContinue())); err != nil {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
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
	found, err := r.LiveClaims(ctx, o.Cluster)
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

// missing has signs of claims that the cache doesn't have.
type missing struct {
	// members are the names of the claims of members that run, or whose pod can't be
	// created: a claim that is being deleted is in its way.
	members []string
	// departed: status names a drain whose claim is missing. drained: there is a Job for
	// such a claim.
	departed, drained bool
}

func (m *missing) any() bool { return len(m.members) > 0 || m.departed || m.drained }

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
	m.departed = slices.ContainsFunc(drains, func(d cachev1alpha1.DrainStatus) bool { return !has(d.Claim) })
	if n := int(o.Cluster.Status.Draining); n > len(drains) { // status does not name them all
		for i := range o.Claims {
			if _, marked := o.Claims[i].Annotations[cachev1alpha1.AnnotationLeaving]; marked {
				n--
			}
		}
		m.departed = m.departed || n > 0
	}
	m.drained = slices.ContainsFunc(slices.Concat(o.Jobs, o.Placements), func(job batchv1.Job) bool {
		return job.DeletionTimestamp == nil &&
			!slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.UID == identity.ClaimUID(&job) })
	})
	return m
}
