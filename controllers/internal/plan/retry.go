package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/drainer/contract"
)

// The operator tries a failed drain or move again, with growing pauses and without a limit. Only
// the exit codes of contract.NoRetry wait for a person. The claim has the number of failures, and
// the failed Job has the time of the last one:
//
//	the Job failed ──▶ wait ──▶ CountFailure ──▶ DeleteJob ──▶ the next Job
//
// The count names the Job, so an operator that dies between the two writes counts each Job once.
const (
	firstRetry   = time.Minute
	longestRetry = 30 * time.Minute
)

// pause is the time to wait before the next attempt after that many failures.
func pause(failed int32) time.Duration {
	const doublings = 5
	return min(firstRetry<<min(failed-1, doublings), longestRetry)
}

// retryable tells whether another attempt may succeed after this Job, which has ended without
// success. Only its receipt can rule that out.
func (j *Job) retryable() bool {
	return !j.running() && (j.Receipt == nil || !slices.Contains(contract.NoRetry, int32(j.Receipt.ExitCode)))
}

// replaced tells why an active Job is deleted and created again; empty if the Job stays. A Job's
// template can't be changed. If none of its pods has run, its next pod would fail to start in the
// same way; if members listen at other ports now, its pods would not reach them.
func (j *Job) replaced(retry bool) string {
	switch {
	case j.Misdirected:
		return "members listen at other ports now"
	case !j.Unstarted:
		return ""
	case retry:
		return "a person asked for a retry, and no pod of it has run"
	case j.Outdated:
		return "no pod of it has run, and its pods would be made in another way now"
	}
	return ""
}

// failure is why a Job has ended without success, and when the next attempt is; retryAt is zero if
// a person has to decide.
type failure struct {
	reason, message string
	retryAt         time.Time
}

// tryAgain waits until the next attempt is due, and then deletes the failed Job. again is true if
// it deletes the Job.
func (p *Plan) tryAgain(o *Observed, c *claim.Claim, job *Job, invalid error) (f failure, again bool) {
	f.reason, f.message = failureOf(job, invalid)
	if !job.retryable() {
		f.message += "; it is not tried again by itself"
		return f, false
	}
	counted := c.Attempts.Last == job.UID
	if !counted {
		failed := min(c.Attempts.Failed, math.MaxInt32-1) + 1 // any client may have written the number
		f.retryAt = job.Ended.Add(pause(failed))
		if f.retryAt.After(o.Now) {
			f.message += fmt.Sprintf("; failed attempts: %d, the next one is at %s", failed, f.retryAt.UTC().Format(time.RFC3339))
			p.wakeAt(f.retryAt)
			return f, false
		}
		p.add(action.CountFailure{Claim: c.Ref(), Attempts: action.Attempts{Failed: failed, Last: job.UID}})
	}
	p.add(action.DeleteJob{Name: job.Name, UID: job.UID, ClaimUID: job.ClaimUID, Reason: "it failed, and is tried again"})
	return f, true
}

// wakeAt asks for the next plan at that time at the latest, because no event will bring one.
func (p *Plan) wakeAt(t time.Time) {
	if p.Wake.IsZero() || t.Before(p.Wake) {
		p.Wake = t
	}
}

// wakeAfter is wakeAt for a time that may be in the past or zero.
func (p *Plan) wakeAfter(now, t time.Time) {
	if t.After(now) {
		p.wakeAt(t)
	}
}

// failureOf tells why a Job has ended without success. The last receipt of a failed Job has the
// most precise reason.
func failureOf(job *Job, invalid error) (reason, message string) {
	switch {
	case job.State != JobFailed:
		return ReceiptInvalid, invalid.Error()
	case job.Receipt != nil && job.Receipt.Reason != "":
		return job.Receipt.Reason, job.Receipt.Message
	}
	return JobGaveUp, job.Message
}
