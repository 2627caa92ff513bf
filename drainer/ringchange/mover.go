package ringchange

// Mover moves one key from its old owner to its new one, in Move.
type Mover struct {
	without Rules
	at      stage
	lease   uint64 // CAS of our placeholder, or of our copy
	item    uint64 // CAS of the item at the old owner
	copies  int    // how often the item was copied
	// Moved means that the item is at its new owner.
	Moved bool
}

// mostCopies bounds how often a mover copies an item that changes at its old owner again and again.
const mostCopies = 4

// NewMover returns a mover; its first step is Start's. without are rules that are not followed.
func NewMover(without Rules) Mover { return Mover{without: without} }

func (m *Mover) has(r Rules) bool { return m.without&r == 0 }

func (m *Mover) step(at stage, a Action, p Place, cas uint64) Step {
	m.at = at
	return Step{a, p, cas}
}

// Start returns the first step.
func (m *Mover) Start() Step {
	if !m.has(MoverLease) {
		return m.step(holding, Fetch, Old, 0)
	}
	return m.step(leasing, Lease, New, 0)
}

// Next returns the step after the one with this result.
func (m *Mover) Next(r Result) Step {
	done := Step{Action: Done}
	switch {
	case r.Code == Failed && r.Said && (m.at == holding || m.at == filling):
		return m.giveBack()
	case r.Code == Failed:
		return done // the lease expires
	}
	switch m.at {
	case leasing:
		if r.Code == Leased {
			m.lease = r.CAS
			return m.step(holding, Fetch, Old, 0)
		}
		return m.step(looking, Look, New, 0)
	case holding:
		if r.Code != Found {
			return m.giveBack()
		}
		m.item = r.CAS
		return m.step(filling, Copy, New, m.lease)
	case filling:
		if r.Code != Found {
			return done // a client has set the key
		}
		m.lease = r.CAS
		m.copies++
		return m.step(erasing, EraseIf, Old, m.item)
	case erasing:
		m.Moved = r.Code == Found
		switch {
		case r.Code == Changed && m.has(MoverLease) && m.copies < mostCopies:
			// A request that has lost its lease has changed the item. The copy stays until the item replaces it:
			// another mover may have seen it, and delete the item at the old owner for it.
			return m.step(holding, Fetch, Old, 0)
		case !m.has(MoverLease) && (r.Code == Changed || r.Code == Absent):
			return m.giveBack()
		}
	case looking: // another request has the key's lease
		if r.Code == Found {
			return m.step(lookingOld, Look, Old, 0)
		}
	case lookingOld: // the item at the old owner is outdated, if there is still one at the new owner
		if m.item = r.CAS; r.Code == Found {
			return m.step(confirming, Look, New, 0)
		}
	case confirming:
		if r.Code == Found {
			return m.step(outdating, EraseIf, Old, m.item)
		}
	}
	return done
}

// giveBack deletes the mover's own placeholder; without leases, its copy. With a lease, a copy stays.
func (m *Mover) giveBack() Step {
	if m.lease == 0 || m.copies > 0 && m.has(MoverLease) || !m.has(MoverBack) {
		return Step{Action: Done}
	}
	return m.step(releasing, EraseIf, New, m.lease)
}
