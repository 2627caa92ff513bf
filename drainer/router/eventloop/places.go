package eventloop

import (
	"fmt"
	"sync"
	"time"
)

// Places has the addresses at which the members of one loop were last reached. While a member's pod is
// replaced, its name may still lead to its old address, which another member may have by now. A router that
// asks one member for the keys of two loses values in a ring change, which deletes at one what it has stored
// at the other, and later returns old values.
//
// Nothing tells which of two names leads to the wrong address. So neither member is asked until the names have had
// time to change. If they still lead to one address, it belongs to the member that was there first.
type Places struct {
	mu sync.Mutex
	by map[*Holder]place
}

// Holder is a member that holds a place, for as long as it is asked. If a member is taken off the list and named
// again while its last answers are awaited, there are two holders of the same address.
type Holder struct{ Address string }

type place struct {
	remote string
	since  time.Time
}

// namesChange is how long an outdated answer of a name server is usually believed.
const namesChange = time.Minute

// Take takes the address that a member was reached at. If the member may not be asked there, why is the
// reason, and twin is the address of another member that may not be asked either, if there is one. A nil
// Places allows equal addresses.
func (p *Places) Take(h *Holder, remote string, now time.Time) (twin, why string) {
	if p == nil {
		return "", ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[*Holder]place{}
	}
	own := p.by[h]
	if own.remote != remote {
		own = place{remote, now}
		p.by[h] = own
	}
	for other, its := range p.by {
		if other.Address == h.Address || its.remote != remote || own.since.Before(its.since) && now.Sub(its.since) >= namesChange {
			continue
		}
		why = fmt.Sprintf("its name resolves to %s, which is also the address of member %s: the router can't tell which of the two answers there", remote, other.Address)
		if its.since.Before(own.since) && now.Sub(own.since) >= namesChange {
			return "", why
		}
		return other.Address, why
	}
	return "", ""
}

// Leave gives the place up: the member can't be reached, or is no longer asked.
func (p *Places) Leave(h *Holder) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, h)
}
