package claims

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// A member of a StatefulSet may have several claims, one of each claim template, which are drained together
// or not at all: a unit. Together folds a unit into one Claim, for which the rules of a single claim hold,
// and each step about it becomes a step about each claim. One claim leads: its UID is the unit's, it has
// receipt and attempts, and it is deleted and released last. Claims that were never bound have nothing to
// drain, so each is alone. A Memcached's claims are all alone.

// generation is the same for all claims of one unit: a member may leave, return and leave again before its
// first volumes are drained.
type generation struct {
	ordinal       int32
	aside, marked bool
	left          int64
	// replaced: the claim was deleted, and another one has its mark. restored: a backup has brought the claim
	// back.
	replaced, restored bool
}

// Together folds the claims of each unit into one. The units are in the order of their first claims;
// of has the claims of units that have several, by the UID of the leading one, which is the first.
// Two claims of one template can't be of one member, unless one was deleted and the other takes over its
// volume. All others of that kind are alone.
func Together(all []Claim) (units []Claim, of map[types.UID][]Claim) {
	key := func(c *Claim) generation {
		return generation{c.Ordinal, c.Aside, !c.LeavingSince.IsZero(), c.Left, false, c.Restored}
	}
	groups := grouped(all, key)
	if mixed := groups; slices.ContainsFunc(slices.Collect(maps.Values(mixed)), sameTemplate) {
		plain := key
		key = func(c *Claim) generation {
			of := plain(c)
			of.replaced = c.Deleting && sameTemplate(mixed[of])
			return of
		}
		groups = grouped(all, key)
	}
	of = map[types.UID][]Claim{}
	folded := map[generation]bool{}
	for i := range all {
		c := &all[i]
		group := groups[key(c)]
		switch {
		case !c.Joins(), len(group) == 1, sameTemplate(group):
			units = append(units, *c)
		case !folded[key(c)]:
			folded[key(c)] = true
			units = append(units, fold(group))
			of[group[0].UID] = group
		}
	}
	return units, of
}

// Joins tells whether the claim belongs to a unit: it has data, or a backup may bring some when a pod mounts it.
func (c *Claim) Joins() bool { return c.Volume != "" || c.Restored && !c.Deleting }

// grouped has the claims of units by their keys, in the order of their templates.
func grouped(all []Claim, key func(*Claim) generation) map[generation][]Claim {
	groups := map[generation][]Claim{}
	for i := range all {
		if c := &all[i]; c.Joins() {
			groups[key(c)] = append(groups[key(c)], *c)
		}
	}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b Claim) int {
			return cmp.Or(strings.Compare(a.Template, b.Template), strings.Compare(a.Name, b.Name))
		})
	}
	return groups
}

func sameTemplate(sorted []Claim) bool {
	for i := range sorted[1:] {
		if sorted[i].Template == sorted[i+1].Template {
			return true
		}
	}
	return false
}

// fold is the claim that stands for all of a unit. The unit of a member that stays is deleted only if
// all its claims are: volumes that are set aside leave no part of the data behind.
func fold(unit []Claim) Claim {
	out := unit[0]
	var with []string
	for i := range unit[1:] {
		c := &unit[i+1]
		with = append(with, string(c.UID))
		out.Finalizer = out.Finalizer && c.Finalizer
		out.Protected = out.Protected && c.Protected
		out.Labelled = out.Labelled && c.Labelled
		out.OwnedBySet = out.OwnedBySet && c.OwnedBySet
		out.OwnedByPod = out.OwnedByPod || c.OwnedByPod
		out.Adopted = out.Adopted || c.Adopted
		out.Restored, out.Unnoted, out.Fresh = out.Restored || c.Restored, out.Unnoted || c.Unnoted, out.Fresh || c.Fresh
		out.InUse = out.InUse || c.InUse
		out.Pending = out.Pending || c.Pending
		if out.LeavingSince.IsZero() {
			out.Deleting = out.Deleting && c.Deleting
		} else {
			out.Deleting = out.Deleting || c.Deleting
		}
		if distance[c.Where] > distance[out.Where] {
			out.Where = c.Where
		}
		if c.Decided != out.Decided || c.Policy != out.Policy {
			out.Decided, out.Policy = true, Drain // it was decided in between: a drain loses nothing
		}
		out.ReleaseUnreadable = out.ReleaseUnreadable && c.ReleaseUnreadable
		out.Request = both(out.Request, c.Request)
	}
	out.With = strings.Join(with, ",")
	return out
}

// distance orders the places of volumes: the farther one counts for both.
var distance = map[Where]int{Here: 0, Reserved: 1, Promised: 2, Elsewhere: 3, Gone: 4, Forbidden: 5, NoneYet: 6, NotLookedAt: 7}

// both combines the requests on two claims of a unit: a skip counts only if it is on both.
func both(a, b Request) Request {
	switch {
	case a == b:
		return a
	case a == Hold || b == Hold:
		return Hold
	case a == Retry || b == Retry:
		return Retry
	}
	return NoRequest
}

// sources are the UIDs of the claims that c stands for, as a receipt has to name them.
func (c *Claim) sources() []string {
	if c.With == "" {
		return []string{string(c.UID)}
	}
	return append([]string{string(c.UID)}, strings.Split(c.With, ",")...)
}

// Sources are the UIDs of the claims that c stands for, as Job.Claims has them.
func (c *Claim) Sources() string { return strings.Join(c.sources(), ",") }

// NumberFor is the number of the leaving mark that a claim gets: that of its unit, if another claim of its
// member has the mark already, and otherwise the next one. A protected claim and one that was never protected
// are not of one unit, because a drain may be under way without the latter; nor are two claims of which one
// was deleted before the other was created: an earlier member has left the first.
func NumberFor(all []Claim, c *Claim) int64 {
	number := int64(0)
	for i := range all {
		o := &all[i]
		if o.Aside || o.Ordinal != c.Ordinal || o.UID == c.UID || o.LeavingSince.IsZero() || !c.Protected || o.Deleting && !c.Deleting && !c.Created.Before(o.DeletedAt) {
			continue
		}
		if o.Template == c.Template {
			return NextLeft(all)
		}
		number = max(number, o.Left)
	}
	if number == 0 {
		return NextLeft(all)
	}
	return number
}

// UnitOf returns the unit, of those that Together returned, that the claim of this UID belongs to; nil if there is
// no such claim.
func UnitOf(units []Claim, uid types.UID) *Claim {
	i := slices.IndexFunc(units, func(u Claim) bool { return slices.Contains(u.sources(), string(uid)) })
	if i < 0 {
		return nil
	}
	return &units[i]
}

// Unit returns all claims of the unit that the claim of this UID belongs to, the leading one first; nil
// if there is no such claim.
func (f *Facts) Unit(uid types.UID) []Claim {
	for i := range f.Claims {
		c := &f.Claims[i]
		if c.UID == uid && c.With == "" {
			return []Claim{*c}
		}
		if of := f.Units[c.UID]; c.With != "" && slices.ContainsFunc(of, func(p Claim) bool { return p.UID == uid }) {
			return of
		}
	}
	return nil
}

// anyOf tells whether something holds for one of the claims that c stands for.
func (f *Facts) anyOf(c *Claim, holds func(*Claim) bool) bool {
	if c.With == "" {
		return holds(c)
	}
	of := f.Units[c.UID]
	for i := range of {
		if holds(&of[i]) {
			return true
		}
	}
	return false
}

// anyClaim tells whether something holds for a claim, alone or in a unit.
func (f *Facts) anyClaim(holds func(*Claim) bool) bool {
	for i := range f.Claims {
		if f.anyOf(&f.Claims[i], holds) {
			return true
		}
	}
	return false
}

// each does something for each of the claims that c stands for, for the leading one last.
func (f *Facts) each(c *Claim, do func(*Claim, action.ClaimRef)) {
	if c.With == "" {
		do(c, c.Ref())
		return
	}
	of := f.Units[c.UID]
	for i := range of[1:] {
		ref := of[i+1].Ref()
		ref.Unit = c.UID
		do(&of[i+1], ref)
	}
	do(&of[0], c.Ref())
}

// others names the claims of the unit that do not lead it.
func (f *Facts) others(c *Claim) (refs []action.ClaimRef) {
	f.each(c, func(_ *Claim, ref action.ClaimRef) {
		if ref.Unit != "" {
			refs = append(refs, ref)
		}
	})
	return refs
}
