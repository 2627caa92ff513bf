package ringchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// scenario has the events that may happen.
type scenario struct {
	// kinds are the first and second request of the first writer, and the second writer's.
	kinds   [writes]kind // a read is none
	initial bool
	movers  int
	runs    uint8
	// The maximum numbers of evictions, losses of a member, expiries of a lease, deaths of a router or mover,
	// and refusals of a new owner that has no memory.
	evictions, losses, expiries, deaths, refusals uint8
	without                                       Rules
	// hasty means that the next state begins while requests of an earlier one are unanswered. deaf means that
	// a router answers as if its lease had not expired.
	hasty, deaf bool
}

// explorer explores all orders of events.
type explorer struct {
	s scenario
	// visit is called with each successor of a state. Labels are made only if talk is set.
	visit func(label string, next *world, wrong string)
	talk  bool
	bytes []byte
	// parents has the predecessors of the visited states, by hash.
	parents map[uint64]uint64
}

func (s *scenario) start() world {
	w := world{initial: s.initial}
	if s.initial {
		w.cas = 1
		w.at[Old] = item{kind: value, cas: 1}
	}
	return w
}

// explore returns the shortest history to each kind of wrong answer, and the number of states. explore ends
// at the first wrong answer if stop is set, and at limit states.
func explore(s scenario, limit int, stop bool) (wrong map[string][]string, states int) {
	e := &explorer{s: s, parents: map[uint64]uint64{}}
	wrong = map[string][]string{}
	first := s.start()
	e.parents[e.hash(&first)] = 0
	for frontier := []world{first}; len(frontier) > 0 && len(e.parents) < limit && (!stop || len(wrong) == 0); {
		var next []world
		var from uint64
		e.visit = func(_ string, w *world, what string) {
			if what != "" && wrong[what] == nil {
				wrong[what] = []string{}
				defer func(visit func(string, *world, string)) {
					wrong[what] = e.history(first, from, what)
					e.visit = visit
				}(e.visit)
			}
			to := e.hash(w)
			if _, seen := e.parents[to]; !seen {
				e.parents[to] = from
				next = append(next, *w)
			}
		}
		for i := range frontier {
			from = e.hash(&frontier[i])
			e.successors(&frontier[i])
		}
		frontier = next
	}
	return wrong, len(e.parents)
}

// history finds the way to a state again, and the errors after it.
func (e *explorer) history(from world, to uint64, what string) (labels []string) {
	var way []uint64
	for h := to; h != 0; h = e.parents[h] {
		way = append(way, h)
	}
	slices.Reverse(way)
	e.talk = true
	defer func() { e.talk = false }()
	for _, h := range append(way[1:], 0) {
		var label string
		var next world
		e.visit = func(l string, w *world, wrong string) {
			if label == "" && (h != 0 && e.hash(w) == h || h == 0 && wrong == what) {
				label, next = l, *w
			}
		}
		e.successors(&from)
		labels, from = append(labels, label), next
	}
	return labels
}

func (e *explorer) hash(w *world) uint64 {
	b := e.bytes[:0]
	put := func(values ...uint8) { b = append(b, values...) }
	flag := func(values ...bool) {
		for _, v := range values {
			if v {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	putItem := func(i *item) { put(i.kind, i.cas, uint8(i.base), i.added) }
	putStep := func(s *Step) { put(uint8(s.Action), uint8(s.Place), uint8(s.CAS)) }
	putRequest := func(r *request) {
		put(uint8(r.kind), uint8(r.status), r.phase, r.before)
		put(uint8(r.op.at), uint8(r.op.lease), uint8(r.op.made), uint8(r.op.seen), uint8(r.op.other), r.met)
		flag(r.op.found, r.op.waited, r.op.refused, r.op.full, r.op.has(LeaseDelete), r.late, r.hit)
		putStep(&r.step)
		putItem(&r.seen)
		putItem(&r.token)
	}
	for i := range w.at {
		putItem(&w.at[i])
	}
	put(w.phase[0], w.phase[1], w.runs, w.evicted, w.expired, w.died, w.refused)
	flag(w.crossed, w.missing)
	for i := range w.writes {
		putRequest(&w.writes[i])
	}
	putRequest(&w.reader)
	for i := range w.movers {
		m := &w.movers[i]
		flag(m.busy)
		put(uint8(m.m.at), uint8(m.m.lease), uint8(m.m.item), uint8(m.m.copies))
		putStep(&m.step)
		putItem(&m.item)
	}
	e.bytes = b
	return xxhash.Sum64(b)
}

// add visits a successor.
func (e *explorer) add(label string, next *world, wrong string) {
	next.normal()
	if wrong == "" && next.at[New].kind == lease && next.quiet() && next.died+next.expired == 0 {
		wrong = "a lease is left behind"
	}
	if a, b := &next.at[Old], &next.at[New]; wrong == "" && a.kind == value && b.kind == value && a.base != b.base && next.quiet() && next.died == 0 {
		wrong = "two values are left behind"
	}
	e.visit(label, next, wrong)
}

func (w *world) quiet() bool {
	for i := range w.writes {
		if w.writes[i].status == running {
			return false
		}
	}
	return w.reader.status != running && !w.movers[0].busy && !w.movers[1].busy
}

func (e *explorer) successors(w *world) {
	e.routers(w)
	for i := range writers {
		e.writer(w, i)
	}
	e.reader(w)
	for i := range e.s.movers {
		e.mover(w, i)
	}
	e.accidents(w)
}

// say makes a label, if labels are wanted.
func (e *explorer) say(format string, args ...any) string {
	if !e.talk {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// oldest returns the earliest phase of an unanswered request.
func (w *world) oldest() uint8 {
	phase := uint8(phaseNew)
	for i := range w.writes {
		if r := &w.writes[i]; r.status == running {
			phase = min(phase, r.phase)
		}
	}
	if w.reader.status == running {
		phase = min(phase, w.reader.phase)
	}
	return phase
}

// routers lets routers enter the next phase, when all are in the previous one and have answered the requests
// that began earlier.
func (e *explorer) routers(w *world) {
	for i := range w.routers() {
		to := w.phase[i] + 1
		if other := w.phase[1-i]; to > phaseNew || other+1 < to || other > to || w.oldest()+1 < to && !e.s.hasty {
			continue
		}
		if to == phaseFinish && (w.at[Old].kind != nothing || w.movers[0].busy || w.movers[1].busy) {
			continue
		}
		if to == phaseNew && w.at[New].kind == lease {
			continue
		}
		next := *w
		next.phase[i] = to
		e.add(e.say("router %d goes on to phase %d", i, to), &next, "")
	}
}

// begin begins a request by router i.
func (e *explorer) begin(w *world, r *request, k kind, i int) {
	phase := w.phase[i]
	state := State(phase)
	if phase == phaseNew {
		state = Stable
	}
	*r = request{kind: k, status: running, phase: phase, before: w.answered(), token: r.token}
	r.op = NewOp(classOf[k], state, e.s.without)
	r.op.Repeatable = k == touch
	r.step = r.op.Start()
	for j := range w.writes {
		if x := &w.writes[j]; x != r && x.status == running {
			r.met |= 1 << x.phase
			if r.writes() {
				x.met |= 1 << phase
				w.crossed = w.crossed || x.phase != phase
			}
		}
	}
	if r.writes() && w.reader.status == running {
		w.reader.met |= 1 << phase
	}
}

func (e *explorer) writer(w *world, i int) {
	for j := i * perWriter; j < (i+1)*perWriter; j++ {
		switch r := &w.writes[j]; {
		case e.s.kinds[j] == read:
			return
		case r.status == running:
			e.continueRequest(w, func(w *world) *request { return &w.writes[j] }, int8(j+1))
			return
		case r.status != idle:
			continue
		}
		for router := range w.routers() {
			tokens := []item{{}}
			if e.s.kinds[j] == cas {
				tokens = nil
				for _, at := range w.at {
					if at.kind == value {
						tokens = append(tokens, at)
					}
				}
			}
			for _, token := range tokens {
				next := *w
				next.writes[j].token = token
				e.begin(&next, &next.writes[j], e.s.kinds[j], router)
				e.add(e.say("%s %d begins at router %d", kindNames[e.s.kinds[j]], j+1, router), &next, "")
			}
		}
		return
	}
}

func (e *explorer) reader(w *world) {
	if w.reader.status == running {
		e.continueRequest(w, func(w *world) *request { return &w.reader }, 0)
		return
	}
	for router := range w.routers() {
		next := *w
		e.begin(&next, &next.reader, read, router)
		e.add(e.say("read begins at router %d", router), &next, "")
	}
}

// full tells whether an owner has no memory for the step, and refuses it. An old owner never needs more memory than it
// has had.
func (e *explorer) full(w *world, s Step, k kind) bool {
	return s.Place == New && s.makes(k) && w.refused < e.s.refusals
}

var outOfMemory = Result{Code: Failed, Said: true}

// refuse refuses a step. A lease that is refused deletes nothing. Any other step is a meta set: memcached
// then deletes the present item, perhaps a value that another request has just stored.
func (w *world) refuse(s Step) {
	w.refused++
	if s.Action != Lease {
		w.at[s.Place], w.missing = item{}, true
	}
}

// continueRequest carries out the step of a request.
func (e *explorer) continueRequest(w *world, of func(*world) *request, id int8) {
	if r := of(w); e.full(w, r.step, r.kind) {
		next := *w
		next.refuse(r.step)
		e.proceed(next, of, id, &outOfMemory)
	}
	e.proceed(*w, of, id, nil)
}

// proceed carries out the step, or has it refused.
func (e *explorer) proceed(next world, of func(*world) *request, id int8, refused *Result) {
	r := of(&next)
	name := e.say("%s %d: %s at %s", kindNames[r.kind], id, actionNames[r.step.Action], [...]string{"old", "new"}[r.step.Place])
	var result Result
	switch {
	case refused != nil:
		result, name = *refused, name+", which has no memory"
	case r.step.Action != Wait:
		result = next.command(r, id, r.step)
	case next.alone(r):
		result.Code = Found
	}
	r.late = r.late && !e.s.deaf
	if r.step = r.op.Next(result); r.step.Action != Done {
		e.add(name, &next, "")
		return
	}
	r.finish()
	wrong := ""
	if r.status != unknown {
		wrong = next.wrong(r, id)
	}
	label := e.say("%s: %s, %+v", name, [...]string{applied: "done", not: "not done", unknown: "unknown"}[r.status], r.seen)
	if r.kind == read {
		*r = request{}
	} else {
		r.over()
	}
	e.add(label, &next, wrong)
}

// over keeps, of a write that has ended, the values with which later answers are compared.
func (r *request) over() {
	r.op, r.step, r.late, r.hit, r.phase, r.met = Op{}, Step{}, false, false, 0, 0
}

// alone tells whether no other request is unanswered.
func (w *world) alone(r *request) bool {
	for i := range w.writes {
		if x := &w.writes[i]; x != r && x.status == running {
			return false
		}
	}
	return true
}

// finish answers the client.
func (r *request) finish() {
	switch o := r.op.Outcome(); {
	case o == Unknown || r.late:
		r.status = unknown
	case o == Answered && r.hit, r.kind == del:
		r.status = applied
	default:
		r.status = not
		if o == Missed {
			r.hit = false
		}
	}
}

func (e *explorer) mover(w *world, i int) {
	next := *w
	m := &next.movers[i]
	if !m.busy {
		if w.runs == e.s.runs || max(w.phase[0], w.phase[1]) != phaseMove {
			return
		}
		next.runs++
		*m = mover{busy: true, m: NewMover(e.s.without)}
		m.step = m.m.Start()
		e.add(e.say("mover %d begins", i), &next, "")
		return
	}
	name := e.say("mover %d: %s at %s", i, actionNames[m.step.Action], [...]string{"old", "new"}[m.step.Place])
	if e.full(w, m.step, read) {
		refused := *w
		refused.refuse(m.step)
		m := &refused.movers[i]
		if m.step = m.m.Next(outOfMemory); m.step.Action == Done {
			*m = mover{}
		}
		e.add(e.say("%s, which has no memory", name), &refused, "")
	}
	if m.step = m.m.Next(next.move(m, m.step)); m.step.Action == Done {
		*m = mover{}
	}
	e.add(name, &next, "")
}

var actionNames = [...]string{"done", "wait", "ask", "ask without making", "make", "guarded", "look", "lease", "fill", "erase", "erase if", "fetch", "copy"}

// accidents adds the events that no client asks for.
func (e *explorer) accidents(w *world) {
	for p := range w.at {
		switch w.at[p].kind {
		case value:
			if w.evicted < e.s.evictions && !w.fresh(&w.at[p]) {
				next := *w
				next.evicted++
				next.at[p], next.missing = item{}, true
				e.add(e.say("eviction at place %d", p), &next, "")
			}
		case lease:
			e.expire(w, p)
		}
		if w.evicted < e.s.losses && w.at[p].kind != nothing {
			next := *w
			next.evicted++
			for i := range next.writes { // their routers have lost a connection
				next.writes[i].late = next.writes[i].status == running
			}
			next.at[p], next.missing = item{}, true
			e.add(e.say("the member at place %d starts anew", p), &next, "")
		}
	}
	if w.died == e.s.deaths {
		return
	}
	for i := range w.writes {
		if w.writes[i].status == running {
			next := *w
			next.died++
			r := &next.writes[i]
			r.status = unknown
			r.over()
			e.add(e.say("the router of write %d dies", i+1), &next, "")
		}
	}
	for i := range w.movers {
		if w.movers[i].busy {
			next := *w
			next.died++
			next.movers[i] = mover{}
			e.add(e.say("mover %d dies", i), &next, "")
		}
	}
}

// fresh tells whether the request that has stored or changed the value still waits for another owner.
// memcached evicts the least recently used items.
func (w *world) fresh(at *item) bool {
	for i := range w.writes {
		if w.writes[i].status == running && (at.base == int8(i+1) || at.added&(1<<(i+1)) != 0) {
			return true
		}
	}
	return false
}

// expire expires a lease. A dead holder's may expire at any time. A living holder notices it, because it
// knows how long it has had the lease.
func (e *explorer) expire(w *world, p int) {
	next := *w
	alive := next.loseLease(next.at[p].cas)
	if alive {
		if w.expired == e.s.expiries {
			return
		}
		next.expired++
	} else if w.died == 0 && w.expired == 0 {
		return
	}
	next.at[p] = item{}
	e.add(e.say("the lease at place %d expires", p), &next, "")
}

// loseLease marks the holder of a lease, and tells whether it is alive.
func (w *world) loseLease(cas uint8) (alive bool) {
	for i := range w.writes {
		if r := &w.writes[i]; r.status == running && r.op.lease == uint64(cas) {
			r.late, alive = true, true
		}
	}
	for i := range w.movers {
		if m := &w.movers[i]; m.busy && m.m.lease == uint64(cas) {
			alive = true
		}
	}
	return alive
}

func (s scenario) String() string {
	var kinds []string
	for _, k := range s.kinds {
		kinds = append(kinds, kindNames[k])
	}
	return fmt.Sprintf("%s initial=%v movers=%d runs=%d", strings.Join(kinds, ","), s.initial, s.movers, s.runs)
}
