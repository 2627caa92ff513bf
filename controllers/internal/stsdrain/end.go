package stsdrain

import (
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// end releases all claims, after the StatefulSetDrain or its namespace was deleted. A refused
// StatefulSetDrain has no claims. Drained volumes go; the others stay, those that were set aside under their
// aside names. A volume whose claim was deleted to set it aside is set aside first; waits is as in
// claims.Facts.End.
func (o *Observed) end(refused Refusal) (waits string, w claims.Work) {
	then := o.having(o.Claims)
	if refused != (Refusal{}) {
		then.Claims, then.Units = nil, nil
	}
	why := action.ByOwnerDeletion
	if o.Drain.NamespaceTerminating {
		why = action.ByNamespace
	} else {
		for i := range then.Jobs {
			w.DeleteJob(&then.Jobs[i], "the StatefulSetDrain is deleted")
		}
	}
	terms := o.terms()
	left, waits, released := then.End(&claims.Ending{
		Why: why, Unwanted: func(*claims.Claim) bool { return false },
		SetAside: func(c *claims.Claim) bool {
			goes := terms.SetGone && c.OwnedBySet || terms.PolicyFor(c) == claims.Delete || c.Request == claims.Skip
			return !c.LeavingSince.IsZero() && !goes && !o.MemberExists(c)
		},
	})
	w.Then(released)
	labelled := false
	for i := range left.Claims {
		for _, c := range left.Unit(left.Claims[i].UID) {
			if c.Labelled && !c.Deleting && !c.Finalizer && why != action.ByNamespace {
				ref := c.Ref()
				ref.Unit = left.Claims[i].UID // a step that is refused stops those about the whole unit
				w.Do(action.Unlabel{Claim: ref})
			}
			labelled = labelled || c.Finalizer
		}
	}
	if o.Drain.Finalizer && !labelled && claims.MayRemoveOwnerFinalizer(left) == nil {
		w.Do(action.RemoveOwnerFinalizer{})
	}
	return waits, w
}
