package model

import (
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Moves in the model: the clients' list with the record of rings, people who change spec.routing, and the
// operator's steps about them. Package ring makes the records and their serials.

// clients are those that the spec can name. The keys of the first one stay when members leave, the
// second one shuffles them. The empty one stands for an unknown ring.
var clients = [...]string{"", "libmemcached-ketama", "gomemcache"}

const (
	consistent = 1
	shuffling  = 2
)

// list is the clients' list: a ConfigMap, with the record of the rings.
type list struct {
	exists bool
	// size is how many servers the list names.
	size int8
	// last is the last ring, before the number of members of the ring before it.
	last target
	from int8
}

// target is a ring with its serial. A drain's target has none.
type target struct{ serial, client, size, lost int8 }

func (t target) moves() bool { return t.serial > 0 }

func (t target) ring() ring.Ring {
	r := ring.Ring{Client: clients[t.client], Size: int32(t.size)}
	if t.client != 0 {
		r.Port = 11211
	}
	return r
}

// record returns the record for package ring. From only has a size, because its other fields don't
// matter.
func (l *list) record() ring.Record {
	return ring.Record{Serial: int64(l.last.serial), Ring: l.last.ring(), From: ring.Ring{Size: int32(l.from)}}
}

func listOf(r ring.Record, listed int8) list {
	return list{
		exists: true, size: listed, from: int8(r.From.Size),
		last: target{serial: int8(r.Serial), client: int8(slices.Index(clients[:], r.Ring.Client)), size: int8(r.Ring.Size)},
	}
}

// words translates the list for the plan; nil if there is none.
func (l *list) words() *plan.List {
	if !l.exists {
		return nil
	}
	r := l.record()
	return &plan.List{Servers: int32(l.size), Recorded: true, Record: &r}
}

// nameOf returns the name of a ring, and remembers the ring by it.
func (m *model) nameOf(t target) string {
	name, ok := m.names[t]
	if !ok {
		ring := t
		ring.lost = 0
		name = plan.TargetWithout((&list{last: ring}).record().Target(), t.without())
		m.names[t], m.targets[name] = name, t
		if t.lost == 0 {
			for t.lost = 1; t.lost < 1<<ordinals; t.lost++ {
				m.nameOf(t)
			}
		}
	}
	return name
}

// without returns the lost members.
func (t target) without() (lost []int32) {
	for i := range int32(ordinals) {
		if t.lost&(1<<i) != 0 {
			lost = append(lost, i)
		}
	}
	return lost
}

// readList reads the rings in the list and in status.
func (m *model) readList(o *plan.Observed, l *list, inStatus int8) {
	o.ReadList(l.words(), int32(inStatus))
	last := listOf(o.Record, 0).last
	m.nameOf(last)
}

// liveWords is the state that is read live before a step that can't be undone. The Memcached is as
// the plan saw it.
func (m *model) liveWords(s *state) *plan.Observed {
	o, seen := m.words(&s.live), s.sight()
	seen.ending = false
	o.Cluster = m.cluster(&seen)
	if m.options.Moving && s.live.list.exists {
		m.readList(o, &s.live.list, s.seen.cluster.servers)
	}
	v := sight{seen: s.live}
	for i := range int8(ordinals) {
		for slot := range v.seen.jobs[i] {
			if j := &v.seen.jobs[i][slot]; j.state == complete || j.state == gaveUp {
				m.tell(o, &v, i, j)
			}
		}
	}
	return o
}

// firstList sets the list of a cluster at rest.
func (m *model) firstList(s *state) {
	s.forgotten = !m.options.Moving || m.options.New
	if !m.options.Moving {
		return
	}
	client := max(consistent, m.options.Client)
	s.live.cluster.client = client
	if m.options.New {
		return
	}
	n := m.options.Size
	s.live.cluster.servers = n
	s.live.list = list{exists: true, size: n, last: target{serial: 1, client: client, size: n}}
	if n > 0 {
		s.itemOf(owners[client][n]).item = newest
	}
}

// members tells whether the step is one of those that members need (apply's bringsMembers).
func (s step) members() bool {
	return s.verb == markLeaving || s.verb == writeList || s.verb == applyMembers
}

// beforeList tells whether the list is not written if the step is refused.
func (s step) beforeList() bool {
	return s.verb == addOwnerFinalizer || s.verb == markLeaving || s.verb == writeList
}

// ofClaim tells whether the step is about one claim only.
func (s step) ofClaim() bool {
	switch s.verb {
	case addOwnerFinalizer, removeOwnerFinalizer, applyMembers, deleteMembers, writeList, noteServers, markLeaving:
		return false
	}
	return true
}

// skipMembers drops the steps that members need.
func (s *state) skipMembers() { s.without(step.members) }

// without drops these steps.
func (s *state) without(which func(step) bool) {
	all := s.todo
	s.todo = steps{was: all.was, list: all.list}
	for _, a := range all.todo[:all.n] {
		if !which(a) {
			s.todo.add(a)
		}
	}
	s.forgetList()
}

// onlyStatus drops all steps but the status.
func (s *state) onlyStatus() {
	for s.todo.n > 0 && s.todo.todo[0].verb != noteServers {
		s.next()
	}
}

// writeList writes the list as apply does.
func (m *model) writeList(s *state, a step) outcome {
	was, to, live := &s.todo.was, s.todo.list, &s.live.list
	switch {
	case !was.exists && live.exists:
		return nothing // the cache is stale
	case !s.live.cluster.owns(), s.ending && !live.exists:
		return refused
	case *live == to:
		return nothing
	case was.exists && plan.MayWriteList(m.liveWords(s), action.WriteList{
		ListSize: int32(a.argument), Record: to.record(), From: was.record(), Replicas: int32(a.generation),
	}) != nil:
		return refused
	}
	if live.exists && live.last.client != to.last.client && (len(s.dueMoves()) > 0 || s.moversOf(true) > 0) {
		s.mixed = true
	}
	*live = to
	return done
}

// noteServers writes the servers to the status, under an optimistic lock.
func (s *state) noteServers(a step) outcome {
	c := &s.live.cluster
	switch {
	case !c.exists || c.servers == a.argument:
		return nothing
	case *c != s.seen.cluster:
		return refused
	}
	c.servers = a.argument
	return done
}

// bySkip is the argument of a record without a receipt, isPrepared of a move that waits.
const bySkip, isPrepared = 1, 1

func (m *model) move(s *state, a step) outcome {
	ref := action.ClaimRef{Name: "claim", UID: claimUIDs[a.ordinal][a.generation], Ordinal: int32(a.ordinal)}
	create := action.CreateMove{
		Claim: ref, Target: m.nameOf(a.target), Members: int32(a.target.size), Lost: a.target.without(), Prepared: a.argument == isPrepared,
	}
	live := m.liveWords(s)
	live.ClaimsWithDrainerPod = nil // not read live, because pods that have ended do no harm
	if plan.MayMove(live, create) != nil || s.ending {
		return refused
	}
	for _, j := range s.live.jobs[a.ordinal] {
		if j.state != noJob && j.generation == a.generation && j.target == a.target {
			return refused // by the Job's name
		}
	}
	*free(s.live.jobs[a.ordinal][:]) = job{
		state: active, generation: a.generation, target: a.target, instance: s.nextInstance(a.ordinal), waits: create.Prepared,
	}
	return done
}

// begin tells the prepared drainers in the cache to begin. A drainer that is gone has moved
// nothing.
func (m *model) begin(s *state, a step) outcome {
	ref := action.ClaimRef{Name: "claim", UID: claimUIDs[a.ordinal][a.generation], Ordinal: int32(a.ordinal)}
	if plan.MayBegin(m.liveWords(s), action.BeginMove{Claim: ref, Target: m.nameOf(a.target)}) != nil {
		return refused
	}
	result := nothing
	for _, d := range s.seen.pods.drainers[a.ordinal] {
		live := s.live.pods.drainerOf(a.ordinal, d.instance)
		if !d.waits || d.state >= succeeded || d.generation != a.generation || d.target != a.target || live == nil || s.live.instanceOf(a.ordinal, d.instance) == nil {
			continue
		}
		live.waits, result = false, done
	}
	return result
}

// noteMoved writes the result of the member's move on its claim.
func (c *claim) noteMoved(a step, live *list) outcome {
	switch {
	case a.verb == clearMoving && c.moving == retry:
		c.moving, c.counted = noRequest, 0
	case a.verb == clearMoving:
	case a.argument == bySkip && (c.moving != skip || live.last.serial < a.target.serial):
		return refused
	default:
		c.moved, c.moving, c.counted = a.target.serial, noRequest, 0
	}
	return done
}

// moveReceipt is the receipt of a move's drainer, whether it succeeded or
// failed.
func (m *model) moveReceipt(d *drainer, i int8) *contract.Receipt {
	key := *d
	key.instance = i // of what its receipt tells nothing
	r := m.moved[key]
	if r == nil {
		r = &contract.Receipt{
			Version: 1, Source: ring.Source(claimUIDs[i][d.generation], m.nameOf(d.target)),
			Complete: true, Found: 10, Outcomes: contract.Outcomes{Added: 10},
		}
		switch {
		case d.state == failed:
			r.Complete, r.Reason, r.ExitCode = false, "StillStored", contract.ExitFailed
		case d.said == shortReceipt:
			r.Found++
		}
		m.moved[key] = r
	}
	return r
}

// deaths adds that a member's node dies or returns; no promise may depend on its return.
func (s *state) deaths(x *expansion) {
	for i := range int8(ordinals) {
		if v := s.itemOf(i); v != nil && s.budget.deaths > 0 {
			x.as(mishap).add(event{what: nodeDies, a: i}, func(n *state) {
				n.budget.faults++ // the node's death causes it
				n.budget.deaths--
				n.dead[i] = v.name
				n.live.pods.members[i] = pod{}
			})
		}
		if s.dead[i] != 0 {
			x.as(hope).add(event{what: nodeReturns, a: i}, func(n *state) { n.dead[i] = 0 })
		}
	}
}

// onDeadNode tells whether no pod can mount the claim's volume.
func (s *state) onDeadNode(i, generation int8) bool {
	c := s.live.claimOf(i, generation)
	return c != nil && c.volume != 0 && c.volume == s.dead[i]
}

// keptLost returns which lost members could have left, because their items need not be moved.
func (s *state) keptLost() []string {
	var wrong []string
	for i := range s.live.claims {
		for slot := range s.live.claims[i] {
			if s.live.claims[i][slot].leaving {
				return nil // an earlier member's volume comes first
			}
		}
	}
	for i := range int8(ordinals) {
		c := &s.live.claims[i][0]
		if s.dead[i] == 0 || c.volume != s.dead[i] || c.leaving {
			continue
		}
		if size := s.live.cluster.size; 0 < size && size <= i && (i >= s.live.list.from || size == s.live.list.last.size-1) {
			wrong = append(wrong, fmt.Sprintf("member %d is lost, %d members are wanted, and it can't leave", i, size))
		}
	}
	return wrong
}

// routingDeeds adds the changes that people may make to where clients look.
func (s *state) routingDeeds(x *expansion) {
	other := consistent + shuffling - s.live.cluster.client
	x.add(event{what: reroute, a: other}, func(n *state) {
		n.live.cluster.client = other
		n.mixed = n.mixed || !n.live.list.exists
	})
	if s.live.cluster.off {
		x.add(event{what: moveOn}, func(n *state) { n.live.cluster.off = false })
	} else {
		x.add(event{what: moveOff}, func(n *state) {
			n.live.cluster.off = true
			n.forget()
		})
	}
	for i := range int8(ordinals) {
		c := &s.live.claims[i][0]
		for r := range hold {
			if c.exists && r != c.moving {
				x.add(event{what: moving + happening(r), a: i}, func(n *state) {
					n.live.claims[i][0].moving = r
					if r == skip {
						n.forget()
					}
				})
			}
		}
	}
	if s.live.list.exists && x.model.options.Lags == 0 {
		x.add(event{what: deleteList}, func(n *state) {
			n.mixed = n.mixed || n.live.list.last.client != n.live.cluster.client
			n.live.list = list{}
		})
	}
}

// dueMoves returns the members whose items have to be moved, by live state.
func (s *state) dueMoves() (ordinals []int8) {
	l := &s.live.list
	for i := range min(l.from, l.last.size) {
		c := &s.live.claims[i][0]
		if c.exists && !c.deleting && !c.leaving && c.moved < l.last.serial && !s.live.cluster.off {
			ordinals = append(ordinals, i)
		}
	}
	return ordinals
}

// misplacing returns the errors in a step while items have to be moved.
func (m *model) misplacing(before, after *state) []string {
	wrong := m.unkept(before, after)
	if !m.options.Moving {
		return wrong
	}
	wrong = append(wrong, after.movers()...)
	wrong = append(wrong, before.begunTooEarly(after)...)
	was, is, ring := before.live.members.replicas, after.live.members.replicas, before.live.list.last.size
	if after.live.members.exists && before.live.members.exists && was != is && is > 0 && len(before.dueMoves()) > 0 &&
		(is < ring || is > max(was, ring)) {
		wrong = append(wrong, fmt.Sprintf("%d members become %d, and items have to be moved among %d", was, is, ring))
	}
	for i := range int8(ordinals) {
		for slot := range after.live.claims[i] {
			c := &after.live.claims[i][slot]
			old := before.live.claimOf(i, c.generation)
			if !c.exists || old == nil || c.moved == old.moved || old.moving == skip {
				continue
			}
			if said := before.past[i].said; said.generation != c.generation || said.target.serial != c.moved {
				wrong = append(wrong, fmt.Sprintf("member %d counts as moved by a ring by which no drainer has moved it", i))
			}
		}
	}
	return append(wrong, before.itemLost(after)...)
}

// unkept returns which volumes are gone that had to be kept, if people only scale.
func (m *model) unkept(before, after *state) []string {
	var wrong []string
	for i := range int8(ordinals) {
		for _, v := range before.volumes[i] {
			if m.options.Cluster.Policy == pvc.Retain && m.options.OnlyScale && v.name != 0 && after.volumeNamed(i, v.name) == nil {
				wrong = append(wrong, fmt.Sprintf("a volume of member %d is gone that was to be kept", i))
			}
		}
	}
	return wrong
}

// begunTooEarly returns which prepared movers begin although clients use another ring: the items
// that they move would be missed, or copied after the original has changed.
func (s *state) begunTooEarly(after *state) []string {
	var wrong []string
	for i := range int8(ordinals) {
		for _, d := range after.live.pods.drainers[i] {
			was := s.live.pods.drainerOf(i, d.instance)
			if d.state != noPod && was != nil && was.waits && !d.waits && (d.target != after.live.list.last || after.live.list.size != d.target.size) {
				wrong = append(wrong, fmt.Sprintf("the mover of member %d begins, and clients are told of another ring", i))
			}
		}
	}
	return wrong
}

// movers returns the errors of the drainers that move items now.
func (s *state) movers() []string {
	var wrong []string
	for i := range s.live.pods.drainers {
		if s.live.pods.moversOf(i, true) > 1 {
			wrong = append(wrong, fmt.Sprintf("two drainers move the items of member %d", i))
		}
	}
	if s.moversOf(false) > 0 && s.moversOf(true) > 0 {
		wrong = append(wrong, "items are moved beside a drain")
	}
	return wrong
}

// moversOf counts the pods at work that move, or that drain.
func (s *state) moversOf(moves bool) int {
	n := 0
	for i := range s.live.pods.drainers {
		n += s.live.pods.moversOf(i, moves)
	}
	return n
}

func (p *pods) moversOf(i int, moves bool) int {
	n := 0
	for _, d := range p.drainers[i] {
		if d.state == running && d.target.moves() == moves && !d.waits {
			n++
		}
	}
	return n
}

func moveFailed(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Moves, func(s plan.MoveState) bool { return s.Phase == plan.MoveFailed })
}

// unmoved returns the members whose items should have been moved in a state at rest, if no move has failed
// and members run.
func (s *state) unmoved(p *plan.Plan) []string {
	if !s.live.list.exists || s.live.members.replicas == 0 || moveFailed(p) {
		return nil
	}
	var wrong []string
	for _, i := range s.dueMoves() {
		wrong = append(wrong, fmt.Sprintf("the items of member %d have to be moved", i))
	}
	if l := &s.live.list; l.size != s.live.members.replicas || l.last.size != l.size || l.last.client != s.live.cluster.client {
		wrong = append(wrong, fmt.Sprintf("%d servers are on the list, there are %d members", l.size, s.live.members.replicas))
	}
	return append(wrong, s.itemAstray()...)
}
