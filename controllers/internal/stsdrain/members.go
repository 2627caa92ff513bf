package stsdrain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// members decides about the claims under the members' own names: which are protected, marked, unmarked. A
// member stays if it is wanted, or while Plan.NothingDeparts has a reason.
type members struct {
	*Observed
	*Plan
	// after has the claims as they are when the steps are taken, without those that are released or left over.
	after []claims.Claim
}

func (m *members) decide() {
	m.after = slices.Clone(m.Claims)
	now := m.with(nil)
	now.Claims, now.Units = claims.Together(m.Claims)
	units := now.Claims
	for i := range m.after {
		switch c := &m.after[i]; {
		case c.Aside && !c.Protected && now.TakesOver(c):
			m.backInHandOver(c)
		case c.Aside && !c.Protected:
			m.left(now, c)
		case c.Aside:
			m.protect(c)
		}
	}
	for i := range units {
		if c := &units[i]; m.Wanted.Has(c.Ordinal) && !c.Aside && !c.LeavingSince.IsZero() && !c.Deleting {
			m.returns(now, c)
		}
	}
	partly := m.partlyProtected()
	for _, i := range m.deletedLast() {
		switch c := &m.after[i]; {
		case c.Aside || !c.LeavingSince.IsZero() || partly[c.Ordinal]:
		case m.Wanted.Has(c.Ordinal) && !c.Deleting:
			m.protect(c)
		case goes(c):
		case m.goesWithSet(c):
			m.releaseWithSet(c)
		case !m.Wanted.Has(c.Ordinal) && !c.Protected:
			m.leftOver(c)
		case c.Deleting && c.Volume != "" && (m.Wanted.Has(c.Ordinal) || m.NothingDeparts != ""):
			m.deleted(c)
		case !m.Wanted.Has(c.Ordinal) && m.NothingDeparts == "":
			m.mark(c)
		}
	}
	for i := range m.after { // marks that were written before
		if c := &m.after[i]; !c.Aside && !c.LeavingSince.IsZero() && !c.MarkPending() {
			terms, unit := m.terms(), cmp.Or(claims.UnitOf(units, c.UID), c)
			switch {
			case m.goesWithSet(c) && c.Finalizer:
				m.releaseWithSet(c)
			case c.Deleting && !c.Restored:
			case c.Protected && terms.ToDrain(unit):
				m.protect(c)
			case !c.Protected && (c.Deleting || !m.Wanted.Has(c.Ordinal)) && terms.PolicyFor(unit) != claims.Retain:
				m.left(now, c)
			}
		}
	}
	m.after = slices.DeleteFunc(m.after, func(c claims.Claim) bool {
		return c.Aside && !c.Protected || slices.ContainsFunc(m.LeftOver, func(ref action.ClaimRef) bool { return ref.UID == c.UID }) || slices.ContainsFunc(m.Actions, func(a action.Action) bool {
			released, is := a.(action.ReleaseClaim)
			return is && released.Claim.UID == c.UID
		})
	})
}

// goesWithSet tells whether the claim goes with its StatefulSet (whenDeleted: Delete). A claim whose volume
// another claim takes over doesn't count.
func (m *members) goesWithSet(c *claims.Claim) bool {
	return m.terms().SetGone && c.Deleting && c.OwnedBySet && m.AsideOf(c) == nil
}

// releaseWithSet releases a claim that goes with its StatefulSet. A volume that is reserved for a claim that was not made is
// returned first, or it would wait for that claim for good.
func (m *members) releaseWithSet(c *claims.Claim) {
	if c.Where == claims.Reserved && !m.step(c, action.ReturnVolume{Claim: c.Ref(), Volume: c.Volume, From: c.AsideName}) {
		return
	}
	m.step(c, action.ReleaseClaim{Claim: c.Ref(), Why: action.ByStatefulSet})
}

// partlyProtected has departed members of whose claims only some were protected while the members were wanted: the write
// for another one failed, or came too late. That one is protected first, and then all are marked: a drain of some would find the
// other volumes empty.
func (m *members) partlyProtected() map[int32]bool {
	partly := map[int32]bool{}
	for i := range m.after {
		c := &m.after[i]
		if c.Protected || c.Aside || c.Deleting || !c.Joins() || c.Unnoted || c.Request == claims.Skip || m.Wanted.Has(c.Ordinal) || m.NothingDeparts != "" || !m.protectedBeside(c) {
			continue
		}
		partly[c.Ordinal] = true
		m.Unprotected = append(m.Unprotected, c.Name)
		m.step(c, action.Protect{Claim: c.Ref()})
	}
	return partly
}

// deletedLast is the order in which claims are marked. A claim that is being deleted gets the number of its
// member's others, and not the other way round (claims.NumberFor).
func (m *members) deletedLast() (order []int) {
	for _, deleting := range []bool{false, true} {
		for i := range m.after {
			if m.after[i].Deleting == deleting {
				order = append(order, i)
			}
		}
	}
	return order
}

// protectedBeside tells whether another claim of the member was protected while the member was wanted, and has no mark
// yet.
func (o *Observed) protectedBeside(c *claims.Claim) bool {
	beside, unmarked := false, true
	for i := range o.Claims {
		if p := &o.Claims[i]; p.Ordinal == c.Ordinal && !p.Aside && p.UID != c.UID && p.Protected && p.Restored == c.Restored {
			beside, unmarked = true, unmarked && p.LeavingSince.IsZero() && !p.Deleting
		}
	}
	return beside && unmarked
}

func (m *members) toDrain(c *claims.Claim) bool {
	terms := m.terms()
	return terms.ToDrain(c)
}

// step plans a step about a claim, and tells whether no such step was refused a moment ago.
func (m *members) step(c *claims.Claim, step action.Action) bool {
	if why, is := m.RefusedNow(c); is {
		m.Withhold(c, why)
		return false
	}
	m.Do(step)
	return true
}

// protect protects a claim of a wanted member. protect also restores the label or the finalizer that a person
// has removed from a claim that is to be drained.
func (m *members) protect(c *claims.Claim) {
	if c.Protected && c.Labelled && c.Finalizer || c.Deleting || c.Aside && !c.Protected || c.Aside && !m.toDrain(c) {
		return
	}
	if !c.Aside && m.Wanted.Has(c.Ordinal) && (!c.Protected || !c.Finalizer) {
		m.Unprotected = append(m.Unprotected, c.Name)
	}
	if m.step(c, action.Protect{Claim: c.Ref()}) {
		c.Protected, c.Labelled, c.Finalizer = true, true, true
	}
}

// returns decides about a member that is wanted again before its claims were deleted. c stands for all
// of them.
func (m *members) returns(now *Observed, c *claims.Claim) {
	waits := ""
	if err := claims.MayUnmark(&now.Facts, c); err != nil {
		waits = err.Error()
		m.DeleteJob(now.JobOf(c.UID), fmt.Sprintf("member %d is wanted again", c.Ordinal))
	}
	m.Returned = append(m.Returned, Returned{Ordinal: c.Ordinal, Waits: waits})
	sources := strings.Split(c.Sources(), ",")
	for i := range m.after {
		if part := &m.after[i]; slices.Contains(sources, string(part.UID)) {
			if waits == "" {
				m.step(part, action.Unmark{Claim: part.Ref()})
			}
			part.PlanUnmark() // no step of its drain is taken meanwhile
		}
	}
}

// goes tells whether the claim goes by itself: it was deleted, and lacks our finalizer.
func goes(c *claims.Claim) bool { return c.Deleting && !c.Finalizer }

// backInHandOver decides about a claim that takes over a volume, and that a backup has brought back before
// the first claim went. The first claim waits for this one, so the hand-over continues. Then the drain waits
// for a person.
func (m *members) backInHandOver(c *claims.Claim) {
	if c.Unnoted {
		m.step(c, action.NoteRestored{Claim: c.Ref(), Hold: true})
	} else if m.step(c, action.Protect{Claim: c.Ref()}) {
		c.Labelled, c.Finalizer = true, true
	}
	c.Protected = true
}

// left decides about a claim with a departed member's volume that an earlier StatefulSetDrain, which is gone,
// has left: the claim was set aside, or a backup has brought it back with its mark and without our finalizer.
// A person's retry about one claim of a unit is about all of them.
func (m *members) left(now *Observed, c *claims.Claim) {
	takenUp := m.NothingDeparts == "" && !c.Unnoted && slices.ContainsFunc(now.Unit(c.UID), func(p claims.Claim) bool { return p.Protected || p.Request == claims.Retry })
	switch {
	case goes(c):
	case !takenUp || c.Request == claims.Skip:
		m.leftOver(c)
	case c.LeavingSince.IsZero():
		m.mark(c)
	case m.step(c, action.Protect{Claim: c.Ref()}):
		c.Protected, c.Labelled, c.Finalizer = true, true, c.Finalizer || !c.Deleting
	default: // its unit waits for it
		c.Protected = true
	}
}

// leftOver decides about a claim that was never seen while its member was wanted, or that an earlier
// StatefulSetDrain has left.
func (m *members) leftOver(c *claims.Claim) {
	switch {
	case c.Request == claims.Retry && m.NothingDeparts == "" && c.Deleting:
		m.mark(c)
		return
	case c.Request == claims.Retry && m.NothingDeparts == "": // then its member is partly protected
		if m.step(c, action.Protect{Claim: c.Ref()}) {
			c.Protected, c.Labelled, c.Finalizer = true, true, true
		}
		return
	case c.Deleting && c.Request == claims.Skip:
		m.step(c, action.ReleaseClaim{Claim: c.Ref(), Why: action.BySkip})
		return
	case c.Deleting && c.Volume == "":
		m.step(c, action.ReleaseClaim{Claim: c.Ref(), Why: action.NeverBound})
		return
	case c.Deleting:
		m.DeletedClaims = append(m.DeletedClaims, claims.DeletedClaim{Claim: c.Ref(), Message: "it was deleted, and was not drained: " +
			"its member was not wanted when it was first seen; annotate it with " + cachev1alpha1.AnnotationDrain + "=retry to drain it, or =skip to give its data up"})
	}
	m.LeftOver = append(m.LeftOver, c.Ref())
	if c.Unnoted && m.step(c, action.NoteRestored{Claim: c.Ref()}) {
		return // labelled by the next plan
	}
	if !c.Labelled && m.step(c, action.Label{Claim: c.Ref()}) {
		c.Labelled = true
	}
}

// deleted decides about a claim of a member that stays, which another client has deleted. The member's
// volumes are set aside together.
func (m *members) deleted(c *claims.Claim) {
	var kept []string
	for i := range m.Claims {
		if o := &m.Claims[i]; !o.Aside && o.Ordinal == c.Ordinal && o.LeavingSince.IsZero() && o.Volume != "" && !o.Deleting {
			kept = append(kept, o.Name)
		}
	}
	switch {
	case len(kept) == 0:
		m.mark(c)
	case c.Request == claims.Skip:
		m.step(c, action.ReleaseClaim{Claim: c.Ref(), Why: action.BySkip})
	default:
		m.DeletedClaims = append(m.DeletedClaims, claims.DeletedClaim{Claim: c.Ref(), Message: fmt.Sprintf("it was deleted, and not all of member %d were: "+
			"delete %s, too, and the volumes of all are set aside; or annotate it with %s=skip to give its data up", c.Ordinal, strings.Join(kept, ", "), cachev1alpha1.AnnotationDrain)})
	}
}

// mark gives a claim the leaving mark.
func (m *members) mark(c *claims.Claim) {
	number, joins := claims.NumberFor(m.after, c), false
	for i := range m.after {
		o := &m.after[i]
		joins = joins || !o.Aside && o.Ordinal == c.Ordinal && !o.LeavingSince.IsZero() && !o.MarkPending() && o.Left == number
	}
	// If the mark is refused, the claim still belongs to its unit, which waits: all are drained, or none.
	m.step(c, action.Mark{Claim: c.Ref()})
	c.Protected, c.Labelled, c.Finalizer = true, true, c.Finalizer || !c.Deleting
	c.PlanMark()
	if joins {
		c.Left = number
	}
}
