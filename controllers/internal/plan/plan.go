// Package plan decides what to do about a cluster. It is pure: observed facts go in, actions come
// out. Its rules decide the states of a volume, and keep the invariants (test/invariants).
//
//	member ──size lowered──▶ leaving ──pod gone──▶ departed ──a Job drains it──▶ receipt ──▶ released
//	                                                  │            │
//	                                                  │            └── failed: kept, tried again
//	                                                  └── held, skipped by a person
//
// A leaving member keeps running while its items are moved (leave.go). The leaving mark is written
// on the claim before the StatefulSet is made smaller, and the mark is never removed. The volume
// never becomes a member's again, because its values may be old by then.
//
// No pod can mount a claim that is being deleted. So its volume is set aside (aside.go): the volume
// is bound to another claim, which is created with the mark.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Plan has the actions to take now, in order, and the states of the claims of leaving and departed
// members.
type Plan struct {
	Actions []action.Action
	// Replicas is how many members stay, and SizeBlocked why that is not the wanted size.
	// SizeRefused is the API server's message with BlockedByRefusal.
	Replicas    int32
	SizeBlocked Block
	SizeRefused string
	// Running is how many members the StatefulSet should have now: those that stay, and leaving
	// members that still run.
	Running int32
	// LingeringDrainer is the drainer's pod whose end a change of size waits for. Its Job is gone.
	LingeringDrainer string
	// ListSize is how many members the clients' list has, and Record the resulting record of the
	// rings. Prepares: the list doesn't change while movers are prepared for the next ring.
	ListSize int32
	Record   ring.Record
	Prepares bool
	// From is the record that is replaced.
	From ring.Record
	// Table is what routers are told.
	Table action.WriteTable
	// Drains has an entry for each claim that is to be drained or released, highest
	// ordinal first.
	Drains []DrainState
	// Moves has an entry for each member whose items have to be moved, highest
	// ordinal first.
	Moves []MoveState
	// DeletedClaims are claims that another client deleted: those of members that stay, and those
	// whose volume the operator can't set aside.
	DeletedClaims []DeletedClaim
	// SmallClaims are members' claims whose volumes are smaller than wanted. KeepsTemplate: the
	// members' pods stay as they are until these volumes have grown. GrowthWaits: the volumes don't
	// grow before one member is ready with the memory that they are to have room for, or
	// storage.size asks for it.
	SmallClaims                []action.ClaimRef
	KeepsTemplate, GrowthWaits bool
	// Wake is when to plan again if no event comes earlier; zero for never.
	Wake time.Time
}

// DeletedClaim is a claim that another client deleted.
type DeletedClaim struct {
	Claim action.ClaimRef
	// Message says what the operator does with the volume, or what a person has to do.
	Message string
}

// Block is why the size can't change yet.
type Block string

// The reasons that block a change of size.
const (
	NotBlocked Block = ""
	// BlockedByDrain: a drain is under way.
	BlockedByDrain Block = "Drain"
	// BlockedByVolume: the volume that a returning member left still exists.
	BlockedByVolume Block = "Volume"
	// BlockedByShortage: the survivors have too little room.
	BlockedByShortage Block = "Shortage"
	// BlockedByMemoryCheck: the members were asked how full they are, and have not answered yet.
	BlockedByMemoryCheck Block = "MemoryCheck"
	// BlockedByMove: members have items that clients look for elsewhere.
	BlockedByMove Block = "Move"
	// BlockedByRefusal: the API server refuses the mark of a member that is to leave.
	BlockedByRefusal Block = "Refusal"
)

// ScaleDownBegins tells whether a scale-down is about to begin, so that the items of the
// leaving members need room.
func (o *Observed) ScaleDownBegins() bool {
	c := &o.Cluster
	return !c.Deleting && !c.NamespaceTerminating && c.Policy == claim.Drain && o.StatefulSet.Exists && !o.drainRuns() && !o.moving() &&
		0 < c.Size && c.Size < o.StatefulSet.Replicas &&
		slices.ContainsFunc(o.Claims, func(c claim.Claim) bool { return c.Ordinal >= o.Cluster.Size && c.LeavingSince.IsZero() })
}

// Next plans the next steps for a cluster.
func Next(observed *Observed) Plan {
	o := observed.workingCopy()
	if o.Cluster.Plain {
		return plain(&o)
	}
	if o.Cluster.Deleting || o.Cluster.NamespaceTerminating {
		return dismantle(&o)
	}
	p := Plan{}
	for i := range steps {
		steps[i].decide(&p, &o)
	}
	return p
}

// applyMembers plans the members and the objects that go with them.
func (p *Plan) applyMembers(*Observed) {
	p.add(action.ApplyNetworkPolicy{}, action.WriteBinding{ListSize: p.ListSize}, action.ApplyStatefulSet{Replicas: p.Running, KeepTemplate: p.KeepsTemplate},
		action.ApplyBudget{}, action.ApplyServiceMonitor{})
}

// workingCopy has the claims in the order in which they are decided about, and is changed as the plan goes on.
func (o *Observed) workingCopy() Observed {
	c := *o
	c.Claims = slices.Clone(o.Claims)
	slices.SortFunc(c.Claims, func(a, b claim.Claim) int {
		return cmp.Or(cmp.Compare(b.Ordinal, a.Ordinal), cmp.Compare(len(a.Name), len(b.Name))) // its longer name puts an aside claim last
	})
	return c
}

// plain is the plan for a cluster without storage. Its members have no names of their own. When the
// cluster is deleted, the garbage collector does everything.
func plain(o *Observed) Plan {
	p := Plan{Replicas: o.Cluster.Size, Running: o.Cluster.Size, ListSize: o.Cluster.Size}
	if !o.Cluster.Deleting {
		p.add(action.ApplyService{}, action.WriteList{ListSize: p.ListSize, Replicas: p.Replicas}, action.ApplyNetworkPolicy{}, action.WriteBinding{ListSize: p.ListSize},
			action.ApplyDeployment{Replicas: p.Replicas}, action.ApplyBudget{}, action.ApplyServiceMonitor{})
	}
	return p
}

func (p *Plan) add(a ...action.Action) { p.Actions = append(p.Actions, a...) }

// addFinalizers adds the finalizer to the cluster, and to claims that were created without it: by the StatefulSet
// of an earlier operator, or of a cluster that was deleted.
func (p *Plan) addFinalizers(o *Observed) {
	if !o.Cluster.Finalizer {
		p.add(action.AddClusterFinalizer{})
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		wanted := c.LeavingSince.IsZero() || o.toDrain(c)
		if c.Finalizer || c.Deleting || !wanted {
			continue
		}
		if why, is := o.refusedNow(c); is {
			p.wakeAt(why.Until)
			continue
		}
		p.add(action.AddClaimFinalizer{Claim: c.Ref()})
		c.Finalizer = true
	}
}

func (p *Plan) decideSize(o *Observed) {
	p.Replicas, p.SizeBlocked, _ = o.allowedSize(o.Cluster.Size)
	if why, is := o.unmarkable(p.Replicas); is {
		p.Replicas, p.SizeBlocked, p.SizeRefused = o.staying(), BlockedByRefusal, why.Why
		p.wakeAt(why.Until)
		return
	}
	switch {
	case p.SizeBlocked == BlockedByDrain && o.runningDrain() == nil:
		p.LingeringDrainer = o.lingeringDrainer()
	case p.SizeBlocked != NotBlocked || !o.ScaleDownBegins():
	case o.Room.Asking():
		p.Replicas, p.SizeBlocked = o.StatefulSet.Replicas, BlockedByMemoryCheck
	case o.Cluster.WaitForRoom && o.Room.Short():
		p.Replicas, p.SizeBlocked = o.StatefulSet.Replicas, BlockedByShortage
	}
	if p.Replicas > 0 && p.Replicas < o.Table.NewSize() && o.settles() {
		p.Replicas, p.SizeBlocked = o.Table.NewSize(), BlockedByMove
	}
}

// allowedSize returns the size that the cluster may have now, if the given size is wanted. The size
// doesn't change during a drain, or before items are moved. The cluster doesn't shrink before the
// volumes of members that left earlier are drained. No member comes back to a volume that it left.
// If another size is returned, blocked and why say what the wanted size waits for. The plan asks
// this, and MaySetReplicas asks it about live state.
func (o *Observed) allowedSize(wanted int32) (size int32, blocked Block, why string) {
	departed := o.lowestMarked()
	size = o.sizeWhileMoving(wanted)
	switch job, lingering := o.runningDrain(), o.lingeringDrainer(); {
	case job != nil:
		size, blocked, why = o.sizeWhileMoving(min(job.Survivors, o.MostMembers())), BlockedByDrain, fmt.Sprintf("Job %s drains into %d members", job.Name, job.Survivors)
	case lingering != "" && o.StatefulSet.Exists && wanted > 0:
		size, blocked, why = o.sizeBefore(), BlockedByDrain, fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", lingering)
	case o.marksWait(departed):
		size, blocked, why = o.sizeWhileMoving(o.staying()), BlockedByDrain, "the volume of a member that left is drained first"
	case o.staysBelow(departed, size) < size: // staysBelow applies after the switch
	case departed != nil && o.drainDue(0) && o.memberWouldLeave(size, departed.Ordinal):
		size, blocked, why = min(departed.Ordinal, max(size, o.sizeBefore())), BlockedByDrain, "the volume of a member that left is drained first"
	case size != wanted:
		blocked, why = BlockedByMove, fmt.Sprintf("items have to be moved among %d members", size)
	}
	if stays := o.staysBelow(departed, size); stays < size {
		size, blocked, why = stays, BlockedByVolume, fmt.Sprintf("claim %s was left by its member, and is still there", departed.Name)
	}
	if size == wanted {
		return size, NotBlocked, ""
	}
	return size, blocked, why
}

// staysBelow returns the size that brings no member back to a volume that it left. Any client can
// write a leaving mark. So during a drain, or before items are moved, no member leaves that exists
// or is on the clients' list.
func (o *Observed) staysBelow(departed *claim.Claim, size int32) int32 {
	switch {
	case departed == nil:
		return size
	case o.drainRuns() || o.moving() || o.marksWait(departed):
		return max(departed.Ordinal, min(size, max(o.staying(), o.Record.Ring.Size)))
	}
	return min(size, departed.Ordinal)
}

// marksWait tells whether a member with a higher ordinal has no mark yet, and can't get one before
// an earlier volume is drained. Then the size doesn't change.
func (o *Observed) marksWait(departed *claim.Claim) bool {
	members := o.staying()
	return departed != nil && o.drainDue(members) && o.memberWouldLeave(departed.Ordinal, min(members, o.Record.Ring.Size))
}

// sizeBefore is how many members stay or, if all members have stopped, how many the ring has.
func (o *Observed) sizeBefore() int32 {
	if n := o.staying(); o.StatefulSet.Exists && n > 0 {
		return n
	}
	return min(o.Record.Ring.Size, o.MostMembers())
}

// markLeaving writes the leaving mark on the claims of leaving members, before the StatefulSet is
// made smaller. If the operator dies in between, a member may leave and return needlessly, but an
// old volume never comes back. At size 0 no claim is marked, because no member is left that could
// store newer values. During a drain no claim is marked either: the size is the one that the drain
// began with, and the marks for that size were written before. If a claim beyond that size has no
// mark, the cache is stale, and the claim belongs to a newer member. The mark also says whether the
// member's items were moved by the rings before this plan.
func (p *Plan) markLeaving(o *Observed) {
	if p.Replicas == 0 {
		return
	}
	told := o.at(p.From) // without the marks of this plan
	told.Claims = slices.Clone(o.Claims)
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.Ordinal >= p.Replicas && c.LeavingSince.IsZero() && MayMark(told, c.Ordinal) == nil {
			p.add(action.MarkLeaving{Claim: c.Ref(), Unmoved: o.moveDue(&p.From, c), NeverStarted: c.NotStartedYet})
			c.PlanMark()
		}
	}
}

// mover tells whether the drainer belongs to a move, not to a drain.
func (d Drainer) mover() bool { return d.Target != "" }

// runningDrain returns the Job of a drain whose pod may be at work, or nil.
func (o *Observed) runningDrain() *Job {
	for i := range o.Jobs {
		if o.Jobs[i].mayRun() {
			return &o.Jobs[i]
		}
	}
	return nil
}

// lingeringDrainer names the pod of a drain that has not ended although its Job is gone, usually
// because a person skipped the drain. Kubernetes keeps the claim until the pod ends, and the
// drainer still adds items by its own ring.
func (o *Observed) lingeringDrainer() (pod string) {
	for _, d := range o.Drainers {
		c, job := o.claim(d.ClaimUID), o.jobFor(d.ClaimUID)
		if !d.mover() && c != nil && !c.LeavingSince.IsZero() && (job == nil || !job.mayRun()) {
			return d.Pod
		}
	}
	return ""
}

// drainRuns tells whether a drain may be at work.
func (o *Observed) drainRuns() bool { return o.runningDrain() != nil || o.lingeringDrainer() != "" }

// drainDue tells whether the volume of a departed member with this ordinal or a higher one is about
// to be drained. Until it has been drained, no other member leaves. A drain that failed is tried
// again in its turn (order.go).
func (o *Observed) drainDue(from int32) bool {
	return slices.ContainsFunc(o.Claims, func(c claim.Claim) bool {
		job := o.jobFor(c.UID)
		return o.toDrain(&c) && !o.obstructed(&c) && c.Ordinal >= from && !c.LeavingSince.IsZero() && !c.Aside && !c.Deleting && c.Volume != "" && c.Receipt == nil &&
			!c.KeptByAPerson() && (job == nil || job.running())
	})
}

// memberWouldLeave tells whether a member with an ordinal in this range would get the leaving mark.
func (o *Observed) memberWouldLeave(from, to int32) bool {
	return from > 0 && slices.ContainsFunc(o.Claims, func(c claim.Claim) bool {
		return from <= c.Ordinal && c.Ordinal < to && c.LeavingSince.IsZero()
	})
}

// lowestMarked returns the claim with a leaving mark that has the lowest ordinal, or nil.
// It leaves out aside claims, which block no member.
func (o *Observed) lowestMarked() *claim.Claim {
	var lowest *claim.Claim
	for i := range o.Claims {
		if c := &o.Claims[i]; !c.LeavingSince.IsZero() && !c.Aside && (lowest == nil || c.Ordinal < lowest.Ordinal) {
			lowest = c
		}
	}
	return lowest
}

// sweepJobs deletes Jobs whose claim is gone, even running ones: their receipt could not be
// recorded, and the size could not change before they end.
func (p *Plan) sweepJobs(o *Observed) {
	for _, j := range o.Jobs {
		known := slices.ContainsFunc(o.Claims, func(c claim.Claim) bool { return c.UID == j.ClaimUID })
		if !known && !j.Deleting {
			p.add(action.DeleteJob{Name: j.Name, UID: j.UID, ClaimUID: j.ClaimUID, Reason: "its claim is gone"})
		}
	}
}

// dismantle removes the finalizers, after the Memcached or its namespace was deleted.
func dismantle(o *Observed) Plan {
	p := Plan{Record: o.Record}
	if o.Cluster.NamespaceTerminating {
		for i := range o.Claims {
			if c := &o.Claims[i]; c.Finalizer {
				p.returnVolume(o, c)
				p.add(action.ReleaseClaim{Claim: c.Ref(), Why: action.ByNamespace})
				c.Finalizer = false
			}
		}
		if o.Cluster.Finalizer && MayRemoveClusterFinalizer(o) == nil {
			p.add(action.RemoveClusterFinalizer{})
		}
		return p
	}
	for _, j := range slices.Concat(o.Jobs, o.Moves) {
		if !j.Deleting {
			p.add(action.DeleteJob{Name: j.Name, UID: j.UID, ClaimUID: j.ClaimUID, Reason: "the Memcached is deleted"})
		}
	}
	if o.StatefulSet.Exists && !o.Cluster.Orphan {
		// The StatefulSet's controller could still create claims. The deletion of the StatefulSet
		// brings an event.
		if !o.StatefulSet.Deleting {
			p.add(action.DeleteMembers{UID: o.StatefulSet.UID})
		}
		return p
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if aside := o.asideOf(c); aside != nil || o.takesOver(c) {
			// Wait, because the volume is bound to neither claim yet.
			p.handOver(o, c, aside)
			continue
		}
		p.returnVolume(o, c)
		drained := c.Receipt != nil && c.Receipt.AddsUp(string(c.UID)) == nil
		unwanted := o.Cluster.DeleteClaims && !o.Cluster.Orphan && !c.Adopted
		if (unwanted || drained) && !c.Deleting {
			p.add(action.DeleteClaim{Claim: c.Ref(), Why: action.ByClusterDeletion})
		}
		if c.Finalizer {
			p.add(action.ReleaseClaim{Claim: c.Ref(), Why: action.ByClusterDeletion})
			c.Finalizer = false
		}
	}
	if o.Cluster.Finalizer && MayRemoveClusterFinalizer(o) == nil {
		p.add(action.RemoveClusterFinalizer{})
	}
	return p
}
