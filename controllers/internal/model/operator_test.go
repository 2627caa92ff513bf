package model

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// verb is the kind of an action of the plan.
type verb uint8

const (
	addOwnerFinalizer verb = iota + 1
	removeOwnerFinalizer
	applyMembers
	deleteMembers
	addClaimFinalizer
	markLeaving
	createDrain
	recordReceipt
	clearRetry
	deleteJob
	deleteClaim
	setAside
	reserveVolume
	createAside
	returnVolume
	releaseClaim
	writeList
	createMove
	recordMoved
	clearMoving
	noteServers
	countFailure
	skipAside
	carryOver
	noteRestored
	beginMove
	verbs
)

var reasons = [...]action.Release{
	action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain,
	action.ByOwnerDeletion, action.ByNamespace, action.NeverBound, action.BySetAside,
}

func reasonIndex(why action.Release) int8 {
	for i, r := range reasons {
		if r == why {
			return int8(i)
		}
	}
	panic(fmt.Sprintf("the model does not know the reason %q", why))
}

func (v verb) String() string {
	return [...]string{
		"", "add the finalizer", "remove the finalizer", "apply members", "delete the StatefulSet", "add the finalizer to claim", "mark claim",
		"drain claim", "record the receipt of claim", "clear the retry of claim", "delete the Job of claim", "delete claim",
		"set aside claim", "reserve the volume of claim", "create a claim beside claim", "return the volume of claim", "release claim",
		"write the clients' list", "move the items of the member of claim", "record as moved the member of claim",
		"clear the move's retry of claim", "write the status", "count the failure of claim", "annotate with skip claim", "carry the marks over to claim", "note as restored claim",
		"begin to move the items of the member of claim",
	}[v]
}

// outcome is the outcome of an action.
type outcome uint8

const (
	nothing outcome = iota // to do
	done
	refused
	outcomes
)

// clusterName is the name of the Memcached.
const clusterName = "cache"

// Names and UIDs of the objects that the model numbers.
var (
	// claimNames has the claims' names, by the generation of the claim whose volume a claim takes
	// over.
	claimNames [ordinals][many]string
	claimUIDs  [ordinals][many]types.UID
	jobUIDs    [ordinals][many]types.UID
	receipts   [ordinals][many][shortReceipt + 1]*contract.Receipt
	// known has the receipts as the plan knows them, unreadable those of drainers that can't read the volume.
	known      [ordinals][many][shortReceipt + 1]*action.Receipt
	unreadable [ordinals][many]*contract.Receipt
)

func init() {
	for i := range ordinals {
		for n := range many {
			uid := fmt.Sprintf("claim-%d.%d", i, n)
			claimUIDs[i][n], jobUIDs[i][n] = types.UID(uid), types.UID(fmt.Sprintf("job-%d.%d", i, n))
			if claimNames[i][n] = build.ClaimName(clusterName, int32(i)); n > 0 {
				claimNames[i][n] = build.AsideName(clusterName, int32(i), claimUIDs[i][n])
			}
			good := contract.Receipt{Version: 1, Source: uid, Complete: true, Found: 10, Outcomes: contract.Outcomes{Added: 10}}
			short := good
			short.Found++
			receipts[i][n] = [...]*contract.Receipt{nil, &good, &short}
			known[i][n] = [...]*action.Receipt{nil, plan.ReceiptOf(&good), plan.ReceiptOf(&short)}
			unreadable[i][n] = &contract.Receipt{Version: 1, Source: uid, Reason: "SourceCorrupt", Message: "torn", ExitCode: contract.ExitUnrecoverable}
		}
	}
}

// operator adds the operator's events: it plans from its caches and takes the first step, or takes
// the next step.
func (s *state) operator(x *expansion) {
	m := event{what: acts}
	todo := s.todo
	if todo.n == 0 {
		m.what = plans
		todo = x.model.steps(s)
	}
	n := *s
	n.todo = todo
	x.model.skipNothing(&n)
	if n.todo.n == 0 {
		return
	}
	m.a, m.b = int8(n.todo.todo[0].verb), n.todo.todo[0].ordinal
	x.add(m, func(to *state) {
		*to = n
		x.model.tried(&n, x.model.act(to), m.what == plans)
	})
}

// act takes the first step and drops it, as apply does. A refused step that members need stops only
// the steps of that kind, a refused step about a claim only the steps about this claim, and the
// status is always written. Status gets another number of servers only if no step before the list
// was refused.
func (m *model) act(s *state) outcome {
	first := s.todo.todo[0]
	result := m.do(s, first)
	s.after(first, result)
	return result
}

// after drops the first step, and the steps that depend on it if it was refused.
func (s *state) after(first step, result outcome) {
	switch {
	case result == refused && first.members():
		s.skipMembers()
	case result == refused && first.ofClaim():
		s.without(func(left step) bool {
			return (left.ofClaim() || left.verb == markLeaving) && left.ordinal == first.ordinal && left.generation == first.generation
		})
	case result == refused:
		s.onlyStatus()
	default:
		s.next()
	}
	if result == refused && first.beforeList() {
		s.without(func(left step) bool { return left.verb == noteServers })
	}
}

// next drops the first step.
func (s *state) next() {
	copy(s.todo.todo[:], s.todo.todo[1:s.todo.n])
	s.todo.n--
	s.todo.todo[s.todo.n] = step{}
	s.forgetList()
}

// forgetList drops the list if no step is left that writes it.
func (s *state) forgetList() {
	if !slices.ContainsFunc(s.todo.todo[:s.todo.n], func(left step) bool { return left.verb == writeList }) {
		s.todo.was, s.todo.list = list{}, list{}
	}
}

func (t *steps) add(s step) {
	t.todo[t.n] = s
	t.n++
}

// sight is all the state that a plan depends on.
type sight struct {
	seen   objects
	absent bool
	ending bool
	where  [ordinals][slots]pvc.Where
}

// steps returns the steps of the plan for the operator's sight. plan.Next is called once for all
// states that look the same to it. Only the steps are kept, because a plan takes kilobytes.
func (m *model) steps(s *state) steps {
	v := s.sight()
	if s.plansNothing(&v) {
		return steps{}
	}
	known, ok := m.plans[v]
	if !ok {
		known, _ = m.plan(&v)
		m.plans[v] = known
	}
	return known
}

// plansNothing tells whether the operator makes no plan, because the cluster is gone or the cache
// is stale.
func (s *state) plansNothing(v *sight) bool {
	return v.absent && (!v.seen.heldClaims() || s.live.cluster.exists) || s.lacksClaims(v)
}

// plan calls plan.Next.
func (m *model) plan(v *sight) (steps, plan.Plan) {
	o := m.observed(v)
	p := plan.Next(o)
	next := v.seen.list
	if m.options.Moving && !o.Cluster.Deleting && !o.Cluster.NamespaceTerminating {
		next = listOf(p.Record, int8(p.ListSize))
		m.nameOf(next.last)
		m.nameOf(listOf(p.Record.Next(o.Cluster.Ring.Of(p.Replicas)), 0).last) // for which movers are prepared
	}
	return m.stepsOf(v, &p, next), p
}

// sight returns what the operator reads to plan: its caches, and in some cases live objects.
func (s *state) sight() sight {
	v := sight{seen: s.seen, absent: !s.seen.cluster.exists}
	if !v.absent && !v.seen.members.exists {
		v.seen.members = s.live.members
	}
	if !v.absent && !v.seen.list.exists {
		v.seen.list = s.live.list
	}
	// The namespace is read live, and only if an object is being deleted that no receipt lets go.
	ends := v.absent || v.seen.cluster.deleting
	for i := range int8(ordinals) {
		for slot := range v.seen.claims[i] {
			c := &v.seen.claims[i][slot]
			ends = ends || c.exists && c.deleting && c.receipt == noReceipt
			v.where[i][slot] = s.observedWhere(i, c, &v.seen.cluster)
		}
	}
	v.ending = ends && s.ending
	for i := range int8(ordinals) {
		for slot := range v.seen.jobs[i] {
			// If the cache of pods lacks the pod of a Job that has ended, its receipt is
			// read live.
			j := &v.seen.jobs[i][slot]
			if (j.state == complete || j.state == gaveUp) && ended(&v.seen.pods, i, j) == nil {
				v.seen.pods.replace(i, j.instance, &s.live.pods)
			}
		}
	}
	return v
}

// lacksClaims tells whether the cache lacks a claim that must exist because of a running member or
// a Job. Then the operator makes no plan.
func (s *state) lacksClaims(v *sight) bool {
	signs, lacks := false, false
	for i := range int8(ordinals) {
		signs = signs || v.seen.pods.members[i].state == running && !v.seen.claims[i][0].exists
		for slot := range slots {
			j, c := &v.seen.jobs[i][slot], &s.live.claims[i][slot]
			signs = signs || j.state != noJob && v.seen.claimOf(i, j.generation) == nil
			lacks = lacks || c.exists && v.seen.claimOf(i, c.generation) == nil
		}
	}
	return signs && lacks && !v.absent && !v.seen.cluster.deleting
}

// observedWhere tells where the claim's volume is, if the operator reads it, as
// observeVolumes does.
func (s *state) observedWhere(i int8, c *claim, seen *cluster) pvc.Where {
	returns := c.leaving && c.of == 0 && i < seen.size
	if !c.exists || c.volume == 0 || !returns && (!c.finalizer || !c.deleting) {
		return pvc.NotLookedAt
	}
	return s.where(i, c)
}

// where tells where the claim's volume is.
func (s *state) where(i int8, c *claim) pvc.Where {
	switch v := s.volumeNamed(i, c.volume); {
	case v == nil:
		return pvc.Gone
	case v.of == c.of && v.bound == c.generation:
		return pvc.Here
	case v.of == c.of && v.bound == 0:
		return pvc.Promised
	case v.of == c.generation:
		return pvc.Reserved
	}
	return pvc.Elsewhere
}

func (o *objects) heldClaims() bool {
	for i := range o.claims {
		for slot := range o.claims[i] {
			if o.claims[i][slot].exists && o.claims[i][slot].finalizer {
				return true
			}
		}
	}
	return false
}

// ended returns the Job's drainer that has ended, or nil. A drainer that succeeded comes before all
// others.
func ended(p *pods, i int8, j *job) *drainer {
	var last *drainer
	for slot := range p.drainers[i] {
		d := &p.drainers[i][slot]
		if d.instance == j.instance && (d.state == succeeded || d.state == failed && last == nil) {
			last = d
		}
	}
	return last
}

// observed translates the operator's sight for the plan.
func (m *model) observed(v *sight) *plan.Observed {
	o := m.words(&v.seen)
	o.Cluster = m.cluster(v)
	if m.options.Moving {
		m.readList(o, &v.seen.list, v.seen.cluster.servers)
	}
	for i := range int8(ordinals) {
		for slot := range v.seen.claims[i] {
			if c := &v.seen.claims[i][slot]; c.exists {
				claimIn(o, claimUIDs[i][c.generation]).Where = v.where[i][slot]
			}
		}
		for slot := range v.seen.jobs[i] {
			m.tell(o, v, i, &v.seen.jobs[i][slot])
		}
	}
	pvc.NoteLost(o.Claims)
	return o
}

// cluster translates the Memcached of the sight for the plan. The spec of a Memcached that is gone
// is not known.
func (m *model) cluster(v *sight) plan.Cluster {
	c := plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Deleting: true}}
	if !v.absent {
		c = m.spec(&v.seen.cluster)
	}
	c.NamespaceTerminating = v.ending
	return c
}

// spec translates the spec of the Memcached for the plan.
func (m *model) spec(seen *cluster) plan.Cluster {
	c := m.options.Cluster
	if c.Patience > 0 {
		c.MoveDeadline = time.Hour + c.Patience // the hour is the default of spec.drain
	}
	c.Size, c.Deleting, c.Finalizer = int32(seen.size), seen.deleting, seen.finalizer
	c.Ring, c.MovesOff = target{client: seen.client}.ring(), seen.off || !m.options.Moving
	return c
}

func claimIn(o *plan.Observed, uid types.UID) *pvc.Claim {
	for i := range o.Claims {
		if o.Claims[i].UID == uid {
			return &o.Claims[i]
		}
	}
	panic(fmt.Sprintf("claim %s is not seen", uid))
}

// tell adds a Job with the reports of its pods, as PlanJob does.
func (m *model) tell(o *plan.Observed, v *sight, i int8, j *job) {
	if j.state == noJob {
		return
	}
	of := o.Jobs
	if j.target.moves() {
		of = o.Moves
	}
	out := &of[slices.IndexFunc(of, func(other pvc.Job) bool { return other.UID == jobUIDs[i][j.instance] })]
	if j.state != active && !j.due {
		out.Ended = justNow
	}
	own := v.seen.pods.drainerOf(i, j.instance)
	out.Unstarted = j.state == active && (own == nil || own.state == pending)
	switch {
	case j.state == active && own != nil && own.state == succeeded && own.said == goodReceipt:
		out.State, out.Receipt = pvc.JobComplete, m.told(m.receiptOf(own, i))
	case j.state != active:
		if out.Receipt = m.told(m.receiptOf(ended(&v.seen.pods, i, j), i)); out.Receipt == nil {
			out.ReceiptErr = errors.New("the drainer's pod is gone, and its receipt with it")
		}
	}
}

// told is the receipt as the plan knows it.
func (m *model) told(r *contract.Receipt) *action.Receipt {
	if r == nil {
		return nil
	}
	if _, ok := m.translated[r]; !ok {
		m.translated[r] = plan.ReceiptOf(r)
	}
	return m.translated[r]
}

// receiptOf is the receipt of the drainer that has ended.
func (m *model) receiptOf(d *drainer, i int8) *contract.Receipt {
	switch {
	case d == nil:
		return nil
	case d.target.moves():
		return m.moveReceipt(d, i)
	case d.state == failed:
		return unreadable[i][d.generation]
	}
	return receipts[i][d.generation][d.said]
}

// words translates the objects for the plan.
func (m *model) words(seen *objects) *plan.Observed {
	replicas := int32(seen.members.replicas)
	o := &plan.Observed{
		Facts: pvc.Facts{Now: justNow}, Cluster: m.spec(&seen.cluster), StatefulSet: plan.StatefulSet{Exists: seen.members.exists, Replicas: replicas},
		Ready: seen.pods.ready(), LastReady: seen.pods.lastReady(),
	}
	if !m.options.Moving {
		o.ListSize, o.Record.Ring.Size = replicas, replicas // the clients' list follows at once
	}
	if seen.members.exists {
		o.StatefulSet.UID = setUID
	}
	for i := range int8(ordinals) {
		if seen.pods.members[i].state != noPod {
			o.Pods = append(o.Pods, int32(i))
		}
		for slot := range int8(slots) {
			if d := &seen.pods.drainers[i][slot]; d.state != noPod {
				o.ClaimsWithDrainerPod = append(o.ClaimsWithDrainerPod, claimUIDs[i][d.generation])
				if d.state < succeeded {
					o.Drainers = append(o.Drainers, m.drainer(i, d))
				}
				if !d.target.moves() && (d.state == running || d.state == succeeded) {
					o.ClaimsWithDrainerAtWork = append(o.ClaimsWithDrainerAtWork, claimUIDs[i][d.generation])
				}
			}
			if c := &seen.claims[i][slot]; c.exists {
				o.Claims = append(o.Claims, claimWords(i, c))
			}
			if j := &seen.jobs[i][slot]; j.state != noJob {
				out := pvc.Job{
					Name: string(jobUIDs[i][j.instance]), UID: jobUIDs[i][j.instance], ClaimUID: claimUIDs[i][j.generation],
					State: [...]pvc.JobState{active: pvc.JobActive, complete: pvc.JobComplete, gaveUp: pvc.JobFailed}[j.state],
				}
				if j.target.moves() {
					out.Target, out.Waits = m.nameOf(j.target), j.waits
					o.Moves = append(o.Moves, out)
				} else {
					out.Survivors.Count = int32(j.target.size)
					o.Jobs = append(o.Jobs, out)
				}
			}
		}
	}
	return o
}

// drainer translates a drainer that has not ended for the plan.
func (m *model) drainer(i int8, d *drainer) pvc.Drainer {
	out := pvc.Drainer{Pod: "a drainer", ClaimUID: claimUIDs[i][d.generation], Running: d.state == running}
	if d.target.moves() {
		out.Target, out.Waits, out.Prepared = m.nameOf(d.target), d.waits, out.Running
	}
	return out
}

var planRequests = [...]pvc.Request{pvc.NoRequest, pvc.Skip, pvc.Retry, pvc.Hold}

// Every member left longAgo. Jobs whose next attempt isn't due failed justNow.
var (
	longAgo = time.Unix(1000, 0)
	justNow = time.Unix(1_000_000, 0)
)

// leftAt is the time in the leaving mark.
func (c *claim) leftAt() time.Time {
	const between = 30 * time.Second // more than ten seconds, less than a minute
	return [...]time.Time{longAgo, justNow.Add(-between), justNow}[c.fresh].Add(time.Duration(c.left) * time.Second)
}

// number is the number of the leaving mark.
func (c *claim) number() int64 { return int64(c.left) + 1 }

func claimWords(i int8, c *claim) pvc.Claim {
	out := pvc.Claim{
		Name: claimNames[i][c.of], UID: claimUIDs[i][c.generation], Ordinal: int32(i),
		Finalizer: c.finalizer, Deleting: c.deleting, InUse: c.protected,
		Aside: c.of != 0, Pending: c.pending, AsideName: claimNames[i][c.generation],
		Receipt: known[i][c.generation][c.receipt],
		Request: planRequests[c.request], Moved: int64(c.moved), MoveRequest: planRequests[c.moving],
	}
	if c.of != 0 {
		out.First, out.Fresh = claimUIDs[i][c.of], c.carries
	}
	out.Adopted, out.Restored = c.restored, c.restored
	if c.leaving {
		out.LeavingSince, out.Left = c.leftAt(), c.number()
		out.Decided, out.Policy = true, pvc.DrainPolicy(c.policy)
	}
	out.Unmoved = c.unmoved
	if c.counted != 0 {
		out.Attempts = action.Attempts{Failed: 1, Last: jobUIDs[i][c.counted]}
	}
	if c.volume != 0 {
		out.Volume = volumeNames[i][c.volume]
	}
	return out
}

// stepsOf returns the actions of the plan that a reconcile would carry out.
func (m *model) stepsOf(v *sight, p *plan.Plan, next list) steps {
	var t steps
	for _, planned := range p.Actions {
		switch a := planned.(type) {
		case action.AddOwnerFinalizer:
			t.add(step{verb: addOwnerFinalizer})
		case action.RemoveOwnerFinalizer:
			if !v.absent {
				t.add(step{verb: removeOwnerFinalizer})
			}
		case action.ApplyService, action.ApplyListService, action.ApplyDiscovery, action.WriteEndpoints, action.TellMember, action.WriteTable, action.TellRouter, action.ApplyRouters, action.ApplyNetworkPolicy, action.WriteBinding, action.ApplyBudget, action.ApplyServiceMonitor,
			action.ApplyMemberService, action.RetireMemberService, action.DeleteMemberService:
		case action.WriteList:
			if next != v.seen.list {
				t.was, t.list = v.seen.list, next
				t.add(step{verb: writeList, argument: int8(a.ListSize), generation: int8(a.Replicas)})
			}
		case action.ApplyStatefulSet:
			if set := v.seen.members; !set.exists || int32(set.replicas) != a.Replicas {
				s := step{verb: applyMembers, argument: int8(a.Replicas)}
				if set.exists {
					s.generation = 1 // the cache has a list
				}
				t.add(s)
			}
		case action.DeleteMembers:
			t.add(step{verb: deleteMembers})
		case action.DeleteJob:
			t.add(v.jobStep(a.UID))
		default:
			t.add(m.claimAction(v, planned))
		}
	}
	if n := v.serversInStatus(p, next); m.options.Moving && !v.absent && v.seen.cluster.servers != n {
		t.add(step{verb: noteServers, argument: n})
	}
	return t
}

// serversInStatus is how many servers status gets with this plan.
func (v *sight) serversInStatus(p *plan.Plan, next list) int8 {
	switch {
	case v.seen.cluster.deleting:
		return int8(p.ListSize)
	case v.ending:
		return v.seen.cluster.servers // this reconcile writes no list
	}
	return next.size
}

// claimAction returns the step for an action about a claim.
func (m *model) claimAction(v *sight, planned action.Action) step {
	switch a := planned.(type) {
	case action.AddClaimFinalizer:
		return v.claimStep(addClaimFinalizer, a.Claim)
	case action.MarkLeaving:
		s := v.claimStep(markLeaving, a.Claim)
		if s.argument = 0; a.Unmoved {
			s.argument = 1
		}
		return s
	case action.CountFailure:
		s := v.claimStep(countFailure, a.Claim)
		return s.with(int8(slices.Index(jobUIDs[s.ordinal][:], a.Attempts.Last)))
	case action.ClearRetry:
		return v.claimStep(clearRetry, a.Claim)
	case action.SetAside:
		return v.claimStep(setAside, a.Claim)
	case action.SkipToo:
		return v.claimStep(skipAside, a.Claim)
	case action.CarryOver:
		return v.claimStep(carryOver, a.Claim)
	case action.NoteRestored: // the first claim has gone with the namespace
		return v.claimStep(noteRestored, a.Claim)
	case action.ReserveVolume:
		return v.claimStep(reserveVolume, a.Claim)
	case action.CreateAside:
		return v.claimStep(createAside, a.Claim).by(target{serial: int8(a.StoredBy)})
	case action.ReturnVolume:
		return v.claimStep(returnVolume, a.Claim)
	case action.CreateDrain:
		return v.claimStep(createDrain, a.Claim).with(int8(a.Survivors.Count))
	case action.ClearMoveRetry:
		return v.claimStep(clearMoving, a.Claim)
	case action.CreateMove:
		s := v.claimStep(createMove, a.Claim).by(m.targets[a.Target])
		if s.argument = 0; a.Prepared {
			s.argument = isPrepared
		}
		return s
	case action.BeginMove:
		return v.claimStep(beginMove, a.Claim).by(m.targets[a.Target])
	case action.RecordMoved:
		s := v.claimStep(recordMoved, a.Claim).by(m.targets[a.Target])
		if a.Receipt == nil {
			return s.with(bySkip)
		}
		return s
	case action.DeleteClaim:
		return v.claimStep(deleteClaim, a.Claim).with(reasonIndex(a.Why))
	case action.ReleaseClaim:
		return v.claimStep(releaseClaim, a.Claim).with(reasonIndex(a.Why))
	case action.RecordReceipt:
		s := v.claimStep(recordReceipt, a.Claim)
		if a.Receipt.Err == nil {
			return s.with(int8(goodReceipt))
		}
		return s.with(int8(shortReceipt))
	}
	panic(fmt.Sprintf("the model does not know the action %T", planned))
}

func (s step) with(argument int8) step {
	s.argument = argument
	return s
}

func (s step) by(t target) step {
	s.target = t
	return s
}

// claimStep is a step about a claim. Its argument is the generation that the claim's name stands
// for.
func (v *sight) claimStep(what verb, ref action.ClaimRef) step {
	i := int8(ref.Ordinal)
	for slot := range v.seen.claims[i] {
		if c := &v.seen.claims[i][slot]; c.exists && claimUIDs[i][c.generation] == ref.UID {
			return step{verb: what, ordinal: i, generation: c.generation, argument: c.of}
		}
	}
	panic(fmt.Sprintf("no sight has claim %s", ref.UID))
}

func (v *sight) jobStep(uid types.UID) step {
	for i := range int8(ordinals) {
		for _, j := range v.seen.jobs[i] {
			if j.state != noJob && jobUIDs[i][j.instance] == uid {
				return step{verb: deleteJob, ordinal: i, generation: j.generation, argument: j.instance}
			}
		}
	}
	panic(fmt.Sprintf("no sight has Job %s", uid))
}

// owns tells whether the Memcached may own applied objects: it was not deleted.
func (c *cluster) owns() bool { return c.exists && !c.deleting }

// do takes a step as package apply does, with the plan's checks on live state.
func (m *model) do(s *state, a step) outcome {
	switch a.verb {
	case addOwnerFinalizer, removeOwnerFinalizer:
		return m.changeCluster(s, a)
	case applyMembers:
		return m.setReplicas(s, a)
	case deleteMembers:
		if !s.live.members.exists {
			return nothing
		}
		s.live.members = statefulSet{}
		return done
	case deleteJob:
		j := s.live.instanceOf(a.ordinal, a.argument)
		if j == nil {
			return nothing
		}
		*j = job{}
		return done
	case createDrain:
		return m.drain(s, a)
	case returnVolume:
		return s.returnVolume(a)
	case writeList:
		return m.writeList(s, a)
	case createMove:
		return m.move(s, a)
	case beginMove:
		return m.begin(s, a)
	case noteServers:
		return s.noteServers(a)
	}
	c := s.live.claimOf(a.ordinal, a.generation)
	if c == nil {
		return nothing
	}
	before := s.volumes
	was, claims := *c, s.live.claims
	switch {
	case m.changeClaim(s, c, a) == refused:
		return refused
	case *c == was && s.volumes == before && s.live.claims == claims:
		return nothing
	}
	return done
}

// changeCluster writes the Memcached under an optimistic lock.
func (m *model) changeCluster(s *state, a step) outcome {
	c, adds := &s.live.cluster, a.verb == addOwnerFinalizer
	switch {
	case !adds && !s.seen.cluster.exists:
		return nothing
	case !adds && pvc.MayRemoveOwnerFinalizer(&m.words(&s.live).Facts) != nil:
		return refused
	case s.seen.cluster.finalizer == adds, !adds && !c.exists:
		return nothing
	case *c != s.seen.cluster:
		return refused
	}
	if c.finalizer = adds; !c.finalizer && c.deleting {
		*c = cluster{}
	}
	return done
}

func (m *model) setReplicas(s *state, a step) outcome {
	live := &s.live.members
	switch {
	case a.generation == 0 && live.exists:
		return nothing // the cache is stale
	case !s.live.cluster.owns():
		return refused
	case live.exists && live.replicas == a.argument:
		return nothing
	case plan.MaySetReplicas(m.liveWords(s), int32(a.argument)) != nil, s.ending && !live.exists:
		return refused
	}
	*live = statefulSet{true, a.argument}
	return done
}

func (m *model) drain(s *state, a step) outcome {
	ref := action.ClaimRef{Name: "claim", UID: claimUIDs[a.ordinal][a.generation], Ordinal: int32(a.ordinal)}
	live := m.liveWords(s)
	live.ClaimsWithDrainerPod = s.live.pods.mounting(a.ordinal, a.generation)
	if plan.MayDrain(live, action.CreateDrain{Claim: ref, Survivors: action.Range{Count: int32(a.argument)}}) != nil ||
		s.live.jobOf(a.ordinal, a.generation) != nil || s.ending {
		return refused
	}
	*free(s.live.jobs[a.ordinal][:]) = job{
		state: active, generation: a.generation, target: target{client: s.seen.cluster.client, size: a.argument}, instance: s.nextInstance(a.ordinal),
	}
	return done
}

// changeClaim writes to the live claim.
func (m *model) changeClaim(s *state, c *claim, a step) outcome {
	switch a.verb {
	case addClaimFinalizer:
		if c.deleting && !c.finalizer {
			return refused // by the API server
		}
		c.finalizer = true
	case markLeaving:
		if plan.MayMark(m.liveWords(s), int32(a.ordinal)) != nil {
			return refused
		}
		if !c.leaving {
			c.unmoved, c.left, c.policy = a.argument == 1, s.departures(a.ordinal), int8(m.options.Cluster.Policy)
			if c.leaving, c.counted = true, 0; m.options.Cluster.Patience > 0 {
				c.fresh = 2
			}
		}
	case countFailure:
		c.counted = a.argument
	case skipAside:
		words := claimWords(a.ordinal, c)
		if pvc.MaySkipToo(&m.words(&s.live).Facts, &words) != nil {
			return refused
		}
		c.request = skip
	case carryOver:
		words := claimWords(a.ordinal, c)
		switch {
		case !c.carries:
			return nothing
		case pvc.MayCarryOver(&m.words(&s.live).Facts, &words) != nil:
			return refused
		}
		c.carries = false
	case noteRestored:
		words := claimWords(a.ordinal, c)
		switch {
		case !c.carries:
			return nothing
		case pvc.MayNoteRestored(&m.words(&s.live).Facts, &words) != nil:
			return refused
		}
		c.carries, c.restored, c.request, c.receipt, c.counted = false, true, hold, noReceipt, 0
	case recordMoved, clearMoving:
		return c.noteMoved(a, &s.live.list)
	case recordReceipt:
		c.receipt = receipt(a.argument)
	case clearRetry:
		if c.request == retry {
			c.request, c.counted, c.policy = noRequest, 0, int8(pvc.Drain)
		}
	case deleteClaim, releaseClaim:
		if a.verb == deleteClaim && c.deleting {
			return nothing
		}
		if m.mayRelease(s, c, a) != nil {
			return refused
		}
		if a.verb == deleteClaim {
			c.deleting = true
		} else {
			c.finalizer = false
		}
	case setAside:
		words := claimWords(a.ordinal, c)
		words.Where = s.where(a.ordinal, c)
		switch {
		case c.deleting:
			return nothing
		case pvc.MaySetAside(&m.words(&s.live).Facts, &words) != nil:
			return refused
		}
		c.deleting = true
	case reserveVolume, createAside:
		words := claimWords(a.ordinal, c)
		words.Where = s.where(a.ordinal, c)
		switch {
		case pvc.MayReserve(&words) != nil:
			return refused
		case a.verb == reserveVolume:
			return s.reserveVolume(a.ordinal, c)
		}
		return m.createAside(s, a, c)
	}
	return done
}

func (m *model) mayRelease(s *state, c *claim, a step) error {
	live, words := m.words(&s.live), claimWords(a.ordinal, c)
	if c.deleting {
		words.Where = s.where(a.ordinal, c)
	}
	if reasons[a.argument] == action.BySetAside {
		return plan.MayHandOver(live, &words)
	}
	live.Cluster.Deleting = live.Cluster.Deleting || !s.live.cluster.exists
	live.Cluster.NamespaceTerminating = s.ending
	return pvc.MayRelease(&live.Cluster.Terms, &words, reasons[a.argument], false)
}

// departures counts how often members left whose claims still exist. A member that leaves
// later has a higher number.
func (s *state) departures(ordinal int8) int8 {
	var left int8
	for i := range s.live.claims {
		for slot := range s.live.claims[i] {
			c := &s.live.claims[i][slot]
			if c.exists && c.leaving && (int8(i) != ordinal || slot > 0) && (slot > 0 || int8(i) >= s.live.members.replicas) {
				left = max(left, c.left+1)
			}
		}
	}
	return left
}

func (s *state) reserveVolume(i int8, c *claim) outcome {
	switch s.where(i, c) {
	case pvc.Here:
		v := s.volumeNamed(i, c.volume)
		v.of, v.bound = c.generation, 0
	case pvc.Elsewhere:
		return refused
	}
	return done
}

// departureOf is when the member of an aside volume left: now, if the claim of a staying member was deleted.
func (s *state) departureOf(i int8, c *claim) int8 {
	if c.leaving {
		return c.left
	}
	return s.departures(i)
}

func (m *model) createAside(s *state, a step, c *claim) outcome {
	i, policy := a.ordinal, c.policy
	if !c.leaving {
		policy = int8(m.options.Cluster.Policy)
	}
	for slot := range s.live.claims[i] {
		if other := &s.live.claims[i][slot]; other.exists && other.of == c.generation {
			return refused
		}
	}
	if s.ending {
		return refused
	}
	asked := c.request
	if asked == retry {
		asked = noRequest
	}
	*free(s.live.claims[i][1:]) = claim{
		exists: true, finalizer: true, protected: true, leaving: true, pending: true, carries: true,
		generation: s.nextGeneration(i), of: c.generation, volume: c.volume, request: asked, left: s.departureOf(i, c), fresh: c.fresh,
		moved: a.target.serial, policy: policy,
	}
	return done
}

// returnVolume binds the volume to the claim of the step's generation, whose name is the step's
// argument.
func (s *state) returnVolume(a step) outcome {
	for slot := range s.volumes[a.ordinal] {
		v := &s.volumes[a.ordinal][slot]
		switch {
		case v.name == 0 || v.of != a.generation:
			continue
		case v.bound != 0:
			return refused
		}
		v.of, v.bound = a.argument, a.generation
		return done
	}
	return nothing
}
