package claims

import (
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
)

// The operator tries a failed drain or move again, with growing pauses and without a limit. Only
// a final receipt waits for a person. The claim has the number of failures, and
// the failed Job has the time of the last one:
//
//	the Job failed ──▶ wait ──▶ CountFailure ──▶ DeleteJob ──▶ the next Job
//
// The count names the Job, so an operator that dies between the two writes counts each Job once.
const (
	firstRetry   = time.Minute
	longestRetry = 30 * time.Minute
)

// Pause is the time to wait before the next attempt after that many failures.
func Pause(failed int32) time.Duration {
	const doublings = 5
	return min(firstRetry<<min(failed-1, doublings), longestRetry)
}

// Attempt is a Job that drains a claim, or moves the items of its member, and has not succeeded.
type Attempt struct {
	// "drain" or "move".
	What  string
	Claim *Claim
	Job   *Job
	// Retry: a person asked for another attempt. Clear notes that the retry has begun.
	Retry bool
	Clear []action.Action
	// Invalid says why the receipt of a complete Job doesn't count.
	Invalid error
	// WayOut says what a person can do if it has failed.
	WayOut string
}

// Outcome is the decision about an attempt: it runs (Draining), begins again when its Job is gone (Waiting),
// or has failed.
type Outcome struct {
	Phase           DrainPhase
	Reason, Message string
	// RetryAt is when a failed attempt is tried again; zero if only a person can decide.
	RetryAt time.Time
}

// Follow decides about an attempt. A retry and the deletion of its Job are in one plan, because a
// request that outlived its Job would restart every Job that fails. A failed Job is deleted when the
// next attempt is due.
func (w *Work) Follow(now time.Time, a *Attempt) (o Outcome) {
	c, job := a.Claim, a.Job
	if job.State == JobActive {
		why := job.replaced(a.Retry)
		if why != "" {
			w.DeleteJob(job, why)
		}
		if a.Retry {
			w.Do(a.Clear...) // the retry has begun, or begins again
		}
		if why != "" {
			return Outcome{Phase: Waiting, Reason: InTurn, Message: "the " + a.What + " starts anew when its Job is gone: " + why}
		}
		return Outcome{Phase: Draining}
	}
	if a.Retry {
		w.DeleteJob(job, "a person asked for a retry")
		w.Do(a.Clear...)
		return Outcome{Phase: Waiting, Reason: InTurn, Message: "the retry starts when the failed Job is gone"}
	}
	if job.Replace != "" {
		w.DeleteJob(job, job.Replace)
		return Outcome{Phase: Waiting, Reason: InTurn, Message: "the " + a.What + " starts anew when its Job is gone: " + job.Replace}
	}
	o.Phase = Failed
	o.Reason, o.Message = a.failure()
	switch failed := min(c.Attempts.Failed, math.MaxInt32-1) + 1; { // any client may have written the number
	case !job.Retryable():
		o.Message += "; it is not tried again by itself; " + a.WayOut
		return o
	case c.Attempts.Last != job.UID: // not counted yet
		if o.RetryAt = job.Ended.Add(Pause(failed)); o.RetryAt.After(now) {
			o.Message += fmt.Sprintf("; failed attempts: %d, the next one is at %s; %s", failed, o.RetryAt.UTC().Format(time.RFC3339), a.WayOut)
			w.WakeAt(o.RetryAt)
			return o
		}
		w.Do(action.CountFailure{Claim: c.Ref(), Attempts: action.Attempts{Failed: failed, Last: job.UID}})
	}
	w.DeleteJob(job, "it failed, and is tried again")
	return Outcome{Phase: Waiting, Reason: Retrying, Message: "the next attempt starts when the failed Job is gone"}
}

// failure tells why the Job has ended without success. The last receipt of a failed Job has the
// most precise reason.
func (a *Attempt) failure() (reason, message string) {
	switch job := a.Job; {
	case job.State != JobFailed:
		return ReceiptInvalid, a.Invalid.Error()
	case job.Receipt != nil && job.Receipt.Reason != "":
		return job.Receipt.Reason, job.Receipt.Message
	}
	return JobGaveUp, a.Job.Message
}

// The API server may refuse a step about one claim again and again, because of a quota, an
// admission policy, or another owner's Job with the same name. Such a claim delays no other claim,
// no move and no change of size. Its steps are tried again every few seconds. Until one succeeds,
// the claim counts as waiting for a person. Another attempt never ends a drain or a move that has
// begun meanwhile.

// Obstruction is why the API server has refused a step about a claim, and until when no such step
// is tried again. Taken: an object of another owner has a name that the step needs. Vanished: the
// API server refuses nothing, but the claim's Jobs go before the operator knows how they ended.
type Obstruction struct {
	Why      string
	Taken    bool
	Vanished bool
	Until    time.Time
}

func makesJob(a action.Action) bool { return action.KindOf(a).MakesJob }

// Withdraw takes back the actions about the claim if they would be refused now.
func (w *Work) Withdraw(f *Facts, c *Claim) (o Outcome, is bool) {
	why, is := f.NoJobNow(c)
	if !is || why.Vanished && !slices.ContainsFunc(w.Actions, makesJob) {
		return o, false
	}
	w.Actions = nil
	w.WakeAt(why.Until)
	if why.Vanished {
		return Outcome{Phase: Failed, Reason: JobVanished, Message: why.Why, RetryAt: why.Until}, true
	}
	o = Outcome{Phase: Failed, Reason: Refused, Message: "a step about it is refused, and tried again in a moment: " + why.Why, RetryAt: why.Until}
	if why.Taken {
		o.Reason = NameTaken
	}
	return o, true
}
