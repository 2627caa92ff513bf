package invariants

import (
	"math"
	"reflect"
	"slices"

	"example.com/memcached-operator/drainer/contract"
)

// Remember takes from the state before everything that the invariants need to know of the past. Remember is
// called once for each state, in order; before is nil for the first state.
func (after *State) Remember(before *State) {
	if before == nil {
		before = &State{}
	}
	after.DepartedVolumes = keep(before.DepartedVolumes, after.DepartedVolumes)
	after.GivenUp = keep(before.GivenUp, after.GivenUp)
	after.Bound = keep(before.Bound, after.Bound)
	for i := range after.Claims {
		c := &after.Claims[i]
		c.Smallest = math.MaxInt32
		if after.Cluster.Size > 0 {
			c.Smallest = after.Cluster.Size
		}
		if b := before.claim(c.UID); b != nil {
			c.Smallest = min(c.Smallest, b.Smallest)
			c.ReceiptsLeft = b.ReceiptsLeft
		}
		after.rememberOfSet(c, before.claim(c.UID))
		after.rememberReceipts(c)
		after.noteDeparted(c)
	}
	for i := range before.Claims {
		b := &before.Claims[i]
		after.Bound = with(after.Bound, b.Volume)
		if c := after.claim(b.UID); (c == nil || !c.HasFinalizer) && (!b.HasFinalizer && !volumeKept(before, b.Volume) || releaseReason(before, b) != "") {
			after.GivenUp = with(after.GivenUp, b.Volume)
		}
	}
}

// rememberReceipts stores the receipts that the claim's drainers have left.
func (after *State) rememberReceipts(c *Claim) {
	for i := range after.Pods {
		p := &after.Pods[i]
		if p.Receipt != nil && p.DrainsClaim == c.UID && !wasLeft(c, p.Receipt) {
			c.ReceiptsLeft = append(slices.Clip(c.ReceiptsLeft), p.Receipt)
		}
	}
}

// noteDeparted notes that the claim's member has left while others stay: the spec said so, and the StatefulSet
// doesn't have the member any more. If a person scaled the StatefulSet, its pods are lost instead: clients
// still ask them.
func (after *State) noteDeparted(c *Claim) {
	m := after.Members
	if c.Ordinal >= 0 && m.Exists && 0 < m.Replicas && m.Replicas <= c.Ordinal && c.Smallest <= c.Ordinal {
		after.DepartedVolumes = with(after.DepartedVolumes, c.Volume)
	}
	if c.Ordinal < 0 && c.Leaving {
		after.DepartedVolumes = with(after.DepartedVolumes, c.Volume) // the volume was set aside, and clients write to another one
	}
}

// volumeKept tells whether the volume's claim has the finalizer.
func volumeKept(s *State, volume string) bool {
	return slices.ContainsFunc(s.Claims, func(c Claim) bool { return c.HasFinalizer && c.Volume == volume })
}

func with(set []string, name string) []string {
	if name == "" || slices.Contains(set, name) {
		return set
	}
	return append(slices.Clip(set), name)
}

func keep(sets ...[]string) []string {
	var all []string
	for _, set := range sets {
		for _, name := range set {
			all = with(all, name)
		}
	}
	return all
}

// wasLeft tells whether a drainer of the claim left this receipt.
func wasLeft(c *Claim, r *contract.Receipt) bool {
	return slices.ContainsFunc(c.ReceiptsLeft, func(said *contract.Receipt) bool { return same(said, r) })
}

func same(a, b *contract.Receipt) bool {
	return a == b || a != nil && b != nil && reflect.DeepEqual(a, b)
}
