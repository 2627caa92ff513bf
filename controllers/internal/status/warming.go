package status

import (
	"cmp"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// warm is the state of spec.warmFrom; nil if the spec has none.
func warm(in *Input) *cachev1alpha1.WarmStatus {
	if in.Cluster.Spec.WarmFrom == nil || in.Plan.Warming.Phase == "" {
		return nil
	}
	p := &in.Plan.Warming
	s := &cachev1alpha1.WarmStatus{Reason: p.Reason, Message: p.Message, Last: warmReceipt(&in.Warmed)}
	switch p.Phase {
	case plan.WarmWaits:
		s.Phase = cachev1alpha1.WarmWaiting
	case plan.WarmFailed:
		s.Phase = cachev1alpha1.WarmFailed
	case plan.WarmRuns:
		copying(in, s)
	case plan.WarmEnded:
		s.Phase, s.Reason = cachev1alpha1.WarmPhase(cmp.Or(in.Warmed.Result, action.WarmSkipped)), in.Warmed.Why
	}
	s.Reason, s.Message = claims.Bound(s.Reason, claims.MaxReason), claims.BoundMessage(s.Message)
	s.Since = &metav1.Time{Time: in.Now}
	if before := in.Cluster.Status.Warm; before != nil && before.Since != nil && before.Phase == s.Phase && before.Reason == s.Reason {
		s.Since = before.Since
	}
	return s
}

// copying says how far the Job is.
func copying(in *Input, s *cachev1alpha1.WarmStatus) {
	s.Phase = cachev1alpha1.WarmStarting
	uid := in.Cluster.UID
	progress, known := in.Progress[uid]
	switch wait, waits := in.Waits[uid]; {
	case waits:
		s.Reason, s.Message = wait.Reason, wait.Message
	case known:
		s.Phase = cachev1alpha1.WarmCopying
		s.Pass, s.ItemsDone, s.ItemsTotal = int32(min(progress.Pass, math.MaxInt32)), progress.ItemsDone, progress.ItemsTotal
		s.TimeLeft = itemsLeft(&progress)
		if progress.Message != "" {
			s.Reason, s.Message = silent(&progress), progress.Message
		}
	case in.Cluster.Status.Warm != nil && in.Cluster.Status.Warm.Phase == cachev1alpha1.WarmCopying: // its log could not be read, or it has just ended
		last := s.Last
		*s = *in.Cluster.Status.Warm
		s.Last = last
	}
}

// silent is the reason why a drainer between two caches waits.
func silent(p *contract.Progress) string {
	if p.SourceSilent {
		return cachev1alpha1.ReasonSourceUnreachable
	}
	return cachev1alpha1.ReasonSurvivorUnreachable
}

// itemsLeft is timeLeft by the items of the present pass.
func itemsLeft(p *contract.Progress) *metav1.Duration {
	const enough = 1 // seconds
	done, total := p.ItemsDone, p.ItemsTotal
	if p.Phase != contract.PhaseAdding || p.Message != "" || p.Seconds < enough || done <= 0 || total <= done {
		return nil
	}
	seconds := math.Ceil(p.Seconds * float64(total-done) / float64(done))
	return &metav1.Duration{Duration: time.Duration(min(seconds, mostLeft.Seconds())) * time.Second}
}

func warmReceipt(r *action.WarmRecord) *cachev1alpha1.WarmReceipt {
	if r.At.IsZero() || r.Jobs == 0 {
		return nil
	}
	return &cachev1alpha1.WarmReceipt{
		Jobs: r.Jobs, Passes: r.Passes, Found: r.Found, Added: r.Added, AlreadyPresent: r.AlreadyPresent, Expired: r.Expired,
		Invalidated: r.Invalidated, Rejected: r.Rejected, LeftOut: r.LeftOut, Bytes: r.Bytes, CantTell: r.CantTell, EndedAt: metav1.NewTime(r.At),
	}
}

// warmLine sums up the warming for the printer column.
func warmLine(s *cachev1alpha1.WarmStatus) string {
	switch {
	case s == nil || s.Phase != cachev1alpha1.WarmCopying:
		return ""
	case s.ItemsTotal > 0:
		return fmt.Sprintf("%d%% (%d/%d items)", min(100, s.ItemsDone*100/s.ItemsTotal), s.ItemsDone, s.ItemsTotal)
	}
	return fmt.Sprintf("%d items", s.ItemsDone)
}

// warming is the state of Progressing while the cluster is being filled; nil if it is not.
func warming(in *Input, s *cachev1alpha1.MemcachedStatus) *metav1.Condition {
	if !in.Plan.Warming.Open || s.Warm == nil || s.Warm.Reason == claims.Hibernating {
		return nil
	}
	source := build.WarmSays(in.Cluster)
	const kind = cachev1alpha1.ConditionProgressing
	switch w := s.Warm; {
	case w.Phase == cachev1alpha1.WarmWaiting && w.Reason == cachev1alpha1.ReasonSourceNotThere:
		return says(kind, true, cachev1alpha1.ReasonSourceNotThere, "the cluster is to be filled from %s: %s", source, w.Message)
	case w.Message != "":
		return says(kind, true, cachev1alpha1.ReasonWarming, "the cluster is to be filled from %s: %s", source, w.Message)
	default:
		line := warmLine(w)
		if line != "" {
			line = ": " + line
		}
		return says(kind, true, cachev1alpha1.ReasonWarming, "the cluster is being filled from %s%s", source, line)
	}
}

// notFilled is the advice if the source was given up; nil if it was not.
func notFilled(in *Input) *cachev1alpha1.Advice {
	if in.Cluster.Spec.WarmFrom == nil || in.Warmed.Why == "" || in.Plan.Warming.Open {
		return nil
	}
	return advise(cachev1alpha1.ReasonNotFilled, "%s could not be copied (%s), so the cluster goes on without it: kubectl mc warm %s tries again, and without spec.warmFrom this passes",
		build.WarmSays(in.Cluster), in.Warmed.Why, in.Cluster.Name)
}

// warmTrouble returns the trouble if the source can't be copied.
func warmTrouble(in *Input, s *cachev1alpha1.MemcachedStatus, w *waits) *trouble {
	p := &in.Plan.Warming
	if s.Warm == nil || !p.Open {
		return nil
	}
	source := build.WarmSays(in.Cluster)
	since := s.Warm.Since.Time
	failed := in.WarmAttempts
	wait, waits := in.Waits[in.Cluster.UID]
	if progress := in.Progress[in.Cluster.UID]; !waits && progress.Message != "" {
		wait = claims.Wait{Reason: silent(&progress), Message: progress.Message, Since: in.Now.Add(-time.Duration(progress.WaitingSeconds * float64(time.Second)))}
		waits = true
	}
	switch {
	case p.Phase == plan.WarmFailed && p.Reason == contract.ReasonListingRefused:
		return troublef(cachev1alpha1.ReasonListingRefused, "%s: %s", source, p.Message)
	case p.Phase == plan.WarmFailed && p.Reason == contract.ReasonTargetTooSmall:
		return troublef(cachev1alpha1.ReasonTargetTooSmall, "%s: %s", source, p.Message)
	case p.Phase == plan.WarmFailed:
		return troublef(cachev1alpha1.ReasonWarmFailed, "%s: %s: %s", source, p.Reason, p.Message)
	case p.Reason == cachev1alpha1.ReasonSourceNotThere && w.past(since.Add(claims.StuckAfter)):
		return troublef(cachev1alpha1.ReasonSourceNotThere, "%s: %s", source, p.Message)
	case p.Phase == plan.WarmRuns && waits && w.past(wait.Since.Add(patience(wait.Reason))):
		return troublef(cachev1alpha1.ReasonWarmStuck, "%s: %s: %s", source, cmp.Or(wait.Reason, "Starting"), wait.Message)
	case failed > 0 && p.Reason != claims.Hibernating:
		return troublef(cachev1alpha1.ReasonWarmFailed, "%s: failed attempts: %d; it is being tried again", source, failed)
	}
	return nil
}
