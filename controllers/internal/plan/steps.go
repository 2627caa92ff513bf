package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// decisions are those behind a plan. Each was made from the facts and from earlier decisions.
type decisions struct {
	Plan
	// next is the view once this plan's finalizers, marks and list are written.
	next *view
	// The work of each decision, which the steps put in order.
	finalizers, marks, addresses, retired, volumes, moves, warming, growth claims.Work
}

// decide makes all decisions for a cluster with storage.
func decide(read *Observed) *decisions {
	d := &decisions{}
	var wakes claims.Work // of decisions without writes
	after, work := protect(read)
	d.finalizers.Then(work)
	o := look(read.having(after))
	d.Size, wakes = decideSize(o)
	d.WakeAt(wakes.Wake)
	d.Step, wakes = decideStep(o, &d.Size)
	d.WakeAt(wakes.Wake)
	d.Told = decideList(o, d.Replicas, &d.Step)
	if d.Record != d.From {
		d.Size = d.untilMoved(look(o.at(d.Record)))
	}
	after, d.marks = decideMarks(o, d.Replicas)

	next := look(o.having(after).at(d.Record))
	d.next = next
	d.Told, wakes = d.prepare(next, d.Replicas)
	d.WakeAt(wakes.Wake)
	d.Told, wakes = d.tellRouters(next, d.Replicas)
	d.WakeAt(wakes.Wake)
	d.Told = d.holdList(next, d.Replicas)
	d.Running, wakes = decideRunning(next, d.Replicas, &d.Told)
	d.WakeAt(wakes.Wake)

	d.addresses, d.retired = decideAddresses(next.Observed, d.Replicas, d.ListSize)
	d.Growth, d.growth = decideGrowth(next.Observed)
	d.Volumes, d.volumes = decideVolumes(next, &d.Size)
	d.Moves, d.moves = decideMoves(next, &d.Size, &d.Told, d.Drains)
	d.Warming, d.warming = decideWarm(next, &d.Size)
	return d
}

// protect adds finalizers or, without volumes, notes on each new pod by which ring clients fill it.
func protect(o *Observed) (after []claims.Claim, w claims.Work) {
	if o.Cluster.InPods {
		return stampPods(o)
	}
	if !o.Cluster.Finalizer {
		w.Do(action.AddOwnerFinalizer{})
	}
	after, work := o.Finalizers(&o.Cluster.Terms)
	w.Then(work)
	return after, w
}

// step is a part of the plan for a cluster with storage: writes that follow those of the steps before it.
type step struct {
	name string
	work func(*decisions) claims.Work
	// writes are the kinds of its actions.
	writes []action.Action
	// here says why the step has this place.
	here string
}

// steps are all parts of the plan, in their order. A failed write stops those that its class says (action.Class).
var steps = []step{
	{"finalizers", func(d *decisions) claims.Work { return d.finalizers }, []action.Action{action.AddOwnerFinalizer{}, action.AddClaimFinalizer{}, action.StampPod{}},
		"a deletion now waits for the operator; new pods are known to be empty"},
	{"leaving marks", func(d *decisions) claims.Work { return d.marks }, []action.Action{action.MarkLeaving{}},
		"before the StatefulSet shrinks, and clients are told: without a mark, a volume comes back as a member's"},
	{"orphaned Jobs", func(d *decisions) claims.Work { return d.next.Orphans() }, []action.Action{action.DeleteJob{}}, "before other Jobs move items"},
	{"addresses", func(d *decisions) claims.Work { return d.addresses }, []action.Action{action.ApplyMemberService{}}, "before clients are told of these names"},
	{"clients' list", (*decisions).writeList, []action.Action{action.ApplyService{}, action.ApplyListService{}, action.ApplyDiscovery{}, action.WriteList{}},
		"before members leave, and when those that join are ready"},
	{"moves begin", func(d *decisions) claims.Work { return decideBegins(d.next, &d.Size, &d.Told) }, []action.Action{action.BeginMove{}},
		"after the list: nothing moves before clients are told"},
	{"list in DNS", func(d *decisions) claims.Work { return do(action.WriteEndpoints{ListSize: d.ListSize}) }, []action.Action{action.WriteEndpoints{}}, "it is the list that is written"},
	{"routers", (*decisions).route, []action.Action{action.WriteTable{}, action.TellRouter{}, action.ApplyRouters{}},
		"after the list: both name the same ring"},
	{"step", (*decisions).tellStep, []action.Action{action.StartEmpty{}, action.EndAside{}}, "after the table: no router asks the member any more"},
	{"discovery", (*decisions).tellMembers, []action.Action{action.TellMember{}}, "supervisors answer with the list that is in DNS"},
	{"members", (*decisions).applyMembers, []action.Action{action.ApplyNetworkPolicy{}, action.WriteBinding{}, action.ApplyStatefulSet{}, action.ApplyBudget{}, action.ApplyServiceMonitor{}},
		"after marks, list and table: clients are told of no member that ends"},
	{"old addresses", func(d *decisions) claims.Work { return d.retired }, []action.Action{action.RetireMemberService{}, action.DeleteMemberService{}}, "a name goes when its member has gone"},
	{"volumes", func(d *decisions) claims.Work { return d.volumes }, []action.Action{action.ReserveVolume{}, action.CreateAside{}, action.CarryOver{}, action.SetAside{}, action.SkipToo{}, action.NoteRestored{}, action.ReturnVolume{},
		action.CreateDrain{}, action.RecordReceipt{}, action.CountFailure{}, action.ClearRetry{}, action.DeleteClaim{}, action.ReleaseClaim{}, action.DeleteJob{}, action.AddClaimFinalizer{}},
		"after the members: a volume is drained into those that stay"},
	{"moves", func(d *decisions) claims.Work { return d.moves }, []action.Action{action.CreateMove{}, action.RecordMoved{}, action.CountFailure{}, action.ClearMoveRetry{}, action.DeleteJob{}},
		"after the volumes: drains and moves have one order (order.go)"},
	{"warming", func(d *decisions) claims.Work { return d.warming }, []action.Action{action.CreateWarm{}, action.RecordWarm{}, action.CountFailure{}, action.ClearWarm{}, action.DeleteJob{}},
		"after the moves: what another cache has comes last"},
	{"growth", func(d *decisions) claims.Work { return d.growth }, []action.Action{action.GrowClaim{}}, "nothing waits for it but the members' next template"},
}

func do(actions ...action.Action) claims.Work { return claims.Work{Actions: actions} }

func (d *decisions) writeList() claims.Work {
	return do(action.ApplyService{}, action.ApplyListService{}, action.ApplyDiscovery{},
		action.WriteList{ListSize: d.ListSize, Record: d.Record, From: d.From, Replicas: d.Replicas})
}

// route keeps the routers as the spec wants them, and tells them of the rings.
func (d *decisions) route() (w claims.Work) {
	if !d.next.Cluster.Routers {
		return w
	}
	table := d.Table
	table.Begins = d.Begins && table.State == contract.RingPrepare
	w.Do(table)
	for _, pod := range d.next.RouterPods {
		w.Do(action.TellRouter{Pod: pod})
	}
	for _, part := range []action.RouterPart{action.RouterService, action.RouterPolicy, action.RouterDeployment, action.RouterBudget} {
		w.Do(action.ApplyRouters{Part: part})
	}
	return w
}

// tellStep tells the supervisor of the member that is out to start its memcached empty, and whether to be ready then.
func (d *decisions) tellStep() (w claims.Work) {
	out := d.State == StepEmpties || d.State == StepAside || d.State == StepWaits
	told := out && d.Record == d.From // another ring may have items moved first
	if told {
		for _, pod := range d.next.MemberPods {
			if pod.Ordinal == d.Member {
				w.Do(action.StartEmpty{Pod: pod, Serial: d.From.Serial, Aside: d.Aside})
			}
		}
	}
	for _, pod := range d.next.MemberPods { // the ring, or the spec, may have changed while a member was aside
		// Routers that are not known to have followed, as after a restart of the operator, change nothing.
		waits := d.Record == d.From && d.next.Record.Ring.IsOut(pod.Ordinal) && d.next.aside(pod.Ordinal) && !d.next.misplaced && !d.next.unmoved(pod.Ordinal)
		if slices.Contains(d.next.Aside, pod.Ordinal) && !waits && (!told || pod.Ordinal != d.Member) {
			w.Do(action.EndAside{Pod: pod})
		}
	}
	return w
}

// tellMembers tells the supervisors, which answer by the protocol of discovery.
func (d *decisions) tellMembers() (w claims.Work) {
	if d.next.Cluster.Discovery {
		for _, pod := range d.next.MemberPods {
			w.Do(action.TellMember{Pod: pod})
		}
	}
	return w
}

// applyMembers plans the members and the objects that go with them.
func (d *decisions) applyMembers() claims.Work {
	members := action.ApplyStatefulSet{Replicas: d.Running, KeepTemplate: d.KeepsTemplate, Partition: d.Partition, Steps: d.next.Cluster.Moved || d.From.Ring.Out > 0 || d.Out > 0, Loses: d.Loses}
	if d.State == RestartsInPlace && (d.Begins || d.Unforeseen) {
		members.Why = d.Why
	}
	return do(action.ApplyNetworkPolicy{}, action.WriteBinding{ListSize: d.ListSize}, members,
		d.budget(), action.ApplyServiceMonitor{})
}

// budget allows the eviction of no member that is ready, if members step out before it.
func (d *decisions) budget() (a action.ApplyBudget) {
	c := &d.next.Cluster
	if !c.StepsOutForEvictions {
		return a
	}
	a.StepOut = d.next.NodesUnknown == "" && !d.Evicted
	if c.InPods && !a.StepOut {
		a.Loses = cmp.Or(d.next.NodesUnknown, d.Why)
	}
	return a
}

// Order is the table of the steps, in Markdown: each step's writes, the steps that its failure stops, and the
// reason for its place.
func Order() string {
	var b strings.Builder
	b.WriteString("| step | writes | a failure stops | why here |\n|---|---|---|---|\n")
	for _, s := range steps {
		var writes, stops []string
		for _, a := range s.writes {
			writes = append(writes, strings.TrimPrefix(fmt.Sprintf("%T", a), "action."))
			if class := string(action.KindOf(a).Class); !slices.Contains(stops, class) {
				stops = append(stops, class)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.name, strings.Join(writes, ", "), strings.Join(stops, "; "), s.here)
	}
	return b.String()
}
