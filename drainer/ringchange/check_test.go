package ringchange

import "math/bits"

// The states and answers that must never be, in any order of events.

// answered returns a mask of the writes that were answered, whether or not they found something.
func (w *world) answered() (mask uint8) {
	for i := range w.writes {
		if s := w.writes[i].status; s == applied || s == not {
			mask |= 1 << (i + 1)
		}
	}
	return mask
}

func (w *world) write(id int8) *request { return &w.writes[id-1] }

// precedes tells whether write a was answered before write b began.
func (w *world) precedes(a, b int8) bool {
	return a == 0 || w.write(b).before&(1<<a) != 0
}

// replaced returns the write, answered before r began, that replaced the value that r has seen; 0 for none.
func (w *world) replaced(v item, before uint8) int8 {
	for id := int8(1); id <= writes; id++ {
		x := w.write(id)
		if before&(1<<id) == 0 || id == v.base {
			continue
		}
		switch {
		case x.kind == del && x.status == applied || x.makes():
			if w.precedes(v.base, id) {
				return id
			}
		case x.status == applied && x.adds():
			base := x.seen.base
			if base == v.base && v.added&(1<<id) == 0 || base != v.base && base != 0 && w.precedes(v.base, base) {
				return id
			}
		}
	}
	return 0
}

// makes tells whether the write has made a value.
func (r *request) makes() bool {
	return r.status == applied && (r.kind == set || r.kind == cas || r.kind == add || r.kind == upsert && r.seen == item{})
}

// adds tells whether the write has changed a value.
func (r *request) adds() bool {
	return r.status == applied && (r.kind == incr || r.kind == upsert && r.seen != item{})
}

// live tells whether there is a value that was stored before r began, and that no request can have deleted
// since.
func (w *world) live(r *request) bool {
	if w.crossed || w.missing || bits.OnesCount8(r.met) > 1 {
		return false
	}
	begun := func(id int8) bool { return w.write(id).status != idle }
	stays := func(made int8) bool {
		for id := int8(1); id <= writes; id++ {
			if begun(id) && w.write(id).kind == del && (made == 0 || w.write(made).before&(1<<id) == 0) {
				return false
			}
		}
		return true
	}
	if w.initial && stays(0) {
		return true
	}
	for id := int8(1); id <= writes; id++ {
		if r.before&(1<<id) != 0 && w.write(id).makes() && (stays(id) || w.comesLast(id)) {
			return true
		}
	}
	return false
}

// comesLast tells whether the write is an add that has made an item where another one was, so that it came
// after the only delete.
//
// A delete that gets no lease for want of memory has two parts, and may delete an item that an add makes
// between them.
func (w *world) comesLast(id int8) bool {
	if w.refused > 0 {
		return false
	}
	deletes := 0
	for other := int8(1); other <= writes; other++ {
		switch x := w.write(other); {
		case other == id || x.status == idle:
		case x.kind == del:
			deletes++
		default:
			return false
		}
	}
	return w.initial && w.write(id).kind == add && deletes == 1
}

// wrong returns the errors of the answer to r.
func (w *world) wrong(r *request, id int8) string {
	switch {
	case r.hit && r.seen.kind == lease:
		return "a placeholder was seen"
	case r.kind == read && !r.hit, r.kind == incr && r.status == not && !r.hit && r.op.outcome == Missed:
		if w.live(r) {
			return "a miss of a key that is there"
		}
	case r.kind == read, r.adds():
		if w.replaced(r.seen, r.before) != 0 {
			return "an old value"
		}
	case r.kind == cas && r.status == applied:
		return w.wrongCAS(r, id)
	case r.kind == add:
		return w.wrongAdd(r, id)
	case r.kind == upsert && r.makes() && w.live(r):
		return "an upsert made an item that was there"
	}
	return ""
}

func (w *world) wrongCAS(r *request, id int8) string {
	if w.replaced(r.token, r.before) != 0 {
		return "a cas of an old value"
	}
	for other := int8(1); other <= writes; other++ {
		x := w.write(other)
		if other != id && x.kind == cas && x.status == applied && x.token.base == r.token.base && x.token.added == r.token.added {
			return "two cas of one value"
		}
	}
	return ""
}

func (w *world) wrongAdd(r *request, id int8) string {
	others, deletes, adds := false, false, false
	for other := int8(1); other <= writes; other++ {
		x := w.write(other)
		if other == id || x.status == idle {
			continue
		}
		others = others || x.kind != del && x.kind != incr
		deletes = deletes || x.kind == del
		adds = adds || x.kind == add && x.status == applied
	}
	switch {
	case r.status == applied && w.live(r):
		return "an add made an item that was there"
	case r.status == applied && adds && !deletes && !w.missing:
		return "two adds made an item"
	case r.status == not && !w.initial && !others && !w.missing:
		return "an add found an item where none was"
	}
	return ""
}
