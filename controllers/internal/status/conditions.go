package status

import (
	"fmt"
	"slices"
	"strings"

	"example.com/memcached-operator/controllers/internal/claims"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// conditions are Ready, Available, Progressing and Degraded, in this order, then those that have
// something to say. The others are nil.
func conditions(in *Input, s *cachev1alpha1.MemcachedStatus, w *waits) []metav1.Condition {
	list := []metav1.Condition{available(in, s), progressing(in, s, w), degraded(in, s, w)}
	for _, c := range []*metav1.Condition{
		draining(in, s), moving(in), monitored(in), bindable(in), certificateValid(in, w), routersReady(in, w),
	} {
		if c != nil {
			list = append(list, *c)
		}
	}
	return slices.Insert(list, 0, ready(in, s, list))
}

// setConditions replaces the status's conditions. A condition keeps its transition time
// if its status stays.
func setConditions(in *Input, s *cachev1alpha1.MemcachedStatus, list []metav1.Condition) {
	before := s.Conditions
	s.Conditions = nil
	for _, c := range list {
		c.ObservedGeneration = in.Cluster.Generation
		c.LastTransitionTime = metav1.NewTime(in.Now)
		if was := meta.FindStatusCondition(before, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
}

// says returns a condition that is there only while it has something to say.
func says(kind string, value bool, reason, format string, args ...any) *metav1.Condition {
	c := condition(kind, value, reason, format, args...)
	return &c
}

func condition(kind string, value bool, reason, format string, args ...any) metav1.Condition {
	status := metav1.ConditionFalse
	if value {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: claims.BoundMessage(fmt.Sprintf(format, args...))}
}

func available(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionAvailable
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return condition(kind, false, cachev1alpha1.ReasonDeleting, "the Memcached is being deleted")
	case size == 0 && in.Cluster.Spec.HasVolumes() && in.Plan.Replicas == 0:
		return condition(kind, false, cachev1alpha1.ReasonHibernated, "size is 0: the volumes keep the cache until members return")
	case size == 0 && !in.Cluster.Spec.HasVolumes():
		return condition(kind, false, cachev1alpha1.ReasonScaledToZero, "size is 0")
	case s.ReadySize < size:
		return condition(kind, false, cachev1alpha1.ReasonMembersNotReady, "%d of %d members are ready%s", s.ReadySize, size, notReady(in))
	}
	addresses := ""
	if in.Cluster.Spec.Storage == nil {
		addresses = "; their addresses change with their pods: storage.mode Memory gives them names"
	}
	return condition(kind, true, cachev1alpha1.ReasonReady, "%d of %d members are ready%s", size, size, addresses)
}

func progressing(in *Input, s *cachev1alpha1.MemcachedStatus, w *waits) metav1.Condition {
	const kind = cachev1alpha1.ConditionProgressing
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return condition(kind, true, cachev1alpha1.ReasonDeleting, "the Memcached is being deleted")
	case in.Cluster.Spec.Paused:
		return condition(kind, false, cachev1alpha1.ReasonPaused,
			"spec.paused is true: the operator changes nothing of this cluster until it is false, or until the Memcached is deleted")
	case in.Plan.LingeringDrainer != "":
		return condition(kind, true, cachev1alpha1.ReasonWaitingForDrain,
			"the size goes from %d to %d when pod %s has ended: it drains a claim, and its Job is gone", in.Plan.Replicas, size, in.Plan.LingeringDrainer)
	case in.Plan.SizeBlocked == plan.BlockedByDrain:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForDrain,
			"the size goes from %d to %d when the drains that run have ended", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.BlockedByMove && in.Plan.Warming.Job != nil:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForMove,
			"the size goes from %d to %d when Job %s, which fills the cluster, has ended: kubectl mc skip mc/%s ends it", in.Plan.Replicas, size, in.Plan.Warming.Job.Name, in.Cluster.Name)
	case in.Plan.SizeBlocked == plan.BlockedByMove && len(in.Plan.Moves) == 0:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForMove,
			"the size goes from %d to %d when the pods that moved items between members have ended", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.BlockedByMove:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForMove,
			"the size goes from %d to %d when items are moved: see the condition Moving", in.Plan.Replicas, size)
	case in.Plan.SizeBlocked == plan.BlockedByRefusal:
		return condition(kind, false, cachev1alpha1.ReasonRefused, "%s", refusedMark(in))
	case in.Plan.SizeBlocked == plan.BlockedByShortage:
		return condition(kind, false, cachev1alpha1.ReasonShortOfMemory, "%s", waitsForRoom(in))
	case in.Plan.SizeBlocked == plan.BlockedByVolume && stuck(in):
		return condition(kind, false, cachev1alpha1.ReasonBlockedByVolume, "%s", blockedByVolume(in))
	case in.Plan.SizeBlocked == plan.BlockedByVolume:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForDrain,
			"the size goes from %d to %d when %s", in.Plan.Replicas, size, freed(&blocking(in).Claim))
	case in.Plan.SizeBlocked == plan.BlockedByStep:
		return condition(kind, true, cachev1alpha1.ReasonWaitingForMove, "the size goes from %d to %d when %s", in.Plan.Replicas, size, stepEnds(in, w))
	case in.Plan.State != "":
		return condition(kind, true, cachev1alpha1.ReasonRolling, "%s%s", stepping(in, w), volumesThatGrowLater(in))
	case replaces(in):
		return condition(kind, true, cachev1alpha1.ReasonRolling, "members are being replaced by ones of the new specification%s", volumesThatGrowLater(in))
	case s.Size != size || s.ReadySize != size:
		return condition(kind, true, cachev1alpha1.ReasonScaling, "%d members exist, %d are ready, %d are wanted%s", s.Size, s.ReadySize, size, notReady(in))
	case in.Plan.KeepsTemplate && size > 0:
		return growing(in)
	case rolling(in):
		return condition(kind, true, cachev1alpha1.ReasonRolling, "members are being replaced by ones of the new specification%s", volumesThatGrowLater(in))
	case len(in.Plan.SmallClaims) > 0 && size > 0:
		return growing(in)
	case warming(in, s) != nil:
		return *warming(in, s)
	case in.RollOutWaits != "":
		return condition(kind, false, cachev1alpha1.ReasonWaitingForTurn, "%s", in.RollOutWaits)
	}
	return condition(kind, false, cachev1alpha1.ReasonAsWanted, "%s", asWanted(in, s))
}

// asWanted says that the members are as wanted, and what else is not.
func asWanted(in *Input, s *cachev1alpha1.MemcachedStatus) string {
	var rest []string
	if n := len(s.Drains); n > 0 {
		rest = append(rest, fmt.Sprintf("claims to be drained: %d (%s)", n, progressLine(s.Drains)))
	}
	if n := len(in.Plan.Moves); n > 0 {
		rest = append(rest, fmt.Sprintf("members whose items are to be moved: %d", n))
	}
	if s := &in.Plan.Step; s.Evicted {
		rest = append(rest, fmt.Sprintf("member %d on node %s, which is cordoned, may be evicted %s its items: %s", s.Member, s.Node, evictedWith(in), s.Why))
	}
	if len(rest) == 0 {
		return "the cluster is as wanted"
	}
	return "the members are as wanted; " + strings.Join(rest, "; ")
}

// evictedWith is "with" if a member's items outlive its eviction.
func evictedWith(in *Input) string {
	if in.Cluster.Spec.InPods() {
		return "without"
	}
	return "with"
}

// freed says when the member that left blocks its return no more.
func freed(c *claims.Claim) string {
	if c.InPod {
		return fmt.Sprintf("pod %s is gone: its items may be old", c.Name)
	}
	return fmt.Sprintf("claim %s is drained or set aside", c.Name)
}

// blockedByVolume says which claim blocks the size, why, and what a person can do.
func blockedByVolume(in *Input) string {
	return fmt.Sprintf("the size can't go from %d to %d: the volume that member %d left is still there, and its values may be old; %s",
		in.Plan.Replicas, *in.Cluster.Spec.Size, in.Plan.Replicas, wayOut(in))
}

func wayOut(in *Input) string {
	d := blocking(in)
	switch {
	case d == nil:
		return fmt.Sprintf("claim %s is not drained: take what you need from its volume, then delete the claim, unless it is being deleted already",
			build.ClaimName(in.Cluster.Name, in.Plan.Replicas))
	case d.Phase == claims.Held:
		return fmt.Sprintf("a person holds the drain of claim %s: remove the annotation %s=hold from the claim, "+
			"or set it to skip to give its items up", d.Claim.Name, cachev1alpha1.AnnotationDrain)
	case d.Reason == claims.InTheWay || d.Reason == claims.ClaimDeleted:
		return fmt.Sprintf("claim %s: %s", d.Claim.Name, d.Message) // waiting for another attempt would not help
	}
	return fmt.Sprintf("the drain of claim %s failed (%s): see the drainer's log, then annotate the claim with "+
		"%s=retry, or =skip to give its items up", d.Claim.Name, claims.Bound(d.Reason, claims.MaxReason), cachev1alpha1.AnnotationDrain)
}

// stuck tells whether the claim that blocks the size needs a person.
func stuck(in *Input) bool {
	d := blocking(in)
	return d == nil || d.Phase == claims.Failed || d.Phase == claims.Held
}

// blocking is the drain of the lowest member that is to return; nil if its volume is not drained,
// because the claim is retained or being deleted.
func blocking(in *Input) *claims.DrainState {
	i := slices.IndexFunc(in.Plan.Drains, func(d claims.DrainState) bool {
		return d.Claim.Ordinal == in.Plan.Replicas && !d.Claim.Aside
	})
	if i < 0 {
		return nil
	}
	return &in.Plan.Drains[i]
}

// rolling tells whether members are being replaced, or may be because this reconcile has written
// them.
func rolling(in *Input) bool {
	if in.MembersWritten {
		return true
	}
	if sts := in.StatefulSet; sts != nil {
		return sts.Status.ObservedGeneration != sts.Generation || sts.Status.UpdateRevision != sts.Status.CurrentRevision
	}
	d := in.Deployment
	return d != nil && (d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != d.Status.Replicas)
}

// replaces tells whether members are being replaced one by one at the wanted size. During that time
// one member is nearly always missing or not ready.
func replaces(in *Input) bool {
	sts, size := in.StatefulSet, *in.Cluster.Spec.Size
	return sts != nil && ptr.Deref(sts.Spec.Replicas, 1) == size && sts.Status.Replicas >= size-1 &&
		sts.Status.ObservedGeneration == sts.Generation && sts.Status.UpdateRevision != sts.Status.CurrentRevision
}

// draining is nil if no volume has to be drained.
func draining(in *Input, s *cachev1alpha1.MemcachedStatus) *metav1.Condition {
	const kind = cachev1alpha1.ConditionDraining
	if in.Cluster.Spec.Storage == nil {
		return nil
	}
	open, failed, held := 0, 0, 0
	for _, d := range s.Drains {
		switch d.Phase {
		case cachev1alpha1.DrainFailed:
			failed++
		case cachev1alpha1.DrainHeld:
			held++
		default:
			open++
		}
	}
	var counts []string
	count := func(n int, what string) {
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", what, n))
		}
	}
	count(open, "volumes to drain")
	count(failed, "failed drains")
	count(held, "drains held by a person")
	message := strings.Join(counts, "; ")
	switch {
	case open > 0:
		return says(kind, true, cachev1alpha1.ReasonDraining, "%s", message)
	case failed > 0:
		return says(kind, false, cachev1alpha1.ReasonDrainFailed, "%s", message)
	case held > 0:
		return says(kind, false, cachev1alpha1.ReasonDrainHeld, "%s", message)
	}
	return nil
}

func deleting(in *Input) bool { return in.Cluster.DeletionTimestamp != nil }
