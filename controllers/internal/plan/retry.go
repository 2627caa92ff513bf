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

// A drain or a move that failed is tried again by itself, with growing pauses, for
// as long as it takes. Only the exit codes of contract.NoRetry wait for a person. The
// claim has the number of failures, and the failed Job has the time:
//
//	the Job failed ──▶ wait ──▶ CountFailure ──▶ DeleteJob ──▶ the next Job
//
// The count names the Job, so that an operator that dies between the two writes counts it
// once.
const (
	firstRetry   = time.Minute
	longestRetry = 30 * time.Minute
)

// pause before the next attempt after that many failures.
func pause(failed int32) time.Duration {
	const doublings = 5
	return min(firstRetry<<min(failed-1, doublings), longestRetry)
}

// mendable tells whether another attempt may succeed after this Job, which has ended
// without success. Only its receipt can rule that out.
func (j *Job) mendable() bool {
	return !j.running() && (j.Receipt == nil || !slices.Contains(contract.NoRetry, int32(j.Receipt.ExitCode)))
}

// replaced tells why an active Job is deleted, and made anew. Its template can't be changed: the next pod of one whose
// pods have not run could start no better, and one whose members listen elsewhere now would not reach them. Empty if
// it stays.
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

// failure is why a Job has ended without success, and when the next attempt is; zero if a
// person has to decide.
type failure struct {
	reason, message string
	retryAt         time.Time
}

// tryAgain waits until the next attempt is due, and then deletes the failed Job. It
// returns true when it has.
func (p *Plan) tryAgain(o *Observed, c *claim.Claim, job *Job, invalid error) (f failure, again bool) {
	f.reason, f.message = failureOf(job, invalid)
	if !job.mendable() {
		f.message += "; it is not tried again by itself"
		return f, false
	}
	counted := c.Attempts.Last == job.UID
	if !counted {
		failed := min(c.Attempts.Failed, math.MaxInt32-1) + 1 // anybody may have written it
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

// wakeAt asks for a plan at that time, because no event will bring one.
func (p *Plan) wakeAt(t time.Time) {
	if p.Wake.IsZero() || t.Before(p.Wake) {
		p.Wake = t
	}
}

// wakeAfter is wakeAt for a time that may be over by now, or zero.
func (p *Plan) wakeAfter(now, t time.Time) {
	if t.After(now) {
		p.wakeAt(t)
	}
}

// failureOf tells why a Job has ended without success. If it failed, its last receipt
// says it best.
func failureOf(job *Job, invalid error) (reason, message string) {
	switch {
	case job.State != JobFailed:
		return ReceiptInvalid, invalid.Error()
	case job.Receipt != nil && job.Receipt.Reason != "":
		return job.Receipt.Reason, job.Receipt.Message
	}
	return JobGaveUp, job.Message
}
