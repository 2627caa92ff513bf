package claims

import (
	"time"

	"example.com/memcached-operator/controllers/internal/action"
)

// Work has the decided actions, in order, and when to decide again.
type Work struct {
	Actions []action.Action
	// Wake is when to decide again if no event comes earlier; zero for never.
	Wake time.Time
	// Withheld are steps that are not tried now, because the API server refused them a moment ago.
	Withheld []Withheld
}

// Withheld is why no step about the claim is tried now.
type Withheld struct {
	Claim action.ClaimRef
	Why   string
}

// Do adds actions.
func (w *Work) Do(actions ...action.Action) { w.Actions = append(w.Actions, actions...) }

// Then adds other work after this.
func (w *Work) Then(other Work) {
	w.Do(other.Actions...)
	w.WakeAt(other.Wake)
	w.Withheld = append(w.Withheld, other.Withheld...)
}

// WakeAt asks for the next decision at that time at the latest, because no event will bring one.
// The zero time asks for none.
func (w *Work) WakeAt(t time.Time) {
	if !t.IsZero() && (w.Wake.IsZero() || t.Before(w.Wake)) {
		w.Wake = t
	}
}

// Withhold leaves out a step about the claim until it may be tried again. Status says why.
func (w *Work) Withhold(c *Claim, why Obstruction) {
	w.WakeAt(why.Until)
	w.Withheld = append(w.Withheld, Withheld{c.Ref(), why.Why})
}

// WakeAfter is WakeAt for a time that may be in the past.
func (w *Work) WakeAfter(now, t time.Time) {
	if t.After(now) {
		w.WakeAt(t)
	}
}

// DeleteJob deletes the Job, unless there is none or it is being deleted.
func (w *Work) DeleteJob(job *Job, reason string) {
	if job != nil && !job.Deleting {
		w.Do(action.DeleteJob{Name: job.Name, UID: job.UID, ClaimUID: job.ClaimUID, Reason: reason})
	}
}
