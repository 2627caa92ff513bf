package status

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// conditions returns one of each type.
func conditions(in *Input, s *cachev1alpha1.MemcachedStatus) []metav1.Condition {
	return []metav1.Condition{
		available(in, s), progressing(in, s), degraded(in, s), draining(s), placing(in), routingStable(in, s), shortOfMemory(in, s),
		replayable(in), warm(in, s), volumesSized(in), monitored(in), bindable(in),
	}
}

func condition(kind string, value bool, reason, format string, args ...any) metav1.Condition {
	status := metav1.ConditionFalse
	if value {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func available(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionAvailable
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return condition(kind, false, cachev1alpha1.ReasonDeleting, "the Memcached is being deleted")
	case size == 0 && in.Cluster.Spec.Storage != nil && in.Plan.Replicas == 0:
		return condition(kind, false, cachev1alpha1.ReasonHibernated, "size is 0: the volumes keep the cache until members return")
	case size == 0 && in.Cluster.Spec.Storage == nil:
		return condition(kind, false, cachev1alpha1.ReasonScaledToZero, "size is 0")
	case s.ReadySize < size:
		return condition(kind, false, cachev1alpha1.ReasonMembersNotReady, "%d of %d members are ready", s.ReadySize, size)
	}
	return condition(kind, true, cachev1alpha1.ReasonReady, "%d of %d members are ready", size, size)
}

func progressing(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionProgressing
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return condition(kind, true, cachev1alpha1.ReasonDeleting, "the Memcached is being deleted")
	case in.Plan.SizeBlocked == plan.ByDrain:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForDrain,
			"the size goes from %d to %d when the drains that run have ended", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.ByPlacement:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForPlacement,
			"the size goes from %d to %d when items are placed: see the condition Placing", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.ByShortage:
		return condition(kind, false, cachev1alpha1.ReasonShortOfMemory, "the size goes from %d to %d when there is room for the items", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.ByVolume && stuck(in):
		return condition(kind, false, cachev1alpha1.ReasonBlockedByVolume,
			"member %d can't return while the volume it left, with values that may be old, is still there: "+
				"drain or give up claim %s first", in.Plan.Replicas, blockingClaim(in))
	case in.Plan.SizeBlocked == plan.ByVolume:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForDrain,
			"the size goes from %d to %d when claim %s is drained or set aside", in.Plan.Replicas, size, blockingClaim(in))
	case s.Size != size || s.ReadySize != size:
		return condition(kind, true, cachev1alpha1.ReasonScaling, "%d members exist, %d are ready, %d are wanted", s.Size, s.ReadySize, size)
	case in.Plan.KeepsTemplate && in.GrowthRefused != "":
		return condition(kind, false, cachev1alpha1.ReasonVolumesCannotGrow, "the members can't have the new memory: see the condition VolumesSized")
	case in.Plan.KeepsTemplate:
		return condition(kind, true, cachev1alpha1.ReasonVolumesGrow, "the members change when their volumes have grown")
	case rolling(in):
		return condition(kind, true, cachev1alpha1.ReasonRolling, "members are being replaced by ones of the new specification")
	}
	return condition(kind, false, cachev1alpha1.ReasonAsWanted, "the cluster is as wanted")
}

// stuck tells whether the lowest released claim can't go by itself.
func stuck(in *Input) bool {
	d := blocking(in)
	return d == nil || d.Phase == plan.Failed || d.Phase == plan.Held // nil: kept by policy
}

func blockingClaim(in *Input) string {
	if d := blocking(in); d != nil {
		return d.Claim.Name
	}
	return fmt.Sprintf("of member %d", in.Plan.Replicas)
}

// blocking is the drain of the volume that a member left which is to return, or
// nil where that volume is kept.
func blocking(in *Input) *plan.DrainState {
	i := slices.IndexFunc(in.Plan.Drains, func(d plan.DrainState) bool {
		return d.Claim.Ordinal == in.Plan.Replicas && !d.Claim.Aside
	})
	if i < 0 {
		return nil
	}
	return &in.Plan.Drains[i]
}

func rolling(in *Input) bool {
	if sts := in.StatefulSet; sts != nil {
		return sts.Status.ObservedGeneration == sts.Generation && sts.Status.UpdateRevision != sts.Status.CurrentRevision
	}
	d := in.Deployment
	return d != nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas != d.Status.Replicas
}

// degraded names what needs a person, the worst first.
func degraded(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionDegraded
	if in.Err != nil {
		return condition(kind, true, errorReason(in.Err), "%v", in.Err)
	}
	for _, c := range in.Plan.LostClaims {
		return condition(kind, true, cachev1alpha1.ReasonClaimDeleted, "claim %s: %s", c.Claim.Name, c.Message)
	}
	if pod, why := refused(in); why != nil {
		return condition(kind, true, why.Reason, "pod %s does not start: %s; see the Secrets of spec.tls and spec.auth", pod, why.Message)
	}
	for _, d := range s.Drains {
		switch d.Phase {
		case cachev1alpha1.DrainFailed:
			return condition(kind, true, cachev1alpha1.ReasonDrainFailed, "claim %s: %s: %s", d.Claim, d.Reason, d.Message)
		case cachev1alpha1.DrainHeld:
			return condition(kind, true, cachev1alpha1.ReasonDrainHeld, "claim %s: %s", d.Claim, d.Message)
		}
	}
	for _, p := range in.Plan.Placements {
		if p.Phase == plan.PlacementFailure {
			return condition(kind, true, cachev1alpha1.ReasonPlacementFailed, "claim %s: %s: %s", p.Claim.Name, p.Reason, p.Message)
		}
	}
	return condition(kind, false, cachev1alpha1.ReasonHealthy, "nothing needs a person")
}

// refused is a member whose supervisor does not start memcached, and why.
func refused(in *Input) (pod string, why *contract.Refusal) {
	for i := range in.Pods {
		for _, c := range in.Pods[i].Status.ContainerStatuses {
			ended := c.State.Terminated
			if ended == nil && c.State.Waiting != nil {
				ended = c.LastTerminationState.Terminated
			}
			if ended == nil || c.Name != build.ContainerMemcached {
				continue
			}
			if why := contract.ParseRefusal(ended.Message); why != nil && why.Reason == cachev1alpha1.ReasonSecretInvalid {
				return in.Pods[i].Name, why
			}
		}
	}
	return "", nil
}

// NameTakenError tells that an object of the cluster's name is there, and that
// it is somebody else's.
type NameTakenError struct{ Kind, Name string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("%s %s exists and is not this Memcached's: delete it, or give the Memcached another name", e.Kind, e.Name)
}

// errorReason tells what a person must mend from what the API server didn't
// answer.
func errorReason(err error) string {
	if taken := (*NameTakenError)(nil); errors.As(err, &taken) {
		return cachev1alpha1.ReasonNameTaken
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid {
		return cachev1alpha1.ReasonInvalidSpec
	}
	return cachev1alpha1.ReasonReconcileError
}

func draining(s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionDraining
	failed := 0
	for _, d := range s.Drains {
		if d.Phase == cachev1alpha1.DrainFailed || d.Phase == cachev1alpha1.DrainHeld {
			failed++
		}
	}
	switch {
	case len(s.Drains) == 0:
		return condition(kind, false, cachev1alpha1.ReasonNothingToDrain, "no volume is on its way out")
	case failed == len(s.Drains):
		return condition(kind, false, cachev1alpha1.ReasonDrainFailed, "volumes that wait for a person: %d", failed)
	}
	return condition(kind, true, cachev1alpha1.ReasonDraining, "volumes on their way out: %d", len(s.Drains))
}

func deleting(in *Input) bool { return in.Cluster.DeletionTimestamp != nil }

func phase(in *Input, s *cachev1alpha1.MemcachedStatus) cachev1alpha1.Phase {
	is := func(kind string) bool {
		for _, c := range s.Conditions {
			if c.Type == kind {
				return c.Status == metav1.ConditionTrue
			}
		}
		return false
	}
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return cachev1alpha1.PhaseDeleting
	case is(cachev1alpha1.ConditionDegraded):
		return cachev1alpha1.PhaseDegraded
	case is(cachev1alpha1.ConditionDraining):
		return cachev1alpha1.PhaseDraining
	case size == 0 && s.Size == 0 && in.Cluster.Spec.Storage != nil:
		return cachev1alpha1.PhaseHibernated
	case is(cachev1alpha1.ConditionPlacing):
		return cachev1alpha1.PhasePlacing
	case !is(cachev1alpha1.ConditionProgressing):
		return cachev1alpha1.PhaseRunning
	case in.Cluster.Status.Phase == "" || in.Cluster.Status.Phase == cachev1alpha1.PhasePending && s.ReadySize < size:
		return cachev1alpha1.PhasePending
	}
	return cachev1alpha1.PhaseScaling
}
