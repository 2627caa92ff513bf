package status

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// Refusal is a step that the operator refuses to take, or that another owner's object blocks, and
// since when.
type Refusal struct {
	Since time.Time
	Why   string
}

// NotCreated is a pod that Kubernetes can't create, with the API server's words.
type NotCreated struct {
	// Of is the pod's owner, such as "StatefulSet cache".
	Of, Why string
}

// degraded names the worst problem that needs a person. w collects when the answer may change.
func degraded(in *Input, s *cachev1alpha1.MemcachedStatus, w *waits) metav1.Condition {
	rules := []func() *trouble{
		func() *trouble { return failing(in) },
		func() *trouble { return membersTrouble(in, w) },
		func() *trouble { return drainersLinger(in, w) },
		func() *trouble { return podNotCreated(in) },
		func() *trouble { return refusing(in, w) },
		func() *trouble { return sizeChanged(in) },
		func() *trouble { return drainOrMoveFailed(in, s) },
		func() *trouble { return unreachableSize(in) },
		func() *trouble { return leftOut(in) },
		func() *trouble { return drainStuck(in, s, w) },
		func() *trouble { return warmTrouble(in, s, w) },
		func() *trouble { return moveStuck(in, w) },
		func() *trouble { return keptByOthers(in, w) },
		func() *trouble { return certificateTrouble(in, w) },
		func() *trouble { return contended(in) },
		func() *trouble { return nodesUnknown(in) },
		func() *trouble { return slow(in, w) },
		func() *trouble { return drainHeld(s) },
	}
	for _, rule := range rules {
		if t := rule(); t != nil {
			return condition(cachev1alpha1.ConditionDegraded, true, t.reason, "%s", t.message)
		}
	}
	return condition(cachev1alpha1.ConditionDegraded, false, cachev1alpha1.ReasonHealthy, "nothing needs a person")
}

func troublef(reason, format string, args ...any) *trouble {
	return &trouble{reason, fmt.Sprintf(format, args...)}
}

// failing returns the trouble if the API server refuses a write, or if a claim was deleted.
func failing(in *Input) *trouble {
	if in.Err != nil {
		return troublef(errorReason(in.Err), "%v", in.Err)
	}
	for _, c := range in.Plan.DeletedClaims {
		return troublef(cachev1alpha1.ReasonClaimDeleted, "claim %s: %s", c.Claim.Name, c.Message)
	}
	return nil
}

// membersTrouble returns the trouble if members crash, don't start, or don't end.
func membersTrouble(in *Input, w *waits) *trouble {
	if pod, why := refused(in); why != nil {
		return troublef(why.Reason, "pod %s %s: %s; %s", pod, refusals[why.Reason].what, why.Message, refusals[why.Reason].advice)
	}
	first, n := troubled(in, w)
	if n > 1 {
		first.message = fmt.Sprintf("%s (and %d more pods)", claims.Bound(first.message, claims.MaxMessage-32), n-1)
	}
	return first
}

// podNotCreated returns the trouble if the API server refuses to create a wanted pod.
func podNotCreated(in *Input) *trouble {
	if n := in.NotCreated; n != nil {
		return troublef(cachev1alpha1.ReasonPodNotCreated, "%s can't create a pod: %s", n.Of, n.Why)
	}
	if in.Deployment == nil {
		return nil
	}
	for _, c := range in.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return troublef(cachev1alpha1.ReasonPodNotCreated, "Deployment %s can't create a pod: %s", in.Deployment.Name, c.Message)
		}
	}
	return nil
}

// refusing returns the trouble if the operator has refused a step for so long that a stale cache
// can't be the cause.
func refusing(in *Input, w *waits) *trouble {
	if r := in.Refused; r != nil && w.past(r.Since.Add(claims.StuckAfter)) {
		return troublef(cachev1alpha1.ReasonStepRefused, "since %s: %s", clock(r.Since), r.Why)
	}
	return nil
}

// sizeChanged returns the trouble if admission changes the number of members or routers that the
// operator asks for.
func sizeChanged(in *Input) *trouble {
	if in.SizeChanged == "" || deleting(in) {
		return nil
	}
	return troublef(cachev1alpha1.ReasonSizeChangedByAdmission,
		"%s: change the policy, then remove the annotation %s of that object, so that the operator writes it again", in.SizeChanged, cachev1alpha1.AnnotationApplied)
}

// drainOrMoveFailed returns the trouble if a drain or a move has failed, and no later attempt has succeeded
// yet.
func drainOrMoveFailed(in *Input, s *cachev1alpha1.MemcachedStatus) *trouble {
	for i := range s.Drains { // s.Drains and the plan's are in the same order
		d, planned := &s.Drains[i], &in.Plan.Drains[i]
		switch failed := planned.Claim.Attempts.Failed; {
		case d.Phase == cachev1alpha1.DrainFailed && d.Reason == cachev1alpha1.ReasonNameTaken:
			return troublef(cachev1alpha1.ReasonNameTaken, "claim %s: %s", d.Claim, d.Message)
		case d.Phase == cachev1alpha1.DrainFailed:
			return troublef(cachev1alpha1.ReasonDrainFailed, "claim %s: %s: %s", d.Claim, d.Reason, d.Message)
		case failed > 0 && (planned.Phase == claims.Draining || planned.Phase == claims.Waiting) && planned.Reason != claims.Hibernating:
			return troublef(cachev1alpha1.ReasonDrainFailed, "claim %s: failed attempts: %d; it is being tried again", d.Claim, failed)
		}
	}
	was := meta.FindStatusCondition(in.Cluster.Status.Conditions, cachev1alpha1.ConditionDegraded)
	known := was != nil && was.Reason == cachev1alpha1.ReasonMoveFailed // the failure is of this ring, not of an earlier one
	for i := range in.Plan.Moves {
		p := &in.Plan.Moves[i]
		switch failed := p.Claim.Attempts.Failed; {
		case p.Phase == plan.MoveFailed:
			return troublef(cachev1alpha1.ReasonMoveFailed, "claim %s: %s: %s", p.Claim.Name, p.Reason, p.Message)
		case failed > 0 && known:
			return troublef(cachev1alpha1.ReasonMoveFailed, "claim %s: failed attempts: %d; it is being tried again", p.Claim.Name, failed)
		}
	}
	return nil
}

// drainHeld returns the trouble if a person holds a drain. This trouble comes last, because that person
// knows of it.
func drainHeld(s *cachev1alpha1.MemcachedStatus) *trouble {
	for _, d := range s.Drains {
		if d.Phase == cachev1alpha1.DrainHeld {
			return troublef(cachev1alpha1.ReasonDrainHeld, "claim %s: %s", d.Claim, d.Message)
		}
	}
	return nil
}

// contended returns the trouble if another installation of the operator watches the namespace.
func contended(in *Input) *trouble {
	if in.OtherOperator == "" {
		return nil
	}
	return &trouble{cachev1alpha1.ReasonOtherOperator, claims.Contended("Memcached", in.OtherOperator, in.Cluster.Annotations[cachev1alpha1.AnnotationOperator])}
}

// nodesUnknown returns the trouble if members are to step out before their evictions, and the operator can't see which
// nodes are drained.
func nodesUnknown(in *Input) *trouble {
	if in.NodesUnknown == "" || deleting(in) {
		return nil
	}
	return troublef(cachev1alpha1.ReasonNodesUnknown,
		"podDisruptionBudget.evictions is StepOut, and members are evicted %s their items, as with Bounded: %s", evictedWith(in), in.NodesUnknown)
}

// Kept is a deleted object that another owner's finalizer keeps.
type Kept struct {
	Kind, Name, Finalizer string
	Since                 time.Time
}

// keptByOthers returns the trouble if a deleted object is still there and other steps wait for its
// end.
func keptByOthers(in *Input, w *waits) *trouble {
	for _, k := range in.Kept {
		if w.past(k.Since.Add(claims.StuckAfter)) {
			return troublef(cachev1alpha1.ReasonKeptByFinalizer, "%s %s was deleted at %s, and the finalizer %s of another owner keeps it: ask that owner to remove the finalizer, or remove it yourself",
				k.Kind, k.Name, clock(k.Since), k.Finalizer)
		}
	}
	return nil
}

// drainersLinger returns the trouble if a pod of a drain or a move was told to end and does not. No
// drain, move or change of size can continue before the pod has ended.
func drainersLinger(in *Input, w *waits) *trouble {
	for i := range in.Drainers {
		if pod := &in.Drainers[i]; pod.DeletionTimestamp != nil {
			if t := lingers(pod, claims.DrainerEnds(pod, DrainerGrace(in.Cluster)), cachev1alpha1.ReasonDrainerDoesNotEnd, w); t != nil {
				return t
			}
		}
	}
	return nil
}

func refusedMark(in *Input) string {
	return fmt.Sprintf("the size goes from %d to %d when the claims of the leaving members can be marked, which is tried again in a moment: %s",
		in.Plan.Replicas, *in.Cluster.Spec.Size, in.Plan.SizeRefused)
}

// unreachableSize returns the trouble if the wanted size or volume size can't be reached without a
// person.
func unreachableSize(in *Input) *trouble {
	switch {
	case in.Plan.SizeBlocked == plan.BlockedByVolume && stuck(in):
		return troublef(cachev1alpha1.ReasonBlockedByVolume, "%s", blockedByVolume(in))
	case in.Plan.SizeBlocked == plan.BlockedByRefusal:
		return troublef(cachev1alpha1.ReasonRefused, "%s", refusedMark(in))
	case in.Plan.SizeBlocked == plan.BlockedByShortage:
		return &trouble{cachev1alpha1.ReasonShortOfMemory, waitsForRoom(in)}
	case in.Plan.GrowthWaits && in.Plan.KeepsTemplate:
		return &trouble{cachev1alpha1.ReasonVolumesWait, memoryDoesNotFit(in)}
	case len(in.Plan.SmallClaims) > 0 && in.GrowthRefused != "":
		return &trouble{cachev1alpha1.ReasonVolumesCannotGrow, cannotGrow(in)}
	}
	return nil
}

// leftOut returns the trouble if members have no address of the family that the list in DNS has.
func leftOut(in *Input) *trouble {
	n := int32(len(in.Servers))
	if deleting(in) {
		return nil
	}
	if build.Stable(in.Cluster) {
		if without := build.ServicesOfOtherFamily(in.Cluster.Name, n, in.MemberServices); len(without) > 0 {
			return troublef(cachev1alpha1.ReasonAddressFamily,
				"the members' Services have addresses of two families, so the list in DNS stays as it was: %d of %d have no address of the others' family, the first is that of %s", len(without), n, without[0])
		}
		return nil
	}
	without := build.LeftOut(in.Cluster, n, in.Pods, in.Listed)
	if len(in.Listed) == 0 || len(without) == 0 {
		return nil
	}
	return troublef(cachev1alpha1.ReasonAddressFamily,
		"the list in DNS has addresses of one family, and leaves out %d of %d members that have no such address, the first is %s", len(without), len(in.Servers), without[0])
}

// drainStuck returns the trouble if a drain has its Job, but no drainer has been at work for long.
func drainStuck(in *Input, s *cachev1alpha1.MemcachedStatus, w *waits) *trouble {
	for i := range s.Drains { // s.Drains and the plan's are in the same order
		d := &s.Drains[i]
		_, waits := in.Waits[in.Plan.Drains[i].Claim.UID]
		waits = waits && d.Phase == cachev1alpha1.DrainStarting || d.Phase == cachev1alpha1.DrainAdding && d.Reason != ""
		if waits && d.Since != nil && w.past(d.Since.Add(patience(d.Reason))) {
			return troublef(cachev1alpha1.ReasonDrainStuck, "claim %s: %s: %s", d.Claim, cmp.Or(d.Reason, string(d.Phase)), d.Message)
		}
	}
	return nil
}

// moveStuck is drainStuck for a move.
func moveStuck(in *Input, w *waits) *trouble {
	for i := range in.Plan.Moves {
		p := &in.Plan.Moves[i]
		wait, waits := in.Waits[p.Claim.UID]
		if progress := in.Progress[p.Claim.UID]; !waits && progress.Message != "" && (progress.Phase != contract.PhaseSettling || progress.SourceSilent) {
			since := in.Now.Add(-time.Duration(progress.WaitingSeconds * float64(time.Second)))
			wait, waits = claims.Wait{Reason: cachev1alpha1.ReasonSurvivorUnreachable, Message: progress.Message, Since: since}, true
			if progress.SourceSilent {
				wait.Reason = cachev1alpha1.ReasonSourceUnreachable
			}
		}
		if p.Phase == plan.MoveRuns && waits && w.past(wait.Since.Add(patience(wait.Reason))) {
			return troublef(cachev1alpha1.ReasonMoveStuck, "claim %s: %s: %s", p.Claim.Name, cmp.Or(wait.Reason, "Starting"), wait.Message)
		}
	}
	return nil
}

// patience is how long a drainer may wait for this reason: 0 if the kubelet or the API server says
// that it can't start, otherwise long enough to pull a large image.
func patience(reason string) time.Duration {
	switch reason {
	case cachev1alpha1.ReasonPodNotCreated:
		return 0
	case string(corev1.PodReasonUnschedulable), cachev1alpha1.ReasonRetrying, cachev1alpha1.ReasonJobSuspended, cachev1alpha1.ReasonNoPodYet,
		cachev1alpha1.ReasonSurvivorUnreachable, cachev1alpha1.ReasonSourceUnreachable:
		return claims.StuckAfter
	}
	if waitingReason(reason) != "" {
		return 0
	}
	return slowAfter
}

// errorReason is InvalidSpec if a person has to correct the spec, otherwise ReconcileError.
func errorReason(err error) string {
	if taken := (*identity.NameTakenError)(nil); errors.As(err, &taken) {
		return cachev1alpha1.ReasonNameTaken
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid {
		return cachev1alpha1.ReasonInvalidSpec
	}
	return cachev1alpha1.ReasonReconcileError
}
