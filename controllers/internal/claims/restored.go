package claims

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// The marks, policies and requests on a claim are about the claim with one UID. A backup brings a claim
// back with another UID, and with all of these. Only a person knows whether the data of such a claim is
// wanted, and no request on the claim is that person's word:
//
//	marks of another UID ──▶ Unnoted ──NoteRestored──▶ Restored: it waits for a person's retry or skip
//
// An aside claim is made with the marks of the first claim. CarryOver makes them marks about
// the aside claim, before the first claim goes:
//
//	CreateAside ──▶ Fresh ──CarryOver──▶ its own

// WrittenFor is given the UID that the marks on the claim name; empty for none. Marks that name another claim
// don't count, except the policy.
func (c *Claim) WrittenFor(uid types.UID) {
	switch {
	case uid == c.UID:
	case c.Aside && uid != "" && uid == c.First:
		c.Fresh = true
	default:
		c.cameBack()
	}
}

func (c *Claim) cameBack() {
	c.Restored, c.Unnoted, c.Fresh, c.Protected = true, true, false, false
	c.Request, c.MoveRequest, c.Receipt, c.Attempts = Hold, NoRequest, nil, action.Attempts{}
}

// NoteLost notes which aside claims a backup has brought back before their marks were carried over: their first
// claims are gone.
func NoteLost(all []Claim) {
	for i := range all {
		if c := &all[i]; c.Fresh && !slices.ContainsFunc(all, func(first Claim) bool { return first.UID == c.First }) {
			c.cameBack()
		}
	}
}

// isFirstOf tells whether the aside claim still has the marks of this claim.
func (c *Claim) isFirstOf(aside *Claim) bool { return aside.Fresh && aside.First == c.UID }

// MayCarryOver is asked before the marks of an aside claim become its own: their first claim is there, and is
// being deleted. live needs Claims.
func MayCarryOver(live *Facts, c *Claim) error {
	first := live.anyClaim(func(first *Claim) bool { return first.isFirstOf(c) && first.Deleting })
	return unless(first, "the claim whose marks claim %s has is gone, or is not being deleted", c.Name)
}

// MayNoteRestored is asked before it is noted that a backup has brought a claim back. live needs Claims.
func MayNoteRestored(live *Facts, c *Claim) error {
	first := live.anyClaim(func(first *Claim) bool { return first.isFirstOf(c) })
	return unless(c.Unnoted || c.Fresh && !first, "what is written on claim %s is about it", c.Name)
}

// carryOver carries the marks of a claim that is set aside over to the claims that were made with them.
func (w *Work) carryOver(f *Facts, c *Claim) {
	f.each(c, func(first *Claim, from action.ClaimRef) {
		for i := range f.Claims {
			f.each(&f.Claims[i], func(aside *Claim, ref action.ClaimRef) {
				if first.Deleting && first.isFirstOf(aside) {
					w.Do(action.CarryOver{Claim: ref, From: from})
				}
			})
		}
	})
}

// noteRestored notes that a backup has brought the claim back, and holds its drain.
func (d *decision) noteRestored(c *Claim) {
	d.each(c, func(c *Claim, ref action.ClaimRef) {
		if c.Unnoted {
			d.Do(action.NoteRestored{Claim: ref, Hold: true})
		}
	})
}
