package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/claim"
)

// The API server may refuse a step about one claim again and again, because of a quota, an
// admission policy, or another owner's Job with the same name. Such a claim delays no other claim,
// no move and no change of size. Its steps are tried again every few seconds. Until one succeeds,
// the claim counts as waiting for a person. Another attempt never ends a drain or a move that has
// begun meanwhile.

// obstructed tells whether the API server has refused the last step about the claim, or about the
// claim whose volume it takes over.
func (o *Observed) obstructed(c *claim.Claim) bool {
	if _, is := o.Obstructed[c.UID]; is || len(o.Obstructed) == 0 || !c.Aside {
		return is
	}
	return slices.ContainsFunc(o.Claims, func(first claim.Claim) bool {
		_, is := o.Obstructed[first.UID]
		return is && first.UID != c.UID && first.Volume == c.Volume && first.HasVolumeToHandOver()
	})
}

// refusedNow tells why no step about the claim is tried now.
func (o *Observed) refusedNow(c *claim.Claim) (why Obstruction, is bool) {
	why, is = o.Obstructed[c.UID]
	return why, is && why.Until.After(o.Now)
}

// withdrawRefused removes the steps about the claim from the plan if they would be refused now: all
// that were planned after the first ones.
func (p *Plan) withdrawRefused(o *Observed, c *claim.Claim, first int) (why Obstruction, are bool) {
	if why, are = o.refusedNow(c); are {
		p.wakeAt(why.Until)
		p.Actions = p.Actions[:first]
	}
	return why, are
}

// withdrawRefusedDrain is withdrawRefused for the claim of a leaving or departed member.
func (p *Plan) withdrawRefusedDrain(o *Observed, first int, s DrainState) (held DrainState, is bool) {
	if len(p.Actions) == first && s.Phase != Waiting {
		return s, false
	}
	why, is := p.withdrawRefused(o, &s.Claim, first)
	if !is {
		return s, false
	}
	s.RetryAt, s.Why = why.Until, ""
	return s.is(Failed, why.reason(), why.message()), true
}

// withdrawRefusedMember is withdrawRefused for the claim of a member that stays.
func (p *Plan) withdrawRefusedMember(o *Observed, c *claim.Claim, first int) {
	if len(p.Actions) == first {
		return
	}
	if why, is := p.withdrawRefused(o, c, first); is {
		deleted := DeletedClaim{c.Ref(), "it was deleted, and " + why.message()}
		p.DeletedClaims = append(slices.DeleteFunc(p.DeletedClaims, func(d DeletedClaim) bool { return d.Claim.UID == c.UID }), deleted)
	}
}

func (w *Obstruction) reason() string {
	if w.Taken {
		return NameTaken
	}
	return Refused
}

func (w *Obstruction) message() string {
	return "a step about it is refused, and tried again in a moment: " + w.Why
}

// unmarkable returns why a claim that needs the leaving mark for this size can't get it now.
func (o *Observed) unmarkable(size int32) (why Obstruction, is bool) {
	if size == 0 {
		return why, false // a hibernating cluster marks no claim
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if !c.Aside && size <= c.Ordinal && c.Ordinal < o.staying() && c.LeavingSince.IsZero() {
			if why, is = o.refusedNow(c); is {
				return why, true
			}
		}
	}
	return why, false
}
