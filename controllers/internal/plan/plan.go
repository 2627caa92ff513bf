package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/ring"
)

// Plan is what to do now, in this order, and how the claims of departed members stand.
type Plan struct {
	Actions []Action
	// Replicas that the StatefulSet should have now, and SizeBlocked why that is
	// not the wanted size.
	Replicas    int32
	SizeBlocked Block
	// LingeringDrainer is the pod for whose end the size waits, where that is a drainer whose
	// Job is gone.
	LingeringDrainer string
	// ListSize is how many members clients are told of, and Record has the ring that this
	// makes.
	ListSize int32
	Record   ring.Record
	// Drains has an entry per claim on its way out, highest ordinal first.
	Drains []DrainState
	// Placements has an entry per member whose items have to be placed, highest
	// ordinal first.
	Placements []PlacementState
	// DeletedClaims are those that somebody else deleted: of members that stay, or
	// such that the operator can't set aside.
	DeletedClaims []DeletedClaim
	// SmallClaims are those of members whose volumes are smaller than wanted, and
	// KeepsTemplate tells that the members stay as they are until these have grown.
	SmallClaims   []ClaimRef
	KeepsTemplate bool
	// Wake is when to plan again, if no event comes before; zero for never.
	Wake time.Time
}

// DeletedClaim is a claim that somebody else deleted.
type DeletedClaim struct {
	Claim ClaimRef
	// Message says what will become of it, or what a person has to do.
	Message string
}

// Block is why the size can't change yet.
type Block string

// The reasons that block a change of size.
const (
	NotBlocked Block = ""
	// BlockedByDrain: a drain is under way.
	BlockedByDrain Block = "Drain"
	// BlockedByVolume: a volume that the returning member left is still there.
	BlockedByVolume Block = "Volume"
	// BlockedByShortage: the members that stay have too little room.
	BlockedByShortage Block = "Shortage"
	// BlockedByMemoryCheck: the members were asked a moment ago whether there is room.
	BlockedByMemoryCheck Block = "Question"
	// BlockedByPlacement: members hold what clients look for elsewhere.
	BlockedByPlacement Block = "Placement"
)

// ScaleDownBegins tells whether a scale-down is about to begin: the items of the members
// that leave have to find room.
func (o *Observed) ScaleDownBegins() bool {
	c := &o.Cluster
	return !c.Deleting && !c.NamespaceTerminating && c.Policy == Drain && o.StatefulSet.Exists && !o.drainRuns() && !o.placing() &&
		0 < c.Size && c.Size < o.StatefulSet.Replicas &&
		slices.ContainsFunc(o.Claims, func(c Claim) bool { return c.Ordinal >= o.Cluster.Size && c.LeavingSince.IsZero() })
}

// Next decides on the next steps for a cluster.
func Next(observed *Observed) Plan {
	o := *observed
	if o.Cluster.Plain {
		return plain(&o)
	}
	o.Claims = slices.Clone(o.Claims)
	slices.SortFunc(o.Claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Ordinal, a.Ordinal), cmp.Compare(len(a.Name), len(b.Name))) // an aside claim comes last
	})
	if o.Cluster.Deleting || o.Cluster.NamespaceTerminating {
		return dismantle(&o)
	}
	p := Plan{}
	if !o.Cluster.Finalizer {
		p.add(AddClusterFinalizer{})
	}
	p.addClaimFinalizers(&o)
	p.decideSize(&o)
	before := p.decideList(&o)
	p.markLeaving(&o, before)
	p.findSmall(&o)
	p.sweepJobs(&o)
	p.add(ApplyService{}, WriteList{p.ListSize, p.Record, before, p.Replicas}, ApplyNetworkPolicy{}, WriteBinding{p.ListSize},
		ApplyStatefulSet{p.Replicas, p.KeepsTemplate}, ApplyBudget{}, ApplyServiceMonitor{})
	p.drain(&o)
	p.place(&o)
	p.grow(&o)
	return p
}

// plain is the plan of a cluster without storage: a Deployment, of which no member has a
// name of its own. Its owner references are all that a deletion needs.
func plain(o *Observed) Plan {
	p := Plan{Replicas: o.Cluster.Size, ListSize: o.Cluster.Size}
	if !o.Cluster.Deleting {
		p.add(ApplyService{}, WriteList{ListSize: p.ListSize, Replicas: p.Replicas}, ApplyNetworkPolicy{}, WriteBinding{p.ListSize},
			ApplyDeployment{p.Replicas}, ApplyBudget{}, ApplyServiceMonitor{})
	}
	return p
}

func (p *Plan) add(a ...Action) { p.Actions = append(p.Actions, a...) }

// addClaimFinalizers puts the finalizer on claims that were born without it: those of a
// StatefulSet of an earlier operator, or of a cluster that was deleted.
func (p *Plan) addClaimFinalizers(o *Observed) {
	for i := range o.Claims {
		c := &o.Claims[i]
		wanted := c.LeavingSince.IsZero() || o.Cluster.Policy == Drain
		if !c.Finalizer && !c.Deleting && wanted {
			p.add(AddClaimFinalizer{c.Ref()})
			c.Finalizer = true
		}
	}
}

// decideSize decides on the number of replicas.
func (p *Plan) decideSize(o *Observed) {
	p.Replicas, p.SizeBlocked, _ = o.allowedSize(o.Cluster.Size)
	switch {
	case p.SizeBlocked == BlockedByDrain && o.runningDrain() == nil:
		p.LingeringDrainer = o.lingeringDrainer()
	case p.SizeBlocked != NotBlocked || !o.ScaleDownBegins():
	case o.Room.Asking():
		p.Replicas, p.SizeBlocked = o.StatefulSet.Replicas, BlockedByMemoryCheck
	case o.Cluster.WaitForRoom && o.Room.Short():
		p.Replicas, p.SizeBlocked = o.StatefulSet.Replicas, BlockedByShortage
	}
}

// allowedSize is the size that the cluster may have now where that one is wanted: one that
// doesn't change under a drain or before items are placed, isn't smaller before those that
// left are drained, and brings no member back to a volume that it left. If it is another
// one, blocked and why say what it waits for. The plan asks, and MaySetReplicas of what is
// live.
func (o *Observed) allowedSize(wanted int32) (size int32, blocked Block, why string) {
	departed := o.lowestMarked()
	size = o.sizeWhilePlacing(wanted)
	switch job, lingering := o.runningDrain(), o.lingeringDrainer(); {
	case job != nil:
		size, blocked, why = o.sizeWhilePlacing(min(job.Survivors, o.MostMembers())), BlockedByDrain, fmt.Sprintf("Job %s drains into %d members", job.Name, job.Survivors)
	case lingering != "" && o.StatefulSet.Exists && wanted > 0:
		size, blocked, why = o.sizeBefore(), BlockedByDrain, fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", lingering)
	case o.marksWait(departed):
		size, blocked, why = o.sizeWhilePlacing(o.StatefulSet.Replicas), BlockedByDrain, "the volume of a member that left is drained first"
	case o.staysBelow(departed, size) < size: // as below
	case departed != nil && o.drainDue(0) && o.someoneWouldLeave(size, departed.Ordinal):
		size, blocked, why = min(departed.Ordinal, max(size, o.sizeBefore())), BlockedByDrain, "the volume of a member that left is drained first"
	case size != wanted:
		blocked, why = BlockedByPlacement, fmt.Sprintf("items have to be placed among %d members", size)
	}
	if stays := o.staysBelow(departed, size); stays < size {
		size, blocked, why = stays, BlockedByVolume, fmt.Sprintf("claim %s was left by its member, and is still there", departed.Name)
	}
	if size == wanted {
		return size, NotBlocked, ""
	}
	return size, blocked, why
}

// staysBelow is the size that brings no member back to a volume that it left. Whoever wrote
// the leaving mark: a member that is there, or that clients still ask, leaves neither under a
// drain nor before items are placed.
func (o *Observed) staysBelow(departed *Claim, size int32) int32 {
	switch {
	case departed == nil:
		return size
	case o.drainRuns() || o.placing() || o.marksWait(departed):
		return max(departed.Ordinal, min(size, max(o.StatefulSet.Replicas, o.Record.Ring.Size)))
	}
	return min(size, departed.Ordinal)
}

// marksWait tells whether members above that one, which has the mark, have to be marked before
// it can leave, and may not be: the volume of another one that left is drained first.
func (o *Observed) marksWait(departed *Claim) bool {
	members := o.StatefulSet.Replicas
	return departed != nil && o.drainDue(members) && o.someoneWouldLeave(departed.Ordinal, min(members, o.Record.Ring.Size))
}

// sizeBefore is how many members there are, or, if all of them have stopped, how many there
// were: those of the ring.
func (o *Observed) sizeBefore() int32 {
	if o.StatefulSet.Exists && o.StatefulSet.Replicas > 0 {
		return o.StatefulSet.Replicas
	}
	return min(o.Record.Ring.Size, o.MostMembers())
}

// markLeaving writes the leaving mark on the claims of members that leave,
// before the StatefulSet is made smaller: should the operator die in between, a
// member leaves and returns needlessly, but an old volume never returns. At
// size 0 nobody is left who could hold another value: nothing is marked. Nor is
// anything while a drain runs: the size is the one that it began with, whose
// marks were written before it. Where a claim beyond it has none, the Job is one
// of a cache that is behind, and the claim that of a member that came since. The mark
// says whether anybody has looked through the member by the rings before this plan.
func (p *Plan) markLeaving(o *Observed, before ring.Record) {
	if p.Replicas == 0 || o.drainRuns() {
		return
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.Ordinal >= p.Replicas && c.LeavingSince.IsZero() {
			p.add(MarkLeaving{c.Ref(), o.placementDue(&before, c), c.NotStartedYet})
			c.LeavingSince = justNow
		}
	}
}

// places tells whether it moves items between members.
func (d Drainer) places() bool { return d.Target != "" }

// runningDrain returns a Job that may be at work, or nil.
func (o *Observed) runningDrain() *Job {
	for i := range o.Jobs {
		if o.Jobs[i].mayRun() {
			return &o.Jobs[i]
		}
	}
	return nil
}

// lingeringDrainer names the pod of a drain whose Job is gone, and that has not ended: a person
// gave its claim up, as a rule. Kubernetes keeps the claim until then. The drainer still
// adds items, by the ring of the members that it was made for.
func (o *Observed) lingeringDrainer() (pod string) {
	for _, d := range o.Drainers {
		c, job := o.claim(d.ClaimUID), o.jobFor(d.ClaimUID)
		if !d.places() && c != nil && !c.LeavingSince.IsZero() && (job == nil || !job.mayRun()) {
			return d.Pod
		}
	}
	return ""
}

// drainRuns tells whether a drain may be at work.
func (o *Observed) drainRuns() bool { return o.runningDrain() != nil || o.lingeringDrainer() != "" }

// drainDue tells whether the volume that a member from that ordinal on left is
// about to be drained. Until it is, no other member leaves. One whose drain failed
// is tried again after those that left later (newerComes).
func (o *Observed) drainDue(from int32) bool {
	return o.Cluster.Policy == Drain && slices.ContainsFunc(o.Claims, func(c Claim) bool {
		job := o.jobFor(c.UID)
		return c.Ordinal >= from && !c.LeavingSince.IsZero() && !c.Aside && !c.Deleting && c.Volume != "" && c.Receipt == nil &&
			c.Request != Hold && c.Request != Skip && (job == nil || job.running())
	})
}

// newerDrainDue tells whether another volume is about to be drained, or tried again,
// whose member left later than this one. What that one was told since is newer, and
// must be there first: a drain only adds.
func (o *Observed) newerDrainDue(c *Claim) bool {
	return slices.ContainsFunc(o.Claims, func(d Claim) bool {
		if !d.LeavingSince.After(c.LeavingSince) || d.Volume == "" || d.Volume == c.Volume || d.Receipt != nil || d.Request == Hold || d.Request == Skip || o.stranded(&d) {
			return false
		}
		job := o.jobFor(d.UID)
		return job == nil || job.running() || job.State == JobComplete || job.mendable()
	})
}

// someoneWouldLeave tells whether a member among these ordinals would be told to leave.
func (o *Observed) someoneWouldLeave(from, to int32) bool {
	return from > 0 && slices.ContainsFunc(o.Claims, func(c Claim) bool {
		return from <= c.Ordinal && c.Ordinal < to && c.LeavingSince.IsZero()
	})
}

// lowestMarked returns the claim of the lowest ordinal that has a leaving mark, or nil.
// One that was set aside is in no member's way.
func (o *Observed) lowestMarked() *Claim {
	var lowest *Claim
	for i := range o.Claims {
		if c := &o.Claims[i]; !c.LeavingSince.IsZero() && !c.Aside && (lowest == nil || c.Ordinal < lowest.Ordinal) {
			lowest = c
		}
	}
	return lowest
}

// sweepJobs deletes Jobs whose claim is gone, running ones too: a receipt could be recorded
// nowhere, and until the drainer has ended the size could not change.
func (p *Plan) sweepJobs(o *Observed) {
	for _, j := range o.Jobs {
		known := slices.ContainsFunc(o.Claims, func(c Claim) bool { return c.UID == j.ClaimUID })
		if !known && !j.Deleting {
			p.add(DeleteJob{Name: j.Name, UID: j.UID, Reason: "its claim is gone", Stray: true})
		}
	}
}

// dismantle lets everything go: the Memcached is deleted, or its namespace is.
func dismantle(o *Observed) Plan {
	p := Plan{Record: o.Record}
	if o.Cluster.NamespaceTerminating {
		for i := range o.Claims {
			if c := &o.Claims[i]; c.Finalizer {
				p.returnVolume(o, c)
				p.add(ReleaseClaim{c.Ref(), ByNamespace})
			}
		}
		if o.Cluster.Finalizer {
			p.add(RemoveClusterFinalizer{})
		}
		return p
	}
	for _, j := range slices.Concat(o.Jobs, o.Placements) {
		if !j.Deleting {
			p.add(DeleteJob{Name: j.Name, UID: j.UID, Reason: "the Memcached is deleted"})
		}
	}
	if o.StatefulSet.Exists && !o.Cluster.Orphan {
		// Its controller could still make claims; the event of its going is next.
		if !o.StatefulSet.Deleting {
			p.add(DeleteMembers{})
		}
		return p
	}
	settingAside := false
	for i := range o.Claims {
		c := &o.Claims[i]
		if aside := o.asideOf(c); aside != nil || o.takesOver(c) {
			// Halfway: the volume would be neither claim's.
			p.handOver(c, aside)
			settingAside = true
			continue
		}
		p.returnVolume(o, c)
		drained := c.Receipt != nil && c.Receipt.AddsUp(string(c.UID)) == nil
		unwanted := o.Cluster.DeleteClaims && !o.Cluster.Orphan && !c.Adopted
		if (unwanted || drained) && !c.Deleting {
			p.add(DeleteClaim{c.Ref(), ByClusterDeletion})
		}
		if c.Finalizer {
			p.add(ReleaseClaim{c.Ref(), ByClusterDeletion})
		}
	}
	if o.Cluster.Finalizer && !settingAside {
		p.add(RemoveClusterFinalizer{})
	}
	return p
}
