package claims

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// JobState is the state of a Job.
type JobState int

// The states of a Job.
const (
	JobActive JobState = iota
	JobComplete
	JobFailed
)

// Job drains a claim, or moves the items of its member.
type Job struct {
	Name string
	UID  types.UID
	// ClaimUID is of the claim that the Job drains, or whose member's items it moves.
	ClaimUID types.UID
	// Claims are the UIDs of the claims that the Job drains, joined by commas; empty for one claim.
	Claims string
	// Survivors are the members that the Job gives data to.
	Survivors action.Range
	// Target names the ring by which the Job moves items; empty for a drain.
	Target string
	// Waits: each of the Job's pods waits until it is told to begin (Drainer.Waits).
	Waits bool
	// IdleSince is since when no pod of the Job has been at work, as far as the operator's process knows; zero if one is, or
	// if that is not known.
	IdleSince time.Time
	// Answers is the person's request that was there when the Job was made, which copies from another cache.
	Answers string
	// SetVersion is that of the StatefulSet for which the Job was made, if others own the StatefulSet.
	SetVersion string
	State      JobState
	// Unstarted: the Job is active, and none of its present pods has run. Outdated: the Job's pods
	// would be made differently now.
	Unstarted, Outdated bool
	// Replace says why the Job is replaced unless it has succeeded; empty if it stays.
	Replace string
	// Deleting: the Job has a deletionTimestamp; its pod may still run.
	Deleting bool
	// PodKept: the Job's drainer failed, and another container keeps its pod running. When that pod
	// ends, Kubernetes starts the next one, until the Job is gone.
	PodKept bool
	// PodEnds: the drainer has left a good receipt, and its pod ends by itself in a moment. The API server
	// removes a pod that has ended at once; the end of any other pod has to be reported by its kubelet first.
	PodEnds bool
	// Receipt is of the Job's last pod; ReceiptErr says why there is none.
	Receipt    *action.Receipt
	ReceiptErr error
	// Message says why the Job failed, and Ended when it ended.
	Message string
	Ended   time.Time
}

// Drainer is a pod that drains the claim, or, with a Target, moves the items of the
// claim's member by that ring.
type Drainer struct {
	Pod      string
	ClaimUID types.UID
	Target   string
	// Waits: the drainer moves nothing until it is told to begin.
	Waits bool
	// Running: the drainer has started. Prepared: it has also connected to all servers that it
	// needs, as far as is known. Settles: a leaving member's drainer has found nothing more, and
	// waits for the last clients.
	Running, Prepared, Settles bool
}

// Mover tells whether the drainer belongs to a move, not to a drain.
func (d Drainer) Mover() bool { return d.Target != "" }

// Moves tells whether the drainer belongs to a move, and was told to begin.
func (d Drainer) Moves() bool { return d.Mover() && !d.Waits }

// Running tells whether the Job's pod may be at work. A Job counts as failed only when its pods
// have ended.
func (j *Job) Running() bool { return j.State == JobActive || j.Deleting && j.State != JobFailed }

// MayRun tells whether a pod of the Job may be at work, now or later.
func (j *Job) MayRun() bool { return j.Running() || j.PodKept && j.Retryable() }

// Retryable tells whether another attempt may succeed after this Job, which has ended without
// success. Only its receipt can rule that out.
func (j *Job) Retryable() bool {
	return !j.Running() && (j.Receipt == nil || !j.Receipt.Final)
}

// replaced tells why an active Job is deleted and created again; empty if the Job stays. A Job's
// template can't be changed. If none of its pods has run, its next pod would fail to start in the
// same way.
func (j *Job) replaced(retry bool) string {
	switch {
	case j.Replace != "":
		return j.Replace
	case !j.Unstarted:
		return ""
	case retry:
		return "a person asked for a retry, and no pod of it has run"
	case j.Outdated:
		return "no pod of it has run, and its pods would be made in another way now"
	}
	return ""
}

// drained returns why the Job has no receipt that adds up for exactly this claim.
func (j *Job) drained(c *Claim) error {
	if j.ReceiptErr != nil {
		return j.ReceiptErr
	}
	return j.Receipt.AddsUp(c.sources()...)
}
