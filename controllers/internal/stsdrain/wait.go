package stsdrain

import (
	"fmt"
	"slices"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// drainWaits tells what a drain of the unit waits for; the reason is empty if it may begin. The plan asks
// this, and MayDrain asks it about live state.
func (o *Observed) drainWaits(c *claims.Claim) (reason, message string) {
	if reason, message = o.Unmounted(c); reason != "" {
		return reason, message
	}
	switch wanted := o.wanted(); {
	case c.Pending:
		return claims.SettingAside, fmt.Sprintf("volume %s is not bound to the claim yet", c.Volume)
	case !c.Aside && wanted.Has(c.Ordinal):
		return claims.PodPresent, fmt.Sprintf("member %d is wanted again", c.Ordinal)
	case o.Drain.TemplateRefused != "":
		return claims.Refused, "the API server refuses the drain's Job: " + o.Drain.TemplateRefused
	default:
		for i := range wanted.Count {
			if !slices.Contains(o.Ready, wanted.Start+i) {
				return cachev1alpha1.ReasonMembersNotReady, fmt.Sprintf("member %d is not ready", wanted.Start+i)
			}
		}
	}
	return "", ""
}

// kept names the pods of wanted members that keep deleted claims in use. Such a pod ends only if a person deletes it.
func (o *Observed) kept(p *Plan) {
	for i := range p.Drains {
		d := &p.Drains[i]
		if c := &d.Claim; !c.Deleting || d.Phase != claims.Waiting || !p.Wanted.Has(c.Ordinal) || !o.MemberExists(c) {
			continue
		}
		d.Reason = claims.PodPresent
		d.Message = fmt.Sprintf("it was deleted, and member %d still uses it: delete the member's pod, and its volume is set aside, and drained from there; the member returns empty", d.Claim.Ordinal)
		p.DeletedClaims = append(p.DeletedClaims, claims.DeletedClaim{Claim: d.Claim.Ref(), Message: d.Message})
	}
}

// stalled says why Kubernetes neither adds nor removes a member: one before it is not ready.
func (o *Observed) stalled() string {
	wanted := o.wanted()
	if !o.Set.OrderedReady || wanted.Count == 0 {
		return ""
	}
	changes := slices.ContainsFunc(o.Pods, func(i int32) bool { return !wanted.Has(i) })
	for i := range wanted.Count {
		switch ordinal := wanted.Start + i; {
		case !o.PodExists(ordinal):
			changes = true
		case !slices.Contains(o.Ready, ordinal):
			later := changes
			for j := i + 1; j < wanted.Count; j++ {
				later = later || !o.PodExists(wanted.Start+j)
			}
			if later {
				return fmt.Sprintf("member %d is not ready, and podManagementPolicy is OrderedReady: Kubernetes neither adds nor removes a member before it is", ordinal)
			}
			return ""
		}
	}
	return ""
}

// wake wakes the StatefulSet's controller, once for each absence, for wanted members whose old claims are
// gone: the controller does not watch claims. A pod that waits for a node may have lost its claims, too.
func (o *Observed) wake(p *Plan) {
	asleep := false
	for i := range p.Wanted.Count {
		ordinal := p.Wanted.Start + i
		if slices.Contains(o.Ready, ordinal) || len(o.Set.Templates) == 0 {
			continue
		}
		there := map[string]bool{}
		deleting := false
		o.eachOwn(ordinal, func(c *claims.Claim) {
			there[c.Template] = true
			deleting = deleting || c.Deleting
		})
		missing := slices.ContainsFunc(o.Set.Templates, func(t string) bool { return !there[t] })
		if missing && !deleting {
			p.Awaited = append(p.Awaited, ordinal)
			asleep = asleep || !slices.Contains(o.Woken, ordinal)
		}
	}
	if asleep {
		p.Do(action.Wake{UID: o.Set.UID})
	}
}

// eachOwn does something for each claim under the member's own names.
func (o *Observed) eachOwn(ordinal int32, do func(*claims.Claim)) {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.Ordinal == ordinal && !c.Aside {
			of := o.Unit(c.UID)
			for k := range of {
				do(&of[k])
			}
		}
	}
}
