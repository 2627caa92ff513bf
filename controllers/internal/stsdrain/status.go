package stsdrain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// StatusInput has the facts that a status depends on.
type StatusInput struct {
	Drain    *cachev1alpha1.StatefulSetDrain
	Observed *Observed
	Plan     *Plan
	Rows     claims.Rows
	// Progress has the drainers' counts, by the claim's UID.
	Progress map[types.UID]Count
	// Returned are the claims from which the leaving mark was taken: their members are wanted again, and have their data.
	Returned []action.ClaimRef
	// OtherOperator is another installation of the operator that watches the namespace; empty if there is none.
	OtherOperator string
	// Refused says why a step was refused for a while; Err is a failure. Both may be empty.
	Refused string
	Err     error
}

// Count is a drainer's count.
type Count struct{ Done, Total int64 }

// ComputeStatus returns the status.
func ComputeStatus(in *StatusInput) cachev1alpha1.StatefulSetDrainStatus {
	p, before := in.Plan, &in.Drain.Status
	s := cachev1alpha1.StatefulSetDrainStatus{
		ObservedGeneration: in.Drain.Generation, Replicas: p.Wanted.Count, LastDrains: slices.Clone(before.LastDrains),
		Conditions: slices.Clone(before.Conditions),
	}
	for _, ordinal := range in.Observed.Ready {
		if p.Wanted.Has(ordinal) {
			s.ReadyReplicas++
		}
	}
	for i := range before.Drains {
		in.Rows.Before = append(in.Rows.Before, RowOf(&before.Drains[i]))
	}
	in.drains(&s)
	for _, ref := range p.LeftOver[:min(len(p.LeftOver), claims.MostDrains)] {
		s.LeftOver = append(s.LeftOver, ref.Name)
	}
	in.conditions(&s)
	return s
}

// RowOf returns the common part of all rows of drains.
func RowOf(d *cachev1alpha1.MemberDrain) claims.Row {
	row := claims.Row{
		Ordinal: d.Ordinal, Phase: d.Phase, Reason: d.Reason, Message: d.Message, Since: d.Since, LeavingSince: d.LeavingSince, StartedAt: d.StartedAt,
	}
	if len(d.Claims) > 0 {
		row.Claim = d.Claims[0]
	}
	return row
}

// drains sets the rows of drains, their number, and the results of those that end.
func (in *StatusInput) drains(s *cachev1alpha1.StatefulSetDrainStatus) {
	var done, total int64
	for i := range in.Plan.Drains {
		d := &in.Plan.Drains[i]
		count, counts := in.Progress[d.Claim.UID]
		var progress *claims.Progress
		if counts {
			progress = &claims.Progress{}
		}
		row := in.Rows.Row(d, progress)
		names := in.names(&d.Claim)
		is := cachev1alpha1.MemberDrain{
			Ordinal: row.Ordinal, Claims: names, Phase: row.Phase, LeavingSince: row.LeavingSince, StartedAt: row.StartedAt,
		}
		if row.Kept {
			count = kept(in.Drain.Status.Drains, row.Claim)
		}
		if row.Phase == cachev1alpha1.DrainAdding {
			is.Done, is.Total = count.Done, count.Total
			done, total = done+count.Done, total+count.Total
		}
		in.Rows.End(&row)
		is.Reason, is.Message, is.Since = row.Reason, row.Message, row.Since
		s.Drains = append(s.Drains, is)
		if row.Phase != cachev1alpha1.DrainLeaving {
			s.Draining++
		}
		if d.Phase == claims.Releasing {
			in.ended(s, d, names)
		}
	}
	in.returned(s)
	s.Drains = claims.Shown(s.Drains, RowOf)
	if total > 0 {
		s.Progress = fmt.Sprintf("%d%%", done*100/total)
	}
}

// resultReturned is the result for a member that is wanted again before its drain.
const resultReturned = "Returned"

// returned adds a result for each member that has its data again.
func (in *StatusInput) returned(s *cachev1alpha1.StatefulSetDrainStatus) {
	of := map[int32][]string{}
	for _, ref := range in.Returned {
		of[ref.Ordinal] = append(of[ref.Ordinal], ref.Name)
	}
	for _, ordinal := range slices.Sorted(maps.Keys(of)) {
		names := of[ordinal]
		s.LastDrains = slices.DeleteFunc(s.LastDrains, func(d cachev1alpha1.MemberDrained) bool { // it has returned once more
			return d.Result == resultReturned && slices.Contains(d.Claims, names[0])
		})
		s.LastDrains = addLast(s.LastDrains, cachev1alpha1.MemberDrained{
			Ordinal: ordinal, Claims: names[:min(len(names), mostClaims)], Result: resultReturned, EndedAt: metav1.Time{Time: in.Rows.Now},
			Message: "it is wanted again, and has its data: nothing was drained",
		})
	}
}

// kept is a drainer's count in the present status.
func kept(rows []cachev1alpha1.MemberDrain, claim string) Count {
	for i := range rows {
		if RowOf(&rows[i]).Claim == claim {
			return Count{rows[i].Done, rows[i].Total}
		}
	}
	return Count{}
}

// mostClaims is how many claims a row names; the API server refuses a status with more.
const mostClaims = 16

// names of the claims of a unit, the leading one first.
func (in *StatusInput) names(c *claims.Claim) []string {
	names := []string{c.Name}
	unit := in.Plan.Facts.Unit(c.UID)
	for i := range unit {
		if !slices.Contains(names, unit[i].Name) {
			names = append(names, unit[i].Name)
		}
	}
	return names[:min(len(names), mostClaims)]
}

// ended adds the result of a drain whose claims are being released.
func (in *StatusInput) ended(s *cachev1alpha1.StatefulSetDrainStatus, d *claims.DrainState, names []string) {
	next := cachev1alpha1.MemberDrained{Ordinal: d.Claim.Ordinal, Claims: names, Result: string(d.Why), EndedAt: metav1.Time{Time: in.Rows.Now}}
	if d.Claim.Receipt != nil {
		next.Message = claims.Bound(d.Claim.Receipt.Message, contract.MaxReceiptBytes)
	}
	if at, told := d.Claim.LeavingAt(); told {
		next.Duration = &metav1.Duration{Duration: max(0, in.Rows.Now.Sub(at).Truncate(time.Second))}
	}
	s.LastDrains = addLast(s.LastDrains, next)
}

func addLast(last []cachev1alpha1.MemberDrained, next cachev1alpha1.MemberDrained) []cachev1alpha1.MemberDrained {
	return claims.AddLast(last, next, func(d *cachev1alpha1.MemberDrained) (claim, result string) {
		if len(d.Claims) > 0 {
			claim = d.Claims[0]
		}
		return claim, d.Result
	})
}

// trouble is a reason, and a message, of a condition; empty if there is none.
type trouble struct{ reason, message string }

func (in *StatusInput) conditions(s *cachev1alpha1.StatefulSetDrainStatus) {
	degraded := in.degraded(s)
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		c := metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: claims.BoundMessage(message), ObservedGeneration: in.Drain.Generation,
			LastTransitionTime: metav1.Time{Time: in.Rows.Now},
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	if degraded.reason == "" {
		set(cachev1alpha1.ConditionDegraded, false, cachev1alpha1.ReasonHealthy, "")
	} else {
		set(cachev1alpha1.ConditionDegraded, true, degraded.reason, degraded.message)
	}
	progressing := in.progressing(s)
	if progressing.reason == "" {
		set(cachev1alpha1.ConditionProgressing, false, cachev1alpha1.ReasonAsWanted, "")
	} else {
		set(cachev1alpha1.ConditionProgressing, true, progressing.reason, progressing.message)
	}
	switch not := in.notReady(s, degraded, progressing); {
	case not.reason != "":
		set(cachev1alpha1.ConditionReady, false, not.reason, not.message)
	case s.Replicas == 0:
		set(cachev1alpha1.ConditionReady, true, cachev1alpha1.ReasonHibernated, in.Plan.NothingDeparts)
	default:
		set(cachev1alpha1.ConditionReady, true, cachev1alpha1.ReasonReady, in.Plan.NothingDeparts)
	}
}

// degraded is the worst problem that needs a person.
func (in *StatusInput) degraded(s *cachev1alpha1.StatefulSetDrainStatus) trouble {
	p := in.Plan
	if p.Refused.Reason != "" {
		return trouble{p.Refused.Reason, p.Refused.Message}
	}
	if t := in.templateRefused(); t.reason != "" {
		return t
	}
	if n := len(in.Observed.Foreign); n > 0 {
		f := in.Observed.Foreign[0]
		return trouble{cachev1alpha1.ReasonNameTaken, fmt.Sprintf("claim %s has a member's name, and %s controls it: it is never drained%s", f.Name, cmp.Or(f.By, "another owner"), more(n))}
	}
	if t := in.failed(s); t.reason != "" {
		return t
	}
	if n := len(p.DeletedClaims); n > 0 {
		d := p.DeletedClaims[0]
		return trouble{cachev1alpha1.ReasonClaimDeleted, fmt.Sprintf("claim %s: %s%s", d.Claim.Name, d.Message, more(n))}
	}
	switch {
	case in.Err != nil:
		return trouble{cachev1alpha1.ReasonReconcileError, in.Err.Error()}
	case in.Refused != "":
		return trouble{cachev1alpha1.ReasonStepRefused, in.Refused}
	case p.Stalled != "":
		return trouble{cachev1alpha1.ReasonMembersNotReady, p.Stalled}
	case in.OtherOperator != "":
		return trouble{cachev1alpha1.ReasonOtherOperator, claims.Contended("StatefulSetDrain", in.OtherOperator, in.Drain.Annotations[cachev1alpha1.AnnotationOperator])}
	}
	for i := range s.Drains {
		if d := &s.Drains[i]; d.Phase == cachev1alpha1.DrainHeld {
			return trouble{cachev1alpha1.ReasonDrainHeld, fmt.Sprintf("member %d: %s", d.Ordinal, d.Message)}
		}
	}
	return trouble{}
}

// ruleRefused begins what is said about an expression, which is tried like the template.
const ruleRefused = "spec.receipt"

func (in *StatusInput) templateRefused() trouble {
	switch why := in.Observed.Drain.TemplateRefused; {
	case why == "":
		return trouble{}
	case strings.HasPrefix(why, ruleRefused):
		return trouble{cachev1alpha1.ReasonReceiptRuleInvalid, why}
	default:
		return trouble{cachev1alpha1.ReasonTemplateRefused, "the API server takes no Job of spec.template: " + why}
	}
}

// failed is about drains that have failed, or whose drainer has not been at work for a while.
func (in *StatusInput) failed(s *cachev1alpha1.StatefulSetDrainStatus) trouble {
	for i := range s.Drains {
		if d := &s.Drains[i]; d.Phase == cachev1alpha1.DrainFailed {
			return trouble{cachev1alpha1.ReasonDrainFailed, fmt.Sprintf("member %d: %s: %s", d.Ordinal, d.Reason, d.Message)}
		}
	}
	for i := range in.Plan.Drains {
		d := &in.Plan.Drains[i]
		if wait, waits := in.Rows.Waits[d.Claim.UID]; waits && d.Phase == claims.Draining && !in.Rows.Now.Before(wait.Since.Add(claims.StuckAfter)) {
			return trouble{cachev1alpha1.ReasonDrainStuck, fmt.Sprintf("member %d: %s: %s", d.Claim.Ordinal, wait.Reason, wait.Message)}
		}
	}
	return trouble{}
}

// DueIn is how long it takes until a wait becomes a trouble; 0 if there is none.
func (in *StatusInput) DueIn() (due time.Duration) {
	for _, wait := range in.Rows.Waits {
		if left := wait.Since.Add(claims.StuckAfter).Sub(in.Rows.Now); left > 0 && (due == 0 || left < due) {
			due = left
		}
	}
	return due
}

func more(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n-1)
}

// progressing sets the condition Progressing.
func (in *StatusInput) progressing(s *cachev1alpha1.StatefulSetDrainStatus) trouble {
	p := in.Plan
	switch {
	case p.Refused.Reason != "":
		return trouble{}
	case in.Drain.DeletionTimestamp != nil:
		message := "claims are released; none is drained any more"
		if p.EndWaits != "" {
			message += "; " + p.EndWaits
		}
		return trouble{cachev1alpha1.ReasonDeleting, message}
	case returns(p) != "":
		return trouble{cachev1alpha1.ReasonDraining, returns(p)}
	case len(s.Drains) > 0:
		for i := range s.Drains {
			if d := &s.Drains[i]; d.Phase != cachev1alpha1.DrainFailed && d.Phase != cachev1alpha1.DrainHeld {
				return trouble{cachev1alpha1.ReasonDraining, fmt.Sprintf("%d members leave or have left; member %d: %s", len(s.Drains), d.Ordinal, cmp.Or(d.Message, string(d.Phase)))}
			}
		}
	case len(p.Unprotected) > 0:
		return trouble{cachev1alpha1.ReasonUnprotected, unprotected(p)}
	}
	return trouble{}
}

// returns says what a member that is wanted again waits for; empty if none waits.
func returns(p *Plan) string {
	for _, r := range p.Returned {
		if r.Waits != "" {
			return fmt.Sprintf("member %d is wanted again, with its data, and waits for the end of its drain: %s", r.Ordinal, r.Waits)
		}
	}
	return ""
}

func unprotected(p *Plan) string {
	return fmt.Sprintf("claim %s has no finalizer yet%s: if its member leaves now, it is left over", p.Unprotected[0], more(len(p.Unprotected)))
}

// notReady is why not all is well.
func (in *StatusInput) notReady(s *cachev1alpha1.StatefulSetDrainStatus, degraded, progressing trouble) trouble {
	p := in.Plan
	switch {
	case in.Drain.DeletionTimestamp != nil:
		return progressing
	case degraded.reason != "":
		return degraded
	case !in.Observed.Set.Exists || in.Observed.Set.Deleting:
		return trouble{cachev1alpha1.ReasonNoStatefulSet, cmp.Or(p.NothingDeparts, "there is no StatefulSet "+in.Observed.Set.Name)}
	case len(p.Unprotected) > 0:
		return trouble{cachev1alpha1.ReasonUnprotected, unprotected(p)}
	case progressing.reason != "":
		return progressing
	case s.ReadyReplicas < s.Replicas:
		return trouble{cachev1alpha1.ReasonMembersNotReady, fmt.Sprintf("%d of %d members are ready", s.ReadyReplicas, s.Replicas)}
	}
	return trouble{}
}

// Unobserved sets the conditions of a StatefulSetDrain whose objects can't be read.
func Unobserved(d *cachev1alpha1.StatefulSetDrain, why error, now time.Time) {
	for kind, is := range map[string]metav1.ConditionStatus{
		cachev1alpha1.ConditionDegraded: metav1.ConditionTrue, cachev1alpha1.ConditionReady: metav1.ConditionFalse,
	} {
		meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
			Type: kind, Status: is, Reason: cachev1alpha1.ReasonReconcileError, Message: claims.BoundMessage(why.Error()), ObservedGeneration: d.Generation,
			LastTransitionTime: metav1.Time{Time: now},
		})
	}
}
