package ringchange

// Updates, creates and upserts are requests that depend on the present item.

// begin looks at the new owner first: an item there is the newer one, and a lease there means that another
// request or a mover is working on the key.
func (o *Op) begin() Step {
	switch {
	case o.class == Create && !o.has(LeaseCreate) && o.state != Finish:
		return o.step(looking, Look, o.secondary(), 0)
	case !o.has(LookFirst) && o.state == Prepare:
		return o.step(asking, AskUpdate, Old, 0)
	case !o.has(LookFirst):
		return o.step(guarding, AskUpdate, New, 0)
	}
	return o.step(looking, Look, New, 0)
}

func (o *Op) nextChange(r Result) Step {
	o.waited = o.waited || o.at == waiting && r.Code == Found
	answered := r.Code == Found || r.Code == Refused
	switch o.at {
	case looking, lookingAgain:
		return o.looked(r)
	case lookingOld:
		return o.both(r)
	case guarding:
		return o.updated(answered)
	case asking:
		switch {
		case answered && o.full:
			return o.step(confirming, Look, New, 0)
		case answered:
			return o.done(Answered)
		case o.class == Upsert && !o.has(LeaseCreate):
			return o.step(filling, Make, o.primary(), 0)
		case o.class == Upsert:
			return o.step(leasing, Lease, New, 0)
		}
		return o.step(lookingAgain, Look, New, 0)
	case confirming:
		if r.Code == Absent {
			return o.done(Answered)
		}
		// The key was moved or is being moved, perhaps with its earlier value. So the request begins again.
	case leasing:
		if r.Code != Leased {
			return o.step(looking, Look, New, 0)
		}
		o.lease = r.CAS
		return o.leased()
	case holding:
		return o.held(r)
	case filling:
		if r.Code == Found || !o.has(LeaseCreate) {
			return o.done(Answered)
		}
		if o.state == Finish {
			return o.step(looking, Look, New, 0) // a placeholder may have refused it
		}
	case releasing:
		return o.released(r.Code == Found)
	case undoing:
		if r.Code != Found {
			return o.done(Answered) // another request has found the item meanwhile
		}
	case erasing:
		return o.done(Answered)
	}
	return o.Start()
}

// looked handles the look at the new owner.
func (o *Op) looked(r Result) Step {
	switch {
	case r.Code == Leased:
		return o.step(waiting, Wait, New, 0)
	case r.Code == Found && o.class == Create:
		return o.done(Exists)
	case r.Code == Found:
		if o.seen = r.CAS; o.Alone() || !o.has(UpdateErase) {
			return o.guarded()
		}
		return o.step(lookingOld, Look, Old, 0)
	case o.state == Finish && o.class != Update:
		return o.step(filling, Make, New, 0)
	case o.state == Finish || o.at == lookingAgain:
		return o.done(Missed)
	case o.class == Create && !o.has(LeaseCreate):
		return o.step(filling, Ask, o.primary(), 0)
	case o.class == Create:
		return o.step(leasing, Lease, New, 0)
	case o.state == Prepare:
		return o.step(asking, AskUpdate, Old, 0)
	case !o.has(LeaseUpdate):
		return o.step(asking, AskUpdate, Old, 0)
	}
	return o.step(leasing, Lease, New, 0)
}

// both handles the case that both owners may have an item during a set. From Settle on, the one at the new
// owner is the newer one. In Prepare that depends on the set, so the request waits for it.
func (o *Op) both(r Result) Step {
	if r.Code == Found && o.state == Prepare && !o.waited && o.has(WaitForSet) {
		return o.step(waiting, Wait, Old, 0)
	}
	if r.Code == Found {
		o.other = r.CAS
	}
	return o.guarded()
}

// guarded updates the item that was seen at the new owner.
func (o *Op) guarded() Step {
	if !o.has(Guard) {
		return o.step(guarding, AskUpdate, New, 0)
	}
	return o.step(guarding, Guarded, New, o.seen)
}

// updated handles an update at the new owner. The item that was at the old owner is older.
func (o *Op) updated(answered bool) Step {
	switch {
	case answered && o.other != 0:
		return o.step(erasing, EraseIf, Old, o.other)
	case answered:
		return o.done(Answered)
	case !o.has(LookFirst):
		return o.step(leasing, Lease, New, 0)
	}
	return o.Start()
}

// leased handles the lease: only its holder may now make an item, or change one at the old owner.
func (o *Op) leased() Step {
	switch {
	case o.state == Prepare:
		return o.step(holding, Make, Old, 0)
	case o.class == Create:
		return o.step(holding, Look, Old, 0)
	}
	return o.step(holding, AskUpdate, Old, 0)
}

// held handles the old owner's answer to the holder of the lease.
func (o *Op) held(r Result) Step {
	switch {
	case o.state == Prepare && r.Code == Found:
		o.found, o.made = true, r.CAS
	case o.state != Prepare && o.class != Create:
		o.found = r.Code == Found || r.Code == Refused
		if !o.found && o.class == Upsert {
			return o.step(filling, Fill, New, o.lease)
		}
	case o.state != Prepare && r.Code == Absent:
		return o.step(filling, Fill, New, o.lease)
	}
	return o.step(releasing, EraseIf, New, o.lease)
}

// released handles the release of the lease. The lease may also be lost, because a client has set the key or
// it has expired.
func (o *Op) released(ours bool) Step {
	switch {
	case o.refused:
		return o.done(Unknown)
	case !ours && o.made != 0 && o.has(Undo):
		return o.step(undoing, EraseIf, Old, o.made)
	case o.found:
		return o.done(Answered)
	case o.class == Create:
		return o.done(Exists)
	case o.class == Upsert, !ours && o.has(AskAgain):
		return o.Start()
	}
	return o.done(Missed)
}
