package ringchange

// The world of the model has two owners of one key, two routers, clients and movers. Members carry out one
// command at a time; everything else happens in any order between two commands.

// item is the state of an owner.
type item struct {
	kind uint8 // nothing, value or lease
	cas  uint8
	// base is the write that has made the value, counted from 1; 0 is the value from the beginning. added has
	// the increments since.
	base  int8
	added uint8
}

const (
	nothing = iota
	value
	lease
)

// kind of a client's request.
type kind uint8

const (
	read kind = iota
	set
	del
	incr
	cas
	add
	upsert
	touch
)

var kindNames = [...]string{"read", "set", "delete", "incr", "cas", "add", "upsert", "touch"}

var classOf = [...]Class{Read, Set, Delete, Update, Update, Create, Upsert, Update}

// status is the state of a request.
type status uint8

const (
	idle    status = iota
	running        // the client waits
	applied        // answered: carried out
	not            // answered: there was nothing, or something else
	unknown        // answered with an error, or never
)

// request is a client's request.
type request struct {
	kind   kind
	status status
	// phase is that of its router when it began.
	phase uint8
	op    Op
	step  Step
	// before are the writes that were answered when it began.
	before uint8
	// seen is the value that it has read or changed.
	seen item
	// token is that of a cas: the value that was read before.
	token item
	late  bool // its lease has expired
	hit   bool
	// met has the phases of all writes that were unanswered at some time, as bits.
	met uint8
}

func (r *request) writes() bool { return r.kind != read }

// mover is a Job, or a router that moves a key that it was asked for.
type mover struct {
	busy bool
	m    Mover
	step Step
	item item
}

// The phases of a router: the states, and at the end the new ring.
const (
	phaseStable = iota
	phasePrepare
	phaseSettle
	phaseMove
	phaseFinish
	phaseNew
)

const (
	writers   = 2
	perWriter = 2
	writes    = writers * perWriter
)

// world is the whole state, and comparable.
type world struct {
	at     [2]item
	cas    uint8 // the last one that was given
	phase  [2]uint8
	writes [writes]request // writer i's begin at i*perWriter
	reader request
	movers [2]mover
	runs   uint8 // the number of movers that have begun
	// The numbers of past evictions, expiries, deaths, and refusals of a full owner.
	evicted, expired, died, refused uint8
	// crossed means that two writes in different states were unanswered at the same time. missing means that
	// something was evicted, or a member was lost.
	crossed, missing bool
	// initial means that the old owner has a value at the beginning.
	initial bool
}

// command carries out a step of a request at an owner.
func (w *world) command(r *request, id int8, s Step) Result {
	place := s.Place
	if r.phase == phaseNew {
		place = New
	}
	at := &w.at[place]
	there := at.kind == value
	switch s.Action {
	case Look:
		return looked(at)
	case Lease:
		if at.kind != nothing {
			return Result{Code: Refused}
		}
		w.cas++
		*at = item{kind: lease, cas: w.cas}
		return Result{Code: Leased, CAS: uint64(w.cas)}
	case Erase:
		return w.erase(r, at)
	case EraseIf:
		return eraseIf(at, s.CAS)
	case Make:
		if r.hit = at.kind == nothing; !r.hit {
			return Result{Code: Refused}
		}
		return w.makeItem(r, at, id)
	case Fill:
		if at.kind == nothing || uint64(at.cas) != s.CAS {
			return Result{Code: Changed}
		}
		return w.makeItem(r, at, id)
	case Guarded:
		switch {
		case at.kind == nothing:
			return Result{Code: Absent}
		case uint64(at.cas) != s.CAS:
			return Result{Code: Changed}
		}
		return w.update(r, at, id)
	}
	switch r.kind {
	case read:
		if at.kind == lease && r.phase != phaseNew {
			return Result{Code: Leased}
		}
		r.seen, r.hit = *at, at.kind != nothing
		return Result{Code: codeOf(r.hit)}
	case set:
		return w.makeItem(r, at, id)
	case del:
		return w.erase(r, at)
	case add:
		if r.hit = at.kind == nothing; !r.hit {
			return Result{Code: Refused}
		}
		return w.makeItem(r, at, id)
	case upsert:
		if at.kind == nothing && s.Action == Ask {
			return w.makeItem(r, at, id)
		}
	}
	if at.kind == nothing {
		return Result{Code: Absent}
	}
	if !there && r.phase != phaseNew {
		r.seen = *at // of an append to a placeholder
	}
	return w.update(r, at, id)
}

// makes tells whether a step of a request takes memory at its owner, beyond that of a client's value that it
// replaces.
func (s Step) makes(k kind) bool {
	switch s.Action {
	case Lease, Make, Fill, Copy:
		return true
	case Ask:
		return k == add || k == upsert
	}
	return false
}

func codeOf(found bool) Code {
	if found {
		return Found
	}
	return Absent
}

func looked(at *item) Result {
	return Result{Code: [...]Code{nothing: Absent, value: Found, lease: Leased}[at.kind], CAS: uint64(at.cas)}
}

func (w *world) erase(r *request, at *item) Result {
	found := at.kind != nothing
	if r.kind == del {
		r.hit = r.hit || at.kind == value
	}
	*at = item{}
	return Result{Code: codeOf(found)}
}

func eraseIf(at *item, cas uint64) Result {
	switch {
	case at.kind == nothing:
		return Result{Code: Absent}
	case uint64(at.cas) != cas:
		return Result{Code: Changed}
	}
	*at = item{}
	return Result{Code: Found}
}

func (w *world) makeItem(r *request, at *item, id int8) Result {
	w.cas++
	*at = item{kind: value, cas: w.cas, base: id}
	r.hit = true
	r.seen = item{}
	return Result{Code: Found, CAS: uint64(w.cas)}
}

// update changes an item in place.
func (w *world) update(r *request, at *item, id int8) Result {
	if r.kind == cas {
		if r.hit = at.cas == r.token.cas; !r.hit {
			return Result{Code: Refused}
		}
		return w.makeItem(r, at, id)
	}
	r.seen, r.hit = *at, true
	if r.kind == touch {
		return Result{Code: Found, CAS: uint64(at.cas)}
	}
	w.cas++
	at.cas = w.cas
	at.added |= 1 << id
	return Result{Code: Found, CAS: uint64(w.cas)}
}

// move carries out a step of a mover.
func (w *world) move(m *mover, s Step) Result {
	at := &w.at[s.Place]
	switch s.Action {
	case Lease:
		if at.kind != nothing {
			return Result{Code: Refused}
		}
		w.cas++
		*at = item{kind: lease, cas: w.cas}
		return Result{Code: Leased, CAS: uint64(w.cas)}
	case Look:
		return looked(at)
	case Fetch:
		if at.kind != value {
			return Result{Code: Absent}
		}
		m.item = *at
		return Result{Code: Found, CAS: uint64(at.cas)}
	case Copy:
		// Without a lease this is an add.
		if s.CAS == 0 && at.kind != nothing || s.CAS != 0 && (at.kind == nothing || uint64(at.cas) != s.CAS) {
			return Result{Code: Changed}
		}
		w.cas++
		*at = m.item
		at.cas = w.cas
		return Result{Code: Found, CAS: uint64(w.cas)}
	}
	return eraseIf(at, s.CAS)
}

// routers returns how many routers differ: those in the same phase do the same.
func (w *world) routers() int {
	if w.phase[0] == w.phase[1] {
		return 1
	}
	return len(w.phase)
}

// normal makes one state of all that go on alike. normal renumbers the CAS values in the order in which they
// are found, because only their equality matters, and has the router that is ahead first.
func (w *world) normal() {
	w.phase[0], w.phase[1] = max(w.phase[0], w.phase[1]), min(w.phase[0], w.phase[1])
	var names [256]uint8
	var last uint8
	name := func(c uint8) uint8 {
		if c == 0 {
			return 0
		}
		if names[c] == 0 {
			last++
			names[c] = last
		}
		return names[c]
	}
	long := func(c *uint64) { *c = uint64(name(uint8(*c))) }
	for i := range w.at {
		w.at[i].cas = name(w.at[i].cas)
	}
	each := func(r *request) {
		if r.status != running { // its items are known by the writes that have made and changed them
			r.token.cas, r.seen.cas = 0, 0
			return
		}
		long(&r.op.lease)
		long(&r.op.made)
		long(&r.op.seen)
		long(&r.op.other)
		long(&r.step.CAS)
		r.token.cas = name(r.token.cas)
		r.seen.cas = 0
	}
	for i := range w.writes {
		each(&w.writes[i])
	}
	each(&w.reader)
	for i := range w.movers {
		m := &w.movers[i]
		long(&m.m.lease)
		long(&m.m.item)
		long(&m.step.CAS)
		m.item.cas = 0
	}
	w.cas = last
}
