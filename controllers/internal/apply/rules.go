package apply

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

// rules are a Memcached's write.Rules.
type rules struct{ *run }

// Terms reads the Memcached.
func (r rules) Terms(ctx context.Context) (claims.Terms, error) {
	cluster, err := read.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	if err != nil {
		return claims.Terms{}, err
	}
	// If the Memcached was gone, a Memcached that exists now is another one, which keeps the claims that it
	// finds.
	gone := cluster == nil || cluster.DeletionTimestamp != nil || r.cluster.UID != "" && cluster.UID != r.cluster.UID
	if gone {
		return claims.Terms{Deleting: true}, nil
	}
	return claims.Terms{Policy: observe.PlanPolicy(cluster), ReleaseUnreadable: observe.ReleasesUnreadable(cluster)}, nil
}

// Unit returns the claim: a member has one.
func (rules) Unit(_ context.Context, c *claims.Claim) (*claims.Claim, error) { return c, nil }

// Returned: the claim of a member that has left is never a member's again.
func (rules) Returned(context.Context, *claims.Claim) (bool, error) { return false, nil }

// MaySetAside always agrees: the member has a leaving mark, and never uses the claim again.
func (rules) MaySetAside(context.Context, *claims.Claim) error { return nil }

// MayHandOver asks plan.MayHandOver.
func (r rules) MayHandOver(ctx context.Context, c *claims.Claim) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	return read.RefusedBy(plan.MayHandOver(&live.Observed, c))
}

// MayDrain asks plan.MayDrain.
func (r rules) MayDrain(ctx context.Context, a action.CreateDrain) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	with, err := r.Reader.WithUsers(ctx, r.cluster, live, a.Claim)
	if err != nil {
		return err
	}
	return read.RefusedBy(plan.MayDrain(with, a))
}

func (r rules) DrainJob(a action.CreateDrain) (client.Object, error) {
	return build.DrainJob(r.cluster, r.Options, r.ports, a.Claim.Name, a.Claim.UID, a.Survivors.Count, a.NeverStarted), nil
}

func (r rules) Decision() string { return build.Decision(r.cluster) }

// Aside keeps the claim's labels, and notes the serial of the last ring by which clients stored items
// on the volume.
func (rules) Aside(a action.CreateAside, first *corev1.PersistentVolumeClaim) (labels, annotations map[string]string) {
	if a.StoredBy > 0 {
		annotations = map[string]string{cachev1alpha1.AnnotationMoved: strconv.FormatInt(a.StoredBy, 10)}
	}
	return maps.Clone(first.Labels), annotations
}

func (rules) Drained(receipt *action.Receipt) string { return summary(receipt) }

func (r rules) Event(claim action.ClaimRef, reason, action, note string, args ...any) {
	r.claimEvent(r.cluster, claim, reason, action, note, args...)
}
