package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// A cluster with spec.warmFrom is filled from another cache, which is only read. A Job adds each item at
// the member where this cluster's clients look for it. Copied items are older than all that this cluster
// has: a member's own items and those on its volumes come first, in the order of order.go. So a warming
// begins when no item has to be moved or drained, and its Job ends when one has to be. While the Job
// copies, the size and the list wait for it. While it doesn't (its pod can't start, its source is away,
// it has failed), a change of the size ends it, and comes first.
//
// The end of each Job is recorded on the Memcached. With until: Ready, clients of a new cluster are told
// of no member before that; the ring is recorded, so that items follow a change of the size even then.

// WarmState is the state of a warming. Phase is empty if there is none.
type WarmState struct {
	Phase           WarmPhase
	Reason, Message string
	// Job copies; nil if there is none.
	Job *claims.Job
	// RetryAt is as in claims.DrainState.
	RetryAt time.Time
	// Open: the cluster is not warm yet, or a person asks for another copy.
	Open bool
}

// WarmPhase is the phase of a warming.
type WarmPhase string

// The phases.
const (
	WarmWaits  WarmPhase = "Waiting"
	WarmRuns   WarmPhase = "Copying"
	WarmFailed WarmPhase = "Failed"
	WarmEnded  WarmPhase = "Ended"
)

func (s WarmState) is(phase WarmPhase, reason, message string) WarmState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}

// looksAgain is how often the operator looks for a source that is missing or can't be read. No event reports
// its return.
const looksAgain = 30 * time.Second

// holdList leaves the list of a new cluster empty until the cluster is warm.
func (told Told) holdList(v *view, replicas int32) Told {
	if v.Warm.holds() && v.ListSize == 0 && replicas > 0 {
		told.ListSize = 0
		told.Table = action.WriteTable{State: contract.RingStable}
	}
	return told
}

// decideWarm decides about the warming.
func decideWarm(v *view, size *Size) (s WarmState, w claims.Work) {
	from := v.Warm
	if from == nil || from.Removed {
		v.endWarms("", "spec.warmFrom was removed", &w)
		if from != nil { // a word of a person, and failures, must not be about a later source
			w.Do(action.ClearWarm{Claim: from.Holder.Ref(), Answers: from.Asked})
		}
		return s, w
	}
	from = from.step(v.Record.Target())
	record := action.RecordWarm{Claim: from.Holder.Ref(), Before: from.Record, Answers: from.Asked}
	switch {
	case !from.open():
		v.endWarms("", "the cluster is warm", &w)
		if from.Asked != "" {
			w.Do(action.ClearWarm{Claim: from.Holder.Ref(), Answers: from.Asked})
		}
		return s.is(WarmEnded, "", ""), w
	case from.Holder.MoveRequest == claims.Skip:
		v.endWarms("", "a person skips the warming", &w)
		record.Record = from.next(action.WarmSkipped)
		w.Do(record)
		return s.is(WarmEnded, "", ""), w
	case from.allCopied():
		v.endWarms("", "all claims are copied", &w)
		record.Record = from.next(action.WarmCopied)
		w.Do(record)
		return s.is(WarmEnded, "", ""), w
	}
	s.Open = true
	return v.fill(from, s, size, &w), w
}

// endWarms deletes the Jobs of warmings, and returns the one with this target, which is left.
func (v *view) endWarms(but, why string, w *claims.Work) (left *claims.Job) {
	for i := range v.Warms {
		if j := &v.Warms[i]; but != "" && j.Target == but && !j.Deleting {
			left = j
		} else {
			w.DeleteJob(j, why)
		}
	}
	return left
}

// fill decides about a warming that is open.
func (v *view) fill(from *Warm, s WarmState, size *Size, w *claims.Work) WarmState {
	if from.Record.Source != from.Source && from.Holder.Attempts.Failed > 0 { // they are another source's
		w.Do(action.ClearWarm{Claim: from.Holder.Ref()})
		from.Holder.Attempts = action.Attempts{}
	}
	if s.Job = v.recordEnded(from, w); s.Job != nil {
		return s.is(WarmRuns, "", "")
	}
	switch why := warmYields(v); {
	case size.Replicas == 0:
		v.endWarms("", "the cluster hibernates", w)
		return v.givesUp(from, s.is(WarmWaits, claims.Hibernating, "no member runs that could take items"), w)
	case why != "":
		v.endWarms("", why, w)
		return v.givesUp(from, s.is(WarmWaits, claims.InTurn, why), w)
	}
	target := ring.WarmTarget(from.Made, from.Record.Jobs, v.Record)
	s.Job = v.endWarms(target, "what is copied, or the ring, has changed", w)
	idle := s.Job != nil && s.Job.State == claims.JobActive && !v.copies(s.Job)
	switch sizeChanges := v.Cluster.Size != v.Record.Ring.Size; {
	case s.Job == nil:
		s = v.beginWarm(from, s, target, size, w)
	case sizeChanges && idle:
		w.DeleteJob(s.Job, "the size changes, and its drainer is not at work")
		return s.is(WarmWaits, claims.InTurn, "the size changes first")
	case v.rollsOut() && idle:
		w.DeleteJob(s.Job, "members are replaced, and its drainer is not at work")
		return s.is(WarmWaits, claims.InTurn, "members are replaced first")
	}
	if s.Job != nil {
		s = v.followWarm(from, s, w)
	}
	return v.givesUp(from, s, w)
}

// givesUp ends a warming whose source could not be copied for too long. A person who asks for another copy waits for it.
func (v *view) givesUp(from *Warm, s WarmState, w *claims.Work) WarmState {
	since, reason := from.Record.Since, s.Reason
	failed := s.Phase == WarmFailed || s.Reason == cachev1alpha1.ReasonSourceNotThere
	switch unstarted := s.Phase == WarmRuns && s.Job != nil && s.Job.Unstarted && !from.Waits.Since.IsZero(); {
	case v.waitsForMembers(&s), failed && outOfTimeOnly(s.Job):
		if !since.IsZero() || failed && from.Record.Source != from.Source {
			w.Do(from.note(time.Time{}))
		}
		return s
	case !failed && !unstarted, from.Repeats && (from.Record.Result != action.WarmOpen || int(from.Record.Jobs) > len(from.Record.Claims)):
		return s
	case unstarted:
		since, reason = from.Waits.Since, cmp.Or(from.Waits.Reason, cachev1alpha1.ReasonWarmStuck)
	case since.IsZero():
		w.Do(from.note(v.Now))
		return s
	}
	switch end := since.Add(from.Patience); {
	case from.Patience <= 0:
	case v.Now.Before(end):
		w.WakeAt(end)
	default:
		*w = claims.Work{}
		v.endWarms("", "the source is given up", w)
		record := from.next(action.WarmGivenUp)
		record.Why = claims.Bound(reason, action.MaxWarmText)
		w.Do(action.RecordWarm{Claim: from.Holder.Ref(), Before: from.Record, Record: record, Answers: from.Asked})
		return WarmState{Open: true}.is(WarmEnded, "", "")
	}
	return s
}

// waitsForMembers tells whether the warming waits for the cluster itself, and not for its source, nor for its next attempt.
func (v *view) waitsForMembers(s *WarmState) bool {
	between := len(v.Warms) > 0 || slices.ContainsFunc(v.Drainers, func(d claims.Drainer) bool { return ring.IsWarm(d.Target) })
	return s.Phase == WarmWaits && s.Reason != cachev1alpha1.ReasonSourceNotThere && !between
}

// outOfTimeOnly tells whether the Job has copied a hundredth of the items or more until its deadline: the next one goes
// on. With less, patience ends the attempts.
func outOfTimeOnly(j *claims.Job) bool {
	if j == nil {
		return false
	}
	n := ReceiptNumbers(j.Receipt)
	return n.Reason == contract.ReasonDeadlineExceeded && n.Added > 0 && n.Added >= n.Found/100
}

// note records since when the source could not be copied.
func (w *Warm) note(since time.Time) action.RecordWarm {
	r := w.Record
	r.UID, r.Source, r.Since = w.Holder.UID, w.Source, since
	return action.RecordWarm{Claim: w.Holder.Ref(), Before: w.Record, Record: r}
}

// copies tells whether a drainer of the Job is at work.
func (v *view) copies(j *claims.Job) bool {
	return slices.ContainsFunc(v.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == j.ClaimUID && d.Target == j.Target && d.Running })
}

// beginWarm makes the next Job.
func (v *view) beginWarm(from *Warm, s WarmState, target string, size *Size, w *claims.Work) WarmState {
	switch {
	case len(v.Warms) > 0:
		return s.is(WarmWaits, claims.InTurn, "an earlier Job is being deleted")
	case size.Replicas != v.Record.Ring.Size || v.Cluster.Size != size.Replicas:
		return s.is(WarmWaits, claims.InTurn, "the size changes first")
	case v.rollsOut():
		return s.is(WarmWaits, claims.InTurn, "members are replaced first")
	case from.NotThere != "":
		w.WakeAt(v.Now.Add(looksAgain))
		return s.is(WarmWaits, cachev1alpha1.ReasonSourceNotThere, from.NotThere)
	}
	if why := warmWaits(v); why != "" {
		return s.is(WarmWaits, claims.InTurn, why)
	}
	var work claims.Work
	if from.Holder.MoveRequest == claims.Retry && !from.Repeats {
		work.Do(action.ClearWarm{Claim: from.Holder.Ref(), Answers: from.Asked})
	}
	work.Do(action.CreateWarm{Claim: from.Holder.Ref(), Target: target, Members: v.Record.Ring.Size, Volume: from.Volume,
		Counts: from.Counts, Decides: from.Counts && !from.More, Besides: from.needs, Resume: from.resume(), Answers: from.Asked, Before: from.Record})
	if o, is := work.Withdraw(&v.Facts, &from.Holder); is {
		s.RetryAt = o.RetryAt
		s = s.is(WarmFailed, o.Reason, o.Message)
	} else {
		s = s.is(WarmRuns, "", "")
	}
	w.Then(work)
	return s
}

// recordEnded records a Job that has ended well, before anything else ends it: the next one would bring back what clients
// have deleted since.
func (v *view) recordEnded(from *Warm, w *claims.Work) *claims.Job {
	for i := range v.Warms {
		job := &v.Warms[i]
		from := from.ofJob(job.Target, v.Record)
		if job.State != claims.JobComplete || job.Deleting || from == nil || from.invalid(job, v.Record.Ring.Size) != nil {
			continue
		}
		a := action.RecordWarm{Claim: from.Holder.Ref(), Target: job.Target, Before: from.Record, Receipt: job.Receipt}
		switch {
		case from.Counts:
			a.Record = from.afterCount(job.Receipt, v.Record.Target())
		case from.More:
			a.Record = from.after(job.Receipt, action.WarmOpen)
		default:
			a.Record = from.after(job.Receipt, action.WarmCopied)
			if job.Answers == from.Asked || from.Record.Owes {
				a.Answers = from.Asked
			} else { // what changed at the source before the request may be missing
				a.Record.Owes = from.Repeats
			}
		}
		w.Do(a)
		return job
	}
	return nil
}

// invalid says why the receipt of a Job of this step doesn't count; nil if it does.
func (w *Warm) invalid(job *claims.Job, members int32) error {
	err := receiptOf(&w.Holder, job)
	if err == nil && len(ReceiptNumbers(job.Receipt).Demand) != w.counts(members) {
		err = errors.New("the receipt is that of another step")
	}
	return err
}

// followWarm decides about a warming that has its Job.
func (v *view) followWarm(from *Warm, s WarmState, w *claims.Work) WarmState {
	job := s.Job
	holder := from.Holder.Ref()
	clear := action.ClearWarm{Claim: holder, Answers: from.Asked}
	a := claims.Attempt{
		What: "warming", Claim: &from.Holder, Job: job, Retry: from.Holder.MoveRequest == claims.Retry && !from.Repeats, Clear: []action.Action{clear},
		WayOut: "see the Job's log, then annotate the Memcached with " + cachev1alpha1.AnnotationWarm + "=retry, or =skip to go on with what was copied",
	}
	if job.State != claims.JobActive {
		a.Invalid = from.invalid(job, v.Record.Ring.Size)
	}
	refused := job.State == claims.JobFailed && job.Receipt != nil && job.Receipt.Reason == contract.ReasonListingRefused
	switch {
	case job.State == claims.JobComplete && from.Volumes && from.Volume.Name == "":
		w.WakeAt(v.Now.Add(looksAgain))
		return s.is(WarmWaits, cachev1alpha1.ReasonSourceNotThere, from.NotThere)
	case refused && from.OnMiss:
		w.Do(action.RecordWarm{Claim: holder, Target: job.Target, Before: from.Record, Record: from.next(action.WarmOnMiss), Answers: from.Asked})
		return s.is(WarmRuns, "", "")
	case refused:
		a.WayOut = "set spec.warmFrom.onMiss, by which routers ask the source for what they miss; or annotate the Memcached with " + cachev1alpha1.AnnotationWarm + "=skip"
	case job.Receipt != nil && job.Receipt.Reason == contract.ReasonTargetTooSmall:
		a.WayOut = "raise spec.size or spec.memory, then annotate the Memcached with " + cachev1alpha1.AnnotationWarm + "=retry; or set spec.warmFrom.onShortage to Proceed"
	}
	o := w.Follow(v.Now, &a)
	s.RetryAt = o.RetryAt
	phase := map[claims.DrainPhase]WarmPhase{claims.Draining: WarmRuns, claims.Waiting: WarmWaits, claims.Failed: WarmFailed}[o.Phase]
	if phase == WarmRuns && from.Counts {
		return s.is(phase, "", fmt.Sprintf("what all claims have is counted first, now claim %s", from.Volume.Name))
	}
	if from.Volume.Name != "" && o.Message != "" && o.Reason != contract.ReasonTargetTooSmall { // that is about all claims
		o.Message = fmt.Sprintf("claim %s: %s", from.Volume.Name, o.Message)
	}
	return s.is(phase, o.Reason, o.Message)
}

// counts is how many members' needs the receipt of the next Job has.
func (w *Warm) counts(members int32) int {
	if w.Counts {
		return int(members)
	}
	return 0
}

// afterCount is the record with what another claim has for the members of the ring.
func (w *Warm) afterCount(receipt *action.Receipt, ring string) action.WarmRecord {
	r := w.Record
	r.UID, r.Source, r.Ring = w.Holder.UID, w.Source, ring
	r.Counted, r.Needs = append(slices.Clone(w.counted), ClaimHash(w.Volume.UID)), ReceiptNumbers(receipt).Demand
	r.Since = time.Time{}
	return r
}

// next is the record with this result, and without a receipt.
func (w *Warm) next(result action.WarmResult) action.WarmRecord {
	r := w.Record
	r.UID, r.Source, r.Result, r.Why, r.Since, r.Owes = w.Holder.UID, w.Source, result, "", time.Time{}, false
	if result == action.WarmCopied {
		r.Claims = nil
	}
	return r
}

// after is the record with the receipt of another Job.
func (w *Warm) after(receipt *action.Receipt, result action.WarmResult) action.WarmRecord {
	r, n := w.next(result), ReceiptNumbers(receipt)
	r.Add(&n)
	r.Jobs = min(r.Jobs+1, math.MaxInt32/2)
	if w.More {
		r.Claims = append(slices.Clone(r.Claims), ClaimHash(w.Volume.UID))
		r.Claims = r.Claims[max(0, len(r.Claims)-action.MaxWarmClaims):]
	}
	return r
}

// warmYields tells what comes before a warming, and ends one that is at work: clients' own items are newer.
func warmYields(v *view) string {
	switch whole := v.Record.Ring.Whole(); {
	case v.returns != "":
		return v.returns
	case v.drains:
		return "a drain is at work"
	case v.misplaced || v.change || v.settle:
		return "the members' own items are moved first"
	case v.stepping:
		return "a member is out of the ring for its restart"
	case whole.Size > 0 && whole != v.Cluster.Ring.Of(whole.Size):
		return "the routing changes"
	}
	for i := range v.members {
		m := &v.members[i]
		if m.isLeaving || !m.LeavingSince.IsZero() && !m.InPod && m.Volume != "" && m.Receipt == nil && v.DrainsByItself(&v.Cluster.Terms, m.Claim) {
			return fmt.Sprintf("%s %s is drained first", m.Kind(), m.Name)
		}
	}
	return ""
}

// warmWaits tells what a warming waits for; empty if one may begin. The plan asks this, and MayWarm asks it about live
// state.
func warmWaits(v *view) string {
	if why := warmYields(v); why != "" {
		return why
	}
	switch n := v.Record.Ring.Size; {
	case n == 0 || v.StatefulSet.Replicas != n:
		return "the clients' ring must have the members that there are"
	case v.warms != "":
		return fmt.Sprintf("Job %s has not ended", v.warms)
	case v.moverExists:
		return "the pod of an earlier Job has not ended"
	}
	if !v.allReady() {
		return "not all members are ready"
	}
	return ""
}

// MayWarm guards invariants 5, 10 and 11: the ring is the one that the plan saw, its members are the members,
// and no older item is copied before a newer one is moved or drained. MayWarm needs Cluster, StatefulSet,
// Jobs, Moves, Warms, Drainers, Record, Claims, Ready and Table.
func MayWarm(live *Observed, a action.CreateWarm) error {
	v := look(live)
	if v.Record.Ring.Size != a.Members || !ring.IsWarm(a.Target) || !strings.HasSuffix(a.Target, "-"+v.Record.Target()) {
		return fmt.Errorf("the clients' ring is not that of %s any more", a.Target)
	}
	return refusedIf(warmWaits(v))
}
