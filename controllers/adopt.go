package controllers

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/trim"
)

// liveClaims are the claims of the cluster's members, present and past, by their names:
// those of the namespace that the StatefulSet would use. unlabelled are those of them that
// the cache can't see, because they came back from a snapshot, were left by another chart
// or lost their label; others are those that somebody else controls.
type liveClaims struct {
	claims             []plan.Claim
	unlabelled, others []corev1.PersistentVolumeClaim
}

// claimsPage is how many claims, or Jobs, of a namespace are read at once: they are of
// anybody's making, and of any size.
const claimsPage = 32

func (r *MemcachedReconciler) lookAtClaims(ctx context.Context, cluster *cachev1alpha1.Memcached) (*liveClaims, error) {
	found := &liveClaims{}
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
				found.others = append(found.others, *claim)
				continue
			}
			if _, labelled := claim.Labels[cachev1alpha1.LabelCluster]; !labelled {
				found.unlabelled = append(found.unlabelled, *claim)
			}
			if c, ok := planClaim(cluster.Name, claim); ok {
				found.claims = append(found.claims, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	return found, nil
}

// pages reads a list of a namespace live, a few objects at a time.
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

// adopt labels the claims that the cache can't see, and refuses to go on until it does.
// Those that were never held for the cluster stay as they are if another StatefulSet of
// this name may use them, or if the Memcached is being deleted.
func (r *MemcachedReconciler) adopt(ctx context.Context, cluster *cachev1alpha1.Memcached, found *liveClaims) error {
	adopted := 0
	for i := range found.unlabelled {
		claim := &found.unlabelled[i]
		if !controllerutil.ContainsFinalizer(claim, cachev1alpha1.ClaimFinalizer) {
			if cluster.DeletionTimestamp != nil {
				continue
			}
			members, err := get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(cluster))
			if err != nil {
				return err
			}
			if members != nil && !identity.Mine(cluster, members) {
				return identity.Taken(members)
			}
		}
		ordinal := memberOrdinal(cluster.Name, claim)
		if err := r.adoptClaim(ctx, cluster, plan.ClaimRef{Name: claim.Name, UID: claim.UID, Ordinal: ordinal}); err != nil {
			return err
		}
		adopted++
	}
	if adopted > 0 {
		return refuse("claims were adopted: %d; the cache does not have them yet", adopted)
	}
	return nil
}

// adoptClaim labels a claim of a member's name, and holds it as those that are born
// with the finalizer: the member's items will be on its volume, or are. Whether they are
// all that is on it nobody knows: without a drain that read it, it is let go and not
// deleted.
func (r *MemcachedReconciler) adoptClaim(ctx context.Context, cluster *cachev1alpha1.Memcached, ref plan.ClaimRef) error {
	holds := cluster.DeletionTimestamp == nil && planPolicy(cluster) == plan.Drain
	adopted, err := r.patchClaim(ctx, cluster, ref, func(c *corev1.PersistentVolumeClaim) error {
		if !identity.OwnClaim(cluster.Name, c) {
			return identity.Taken(c)
		}
		metav1.SetMetaDataLabel(&c.ObjectMeta, cachev1alpha1.LabelCluster, cluster.Name)
		if !controllerutil.ContainsFinalizer(c, cachev1alpha1.ClaimFinalizer) { // or it has been the cluster's before
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAdopted, "true")
		}
		if holds && c.DeletionTimestamp == nil {
			controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adopt claim %s: %w", ref.Name, err)
	}
	if adopted {
		r.claimEvent(cluster, ref, "ClaimAdopted", "Adopt",
			"claim %s was there before its member, or had lost the label %s: it is adopted, and will be drained as any other", ref.Name, cachev1alpha1.LabelCluster)
	}
	return nil
}

// memberOrdinal is that of the member whose claim has this name.
func memberOrdinal(cluster string, claim *corev1.PersistentVolumeClaim) int32 {
	ordinal, ok := build.ClaimOrdinal(cluster, claim.Name)
	if !ok {
		return cachev1alpha1.MaxSize // an aside claim: no member uses it
	}
	return ordinal
}

// findClaims looks live for claims that the cache does not have although there are signs
// of them: a member that runs, a Job that drains one, a drain that status tells of. Of a
// paused cluster nothing is adopted; what is missing is only not forgotten. One that is
// being deleted lets go of what it knows.
func (r *MemcachedReconciler) findClaims(ctx context.Context, o *observed) error {
	missing := o.missingClaims()
	if o.cluster.DeletionTimestamp != nil || !missing.any() {
		return nil
	}
	found, err := r.lookAtClaims(ctx, o.cluster)
	if err != nil {
		return err
	}
	for i := range found.others {
		if slices.Contains(missing.members, found.others[i].Name) {
			return identity.Taken(&found.others[i])
		}
	}
	if n := len(found.unlabelled); n > 0 && paused(o.cluster) {
		return refuse("claims lack the label %s: %d; they are adopted when spec.paused is false", cachev1alpha1.LabelCluster, n)
	}
	o.found = found
	behind := slices.DeleteFunc(slices.Clone(found.claims), func(c plan.Claim) bool {
		return slices.ContainsFunc(slices.Concat(o.claims, found.unlabelled), func(known corev1.PersistentVolumeClaim) bool { return known.UID == c.UID })
	})
	if len(behind) > 0 { // or their Jobs would be taken for those of claims that are gone
		return refuse("the cache does not have claim %s yet", behind[0].Name)
	}
	return nil
}

// missing are signs of claims that the cache does not have.
type missing struct {
	// members are the names of the claims of members that run.
	members []string
	// departed: status tells of the drain of a claim; drained: there is a Job for one.
	departed, drained bool
}

func (m *missing) any() bool { return len(m.members) > 0 || m.departed || m.drained }

func (o *observed) missingClaims() *missing {
	m := &missing{}
	has := func(name string) bool {
		return slices.ContainsFunc(o.claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
	}
	for i := range o.pods {
		ordinal, ok := build.PodOrdinal(o.cluster.Name, o.pods[i].Name)
		if name := build.ClaimName(o.cluster.Name, ordinal); ok && o.pods[i].Status.Phase == corev1.PodRunning && !has(name) {
			m.members = append(m.members, name)
		}
	}
	drains := o.cluster.Status.Drains
	m.departed = slices.ContainsFunc(drains, func(d cachev1alpha1.DrainStatus) bool { return !has(d.Claim) })
	if n := int(o.cluster.Status.Draining); n > len(drains) { // status does not name them all
		for i := range o.claims {
			if _, marked := o.claims[i].Annotations[cachev1alpha1.AnnotationLeaving]; marked {
				n--
			}
		}
		m.departed = m.departed || n > 0
	}
	m.drained = slices.ContainsFunc(slices.Concat(o.jobs, o.placements), func(job batchv1.Job) bool {
		return job.DeletionTimestamp == nil &&
			!slices.ContainsFunc(o.claims, func(c corev1.PersistentVolumeClaim) bool { return c.UID == identity.ClaimUID(&job) })
	})
	return m
}
