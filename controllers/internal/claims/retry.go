package claims

import (
	"fmt"
	"math"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
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

// Failure is why a Job has ended without success, and when the next attempt is; RetryAt is zero if
// a person has to decide.
type Failure struct {
	Reason, Message string
	RetryAt         time.Time
}

// TryAgain waits until the next attempt is due, and then deletes the failed Job. again is true if
// it deletes the Job. invalid says why a complete Job's receipt doesn't count.
func (w *Work) TryAgain(now time.Time, c *Claim, job *Job, invalid error) (f Failure, again bool) {
	f.Reason, f.Message = failureOf(job, invalid)
	if !job.Retryable() {
		f.Message += "; it is not tried again by itself"
		return f, false
	}
	counted := c.Attempts.Last == job.UID
	if !counted {
		failed := min(c.Attempts.Failed, math.MaxInt32-1) + 1 // any client may have written the number
		f.RetryAt = job.Ended.Add(pause(failed))
		if f.RetryAt.After(now) {
			f.Message += fmt.Sprintf("; failed attempts: %d, the next one is at %s", failed, f.RetryAt.UTC().Format(time.RFC3339))
			w.WakeAt(f.RetryAt)
			return f, false
		}
		w.Do(action.CountFailure{Claim: c.Ref(), Attempts: action.Attempts{Failed: failed, Last: job.UID}})
	}
	w.DeleteJob(job, "it failed, and is tried again")
	return f, true
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
