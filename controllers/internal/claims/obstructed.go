package claims

import (
	"slices"
	"time"
)

// The API server may refuse a step about one claim again and again, because of a quota, an
// admission policy, or another owner's Job with the same name. Such a claim delays no other claim,
// no move and no change of size. Its steps are tried again every few seconds. Until one succeeds,
// the claim counts as waiting for a person. Another attempt never ends a drain or a move that has
// begun meanwhile.

// Obstruction is why the API server has refused a step about a claim, and until when no such step
// is tried again. Taken: an object of another owner has a name that the step needs.
type Obstruction struct {
	Why   string
	Taken bool
	Until time.Time
}

// IsObstructed tells whether the API server has refused the last step about the claim, or about the
// claim whose volume it takes over.
func (f *Facts) IsObstructed(c *Claim) bool {
	if _, is := f.Obstructed[c.UID]; is || len(f.Obstructed) == 0 || !c.Aside {
		return is
	}
	return slices.ContainsFunc(f.Claims, func(first Claim) bool {
		_, is := f.Obstructed[first.UID]
		return is && first.UID != c.UID && first.Volume == c.Volume && first.HasVolumeToHandOver()
	})
}

// RefusedNow tells why no step about the claim is tried now.
func (f *Facts) RefusedNow(c *Claim) (why Obstruction, is bool) {
	why, is = f.Obstructed[c.UID]
	return why, is && why.Until.After(f.Now)
}

// Reason of the obstruction in status.
func (w *Obstruction) Reason() string {
	if w.Taken {
		return NameTaken
	}
	return Refused
}

// Message of the obstruction in status.
func (w *Obstruction) Message() string {
	return "a step about it is refused, and tried again in a moment: " + w.Why
}

// Withdraw takes back the actions about the claim if they would be refused now.
func (w *Work) Withdraw(f *Facts, c *Claim) (why Obstruction, is bool) {
	if why, is = f.RefusedNow(c); is {
		w.Actions = nil
		w.WakeAt(why.Until)
	}
	return why, is
}
