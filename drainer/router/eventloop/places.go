package eventloop

import (
	"fmt"
	"sync"
	"time"
)

// Places are where the members of one loop were reached last. While a member's pod is replaced, its name may still lead
// to where it was, which may be another member's place by now. Whoever asks one member for the keys of two loses values
// in a ring change, which deletes at one what it has stored at the other, and shows old ones after it.
//
// Nobody can tell which of two names leads to the wrong place. So neither member is asked until the names have had
// time to change. If they still lead to one place, it belongs to the member that was there first.
type Places struct {
	mu sync.Mutex
	by map[string]place
}

type place struct {
	remote string
	since  time.Time
}

// namesChange is how long an outdated answer of a name server is believed at most, as a rule.
const namesChange = time.Minute

// Take the place of a member that was dialled. If it may not be asked there, why says so, and twin is the address of
// another member that may not either, if there is one. A nil Places keeps nobody apart.
func (p *Places) Take(address, remote string, now time.Time) (twin, why string) {
	if p == nil {
		return "", ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[string]place{}
	}
	own := p.by[address]
	if own.remote != remote {
		own = place{remote, now}
		p.by[address] = own
	}
	for other, its := range p.by {
		if other == address || its.remote != remote || own.since.Before(its.since) && now.Sub(its.since) >= namesChange {
			continue
		}
		why = fmt.Sprintf("its name leads to %s, where member %s is: which of the two is there is not known", remote, other)
		if its.since.Before(own.since) && now.Sub(own.since) >= namesChange {
			return "", why
		}
		return other, why
	}
	return "", ""
}

// Leave the place: the member can't be reached, or is asked no longer.
func (p *Places) Leave(address string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, address)
}
