// Package stsdrain decides what to do about the claims of a StatefulSet that a StatefulSetDrain names. The
// package is pure: observed facts go in, actions come out. The StatefulSet belongs to others, so nothing
// happens before a member is gone; package claims has the rules from then on.
//
//	unprotected ─seen while wanted─▶ member ─no longer wanted─▶ leaving ─no pod─▶ departed ─deleted, bound again─▶ aside
//	                                   ▲                           │                 │                              │
//	                                   └───────── wanted again, its claims not deleted yet ─┘        a Job, a receipt ▼ released
//
//	observed.go   what goes in and out               members.go   which claims are protected, marked, unmarked
//	decide.go     the order of the decisions         wait.go      what a drain waits for
//	end.go        the StatefulSetDrain goes          guard.go     the checks (May…) before what can't be undone
package stsdrain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Decide plans the next steps.
func Decide(seen *Observed) Plan {
	o := seen.inOrder()
	p := Plan{Refused: o.refused(), Wanted: o.wanted(), NothingDeparts: o.nothingDeparts()}
	switch {
	case o.Drain.Deleting || o.Drain.NamespaceTerminating:
		p.EndWaits, p.Work = o.end(p.Refused)
		return p
	case p.Refused != Refusal{}:
		return p
	}
	if !o.Drain.Finalizer {
		p.Do(action.AddOwnerFinalizer{})
	}
	m := &members{Observed: o, Plan: &p}
	m.decide()
	o = o.having(m.after)
	p.Facts = o.Facts
	p.Then(o.Orphans())
	volumes, work := p.Facts.Decide(o.given(&p))
	volumes.DeletedClaims = append(p.DeletedClaims, volumes.DeletedClaims...)
	p.Volumes = volumes
	o.kept(&p)
	p.Then(work)
	p.Stalled = o.stalled()
	o.wake(&p)
	return p
}

// wanted are the members that the StatefulSet is to have; none without a StatefulSet.
func (o *Observed) wanted() action.Range {
	if !o.Set.Exists || o.Set.Deleting {
		return action.Range{Start: o.Set.Start}
	}
	return action.Range{Start: o.Set.Start, Count: max(0, o.Set.Replicas)}
}

// nothingDeparts says why no member departs: there is none that could take its data.
func (o *Observed) nothingDeparts() string {
	switch {
	case !o.Set.Exists:
		return "there is no StatefulSet " + o.Set.Name
	case o.Set.Deleting:
		return "StatefulSet " + o.Set.Name + " is being deleted"
	case o.Set.Replicas <= 0:
		return "StatefulSet " + o.Set.Name + " has 0 replicas"
	}
	return ""
}

// refused tells why the StatefulSet is left alone.
func (o *Observed) refused() Refusal {
	for _, other := range o.Others {
		older := cmp.Or(other.Created.Compare(o.Drain.Created), cmp.Compare(other.Name, o.Drain.Name)) < 0
		if older {
			return Refusal{cachev1alpha1.ReasonStatefulSetTaken, fmt.Sprintf("StatefulSetDrain %s names StatefulSet %s, too, and is older: delete one of the two", other.Name, o.Set.Name)}
		}
	}
	if o.Set.Memcached != "" {
		return Refusal{cachev1alpha1.ReasonStatefulSetOfMemcached, fmt.Sprintf("StatefulSet %s is of Memcached %s, which drains its members itself: delete this StatefulSetDrain", o.Set.Name, o.Set.Memcached)}
	}
	return Refusal{}
}

// given has the facts that package claims needs beside the claims.
func (o *Observed) given(p *Plan) *claims.Given {
	terms := o.terms()
	return &claims.Given{
		Terms: &terms, Parallelism: o.Drain.Parallelism, Wanted: p.Wanted, Survivors: p.Wanted, AsideFirst: true,
		Leaves: func(c *claims.Claim) (phase claims.DrainPhase, reason, message string) {
			if o.MemberExists(c) && !p.Wanted.Has(c.Ordinal) {
				return claims.Leaving, claims.PodPresent, o.ShutsDown(c.Ordinal)
			}
			return "", "", ""
		},
		Waits: func(c *claims.Claim) (reason, message string) { return o.drainWaits(c) },
	}
}

// terms are those of the StatefulSetDrain, with what follows from the StatefulSet.
func (o *Observed) terms() claims.Terms {
	terms := o.Drain.Terms
	terms.ReleaseUnreadable = false
	terms.SetGone = !o.Set.Exists || o.Set.Deleting
	terms.Names = claims.Names{Owner: "the StatefulSetDrain", Data: "data", Policy: "spec.policy", NoSurvivors: o.nothingDeparts()}
	return terms
}

// inOrder has the claims in the order in which they are decided about: the highest ordinals first, those
// that were set aside last.
func (o *Observed) inOrder() *Observed {
	return o.with(slices.SortedFunc(slices.Values(o.Claims), func(a, b claims.Claim) int {
		aside := 0
		switch {
		case a.Aside && !b.Aside:
			aside = 1
		case b.Aside && !a.Aside:
			aside = -1
		}
		return cmp.Or(cmp.Compare(b.Ordinal, a.Ordinal), aside, cmp.Compare(a.Left, b.Left), cmp.Compare(a.Name, b.Name))
	}))
}

// with is the observation with these claims.
func (o *Observed) with(all []claims.Claim) *Observed {
	then := *o
	then.Claims = all
	return &then
}

// having is with these claims, folded into units. A Job that drains to other members, or other claims,
// than it would now, is to be replaced.
func (o *Observed) having(all []claims.Claim) *Observed {
	then := o.with(all)
	then.Claims, then.Units = claims.Together(all)
	for i := range then.Claims {
		if c := &then.Claims[i]; c.Receipt != nil && o.changedSince(c, c.Receipt.SetVersion) {
			c.Receipt = nil
		}
	}
	then.Jobs = slices.Clone(o.Jobs)
	for i := range then.Jobs {
		j := &then.Jobs[i]
		switch c := then.Claim(j.ClaimUID); {
		case c != nil && o.changedSince(c, j.SetVersion):
			j.Replace = fmt.Sprintf("StatefulSet %s has changed since, and its member may have used the volume again", o.Set.Name)
			j.Receipt, j.ReceiptErr = nil, errors.New(j.Replace)
		case j.Survivors != o.wanted():
			j.Replace = fmt.Sprintf("StatefulSet %s is to have other members now", o.Set.Name)
		case c != nil && j.Claims != "" && j.Claims != c.Sources():
			j.Replace = "other claims are drained together now"
		}
	}
	return then
}

// changedSince tells whether the member may have used the claim again since the StatefulSet had this version, and may have
// left once more: no receipt from before tells what it has written. A member can't use an aside claim, or one that is being deleted.
func (o *Observed) changedSince(c *claims.Claim, version string) bool {
	return !c.Aside && !c.Deleting && o.Set.Exists && version != o.Set.Version
}
