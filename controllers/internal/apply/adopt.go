package apply

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
)

// adopt labels the claims that the cache can't see, and refuses to continue until the cache has
// them. A claim whose label the API server denies is obstructed, and the plan knows it all the same.
func (a *Applier) adopt(ctx context.Context, s *observe.State) (denied, failed error) {
	claims, failed := a.toAdopt(ctx, s.Cluster, s.Found)
	adopted := 0
	for _, claim := range claims {
		err := a.adoptClaim(ctx, s.Cluster, claim)
		if read.Denied(err) {
			write.NoteOutcome(a.Reader.Obstructed, client.ObjectKeyFromObject(s.Cluster), claim.UID, err, s.Now)
			a.Reader.AddUnlabelledClaim(s, claim.UID)
			denied = errors.Join(denied, a.deny(claim.UID, err))
			continue
		}
		failed = errors.Join(failed, err)
		adopted++
	}
	if failed == nil && adopted > 0 {
		failed = read.Refuse("claims were adopted: %d; the cache does not have them yet", adopted)
	}
	return denied, failed
}

// toAdopt returns the claims that the cache can't see and that become the cluster's. A claim without our
// finalizer stays unchanged if the Memcached is being deleted, or if another owner's StatefulSet has the
// cluster's name.
func (a *Applier) toAdopt(ctx context.Context, cluster *cachev1alpha1.Memcached, found *read.LiveClaims) (claims []action.ClaimRef, err error) {
	for i := range found.Unlabelled {
		claim := &found.Unlabelled[i]
		if !controllerutil.ContainsFinalizer(claim, cachev1alpha1.ClaimFinalizer) {
			if cluster.DeletionTimestamp != nil {
				continue
			}
			members, err := read.Get[appsv1.StatefulSet](ctx, a.Reader.Live, client.ObjectKeyFromObject(cluster))
			if err != nil {
				return claims, err
			}
			if members != nil && !identity.OwnsOrAdopts(cluster, members) {
				return claims, identity.NameTaken(members)
			}
		}
		claims = append(claims, action.ClaimRef{Name: claim.Name, UID: claim.UID, Ordinal: observe.MemberOrdinal(cluster.Name, claim)})
	}
	return claims, nil
}

// adoptClaim adds the label and the finalizer to a claim with a member's name, and notes that it
// was adopted. The volume may have more data than a cache, so it is never deleted without a drain
// that read it.
func (a *Applier) adoptClaim(ctx context.Context, cluster *cachev1alpha1.Memcached, ref action.ClaimRef) error {
	kept := cluster.DeletionTimestamp == nil && observe.PlanPolicy(cluster) == claims.Drain
	adopted, err := a.writer(cluster).Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		if !identity.OwnClaim(cluster.Name, c) {
			return identity.NameTaken(c)
		}
		metav1.SetMetaDataLabel(&c.ObjectMeta, cachev1alpha1.LabelCluster, cluster.Name)
		if _, is := c.Annotations[cachev1alpha1.AnnotationAdopted]; !is && !controllerutil.ContainsFinalizer(c, cachev1alpha1.ClaimFinalizer) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAdopted, cachev1alpha1.AdoptedUnlabelled) // with the finalizer it was the cluster's before
		}
		if kept && c.DeletionTimestamp == nil {
			controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adopt claim %s: %w", ref.Name, err)
	}
	if adopted {
		a.claimEvent(cluster, ref, "ClaimAdopted", "Adopt",
			"claim %s was there before its member, or had lost the label %s: it is adopted, and will be drained as any other", ref.Name, cachev1alpha1.LabelCluster)
	}
	return nil
}
