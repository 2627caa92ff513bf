package apply

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// A run is its own write.Rules.

// Terms reads the StatefulSetDrain and the StatefulSet.
func (r *run) Terms(ctx context.Context) (claims.Terms, error) {
	v, err := r.live(ctx)
	if err != nil {
		return claims.Terms{}, err
	}
	terms := v.Drain.Terms
	terms.SetGone = !v.Set.Exists || v.Set.Deleting
	return terms, nil
}

// Unit folds the live claim with the others of its member.
func (r *run) Unit(ctx context.Context, c *claims.Claim) (*claims.Claim, error) {
	if c.LeavingSince.IsZero() {
		return c, nil // a member's: what a person says of one claim holds for this one alone
	}
	v, err := r.live(ctx)
	if err != nil {
		return nil, err
	}
	return withUnit(v, c), nil
}

// withUnit folds the claim with the others of its unit. Name, volume and place stay those of the claim.
func withUnit(v *observe.Live, c *claims.Claim) *claims.Claim {
	all := make([]claims.Claim, 0, len(v.Claims)+1)
	found := false
	for _, known := range v.Claims {
		if known.UID == c.UID {
			known, found = *c, true
		}
		all = append(all, known)
	}
	if !found {
		all = append(all, *c)
	}
	units, _ := claims.Together(all)
	unit := claims.UnitOf(units, c.UID)
	unit.Name, unit.Template, unit.Volume, unit.AsideName, unit.Where = c.Name, c.Template, c.Volume, c.AsideName, c.Where
	return unit
}

// Returned tells whether the member uses the claim again.
func (r *run) Returned(ctx context.Context, c *claims.Claim) (bool, error) {
	if c.Aside || c.Deleting {
		return false, nil
	}
	v, err := r.liveWithMember(ctx, c)
	if err != nil {
		return false, err
	}
	return stsdrain.Uses(&v.Observed, c), nil
}

// liveWithMember is live, with the pod that has the member's name and not its labels.
func (r *run) liveWithMember(ctx context.Context, c *claims.Claim) (*observe.Live, error) {
	v, err := r.live(ctx)
	if err != nil {
		return nil, err
	}
	uses, err := r.Reader.MemberUses(ctx, r.state.Drain, v, c)
	if err != nil || !uses || v.PodExists(c.Ordinal) {
		return v, err
	}
	with := *v
	with.Pods = append(with.Pods[:len(with.Pods):len(with.Pods)], c.Ordinal)
	return &with, nil
}

// MaySetAside asks about the live StatefulSet and pods, because there is no way back.
func (r *run) MaySetAside(ctx context.Context, c *claims.Claim) error {
	v, err := r.liveWithMember(ctx, c)
	if err != nil {
		return err
	}
	with := *v
	with.Claims = slices.Clone(v.Claims)
	for i := range with.Claims {
		part := &with.Claims[i]
		if part.Ordinal != c.Ordinal || part.Aside || part.LeavingSince.IsZero() {
			continue
		}
		pvc, err := r.state.Reader.LiveClaim(ctx, part.Ref())
		if err != nil || pvc == nil {
			return cmp.Or(err, read.Refuse("claim %s is gone", part.Name))
		}
		if part.Where, err = r.state.Reader.Where(ctx, pvc, part); err != nil {
			return err
		}
	}
	return read.RefusedBy(stsdrain.MaySetAside(&with.Observed, c.UID))
}

// MayHandOver asks whether each claim of the unit has another that is bound to its volume.
func (r *run) MayHandOver(ctx context.Context, c *claims.Claim) error {
	v, err := r.live(ctx)
	if err != nil {
		return err
	}
	return read.RefusedBy(stsdrain.MayHandOver(&v.Observed, c.UID))
}

// MayDrain asks about live claims, Jobs, pods and survivors.
func (r *run) MayDrain(ctx context.Context, a action.CreateDrain) error {
	v, err := r.liveWithMember(ctx, &claims.Claim{Ordinal: a.Claim.Ordinal})
	if err != nil {
		return err
	}
	return read.RefusedBy(stsdrain.MayDrain(&v.Observed, a))
}

// DrainJob makes the Job of the template.
func (r *run) DrainJob(a action.CreateDrain) (client.Object, error) {
	refs := append([]action.ClaimRef{a.Claim}, a.With...)
	uids := make([]types.UID, len(refs))
	for i := range refs {
		uids[i] = refs[i].UID
	}
	if r.state.Set == nil {
		return nil, read.Refuse("there is no StatefulSet %s", r.state.Drain.Spec.StatefulSetName)
	}
	return stsdrain.Job(&stsdrain.Departed{
		Owner: r.state.Drain, Set: r.state.Set, Leads: a.Claim, UIDs: uids, Claims: observe.Mounts(r.state.Claims, refs...),
		Start: a.Survivors.Start, Replicas: a.Survivors.Count,
	})
}

// Decision is the policy.
func (r *run) Decision() string {
	return string(cmp.Or(r.state.Drain.Spec.Policy, cachev1alpha1.PolicyDrain))
}

// Aside gives the claim our labels only, so that no tool that owns the StatefulSet prunes it.
func (r *run) Aside(action.CreateAside, *corev1.PersistentVolumeClaim) (labels, annotations map[string]string) {
	return map[string]string{cachev1alpha1.LabelStatefulSetDrain: r.state.Drain.Name, cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy},
		map[string]string{cachev1alpha1.AnnotationProtected: string(r.state.Drain.UID)}
}

// Drained is what the drainer has said.
func (r *run) Drained(receipt *action.Receipt) string {
	return claims.BoundMessage("drained: " + cmp.Or(receipt.Message, "exit code 0"))
}

// Event records an event about a claim, after a write.
func (r *run) Event(claim action.ClaimRef, reason, action, note string, args ...any) {
	related := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: r.state.Drain.Namespace, Name: claim.Name}}
	r.Events.Eventf(r.state.Drain, related, corev1.EventTypeNormal, reason, action, note, args...)
}
