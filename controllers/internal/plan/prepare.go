package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
)

// A mover's pod takes a second or two to start. Clients that follow the list miss an item until it
// is moved. So if the size changes, the movers are started before the list changes. They connect to
// all members and look through the items, but move nothing, because a client could change the
// original after it was copied. When all movers are prepared, or after preparesWithin, the list
// changes, and they are told to begin.
//
// Prepared movers don't keep the size or the ring from changing. If either is to change meanwhile,
// or if a member is no longer ready, the list changes at once, as it would without them.

// preparesWithin bounds how long the list waits for the movers, from the leaving mark on or since
// the last joining member became ready.
const preparesWithin = 10 * time.Second

// at returns a copy of the observed state with another record.
func (o *Observed) at(r ring.Record) *Observed {
	then := *o
	then.Record = r
	return &then
}

// mayPrepare tells whether movers may be prepared for the ring in o.Record while clients still use
// the ring before: members only leave or only join, and nothing else is under way. The plan asks
// this, and MayMove asks it about live state.
func (o *Observed) mayPrepare(before ring.Record) bool {
	from, to := before.Ring, o.Record.Ring
	if from.Size == 0 || to.Size == 0 || to.Size == from.Size || from != o.Cluster.Ring.Of(from.Size) || o.ListSize != from.Size ||
		o.StatefulSet.Replicas < max(from.Size, to.Size) {
		return false
	}
	for i := range o.StatefulSet.Replicas {
		if !slices.Contains(o.Ready, i) {
			return false
		}
	}
	// The volumes of members that left earlier come first.
	earlier := slices.ContainsFunc(o.Claims, func(c claim.Claim) bool {
		return !c.LeavingSince.IsZero() && (o.toDrain(&c) || c.Finalizer) && (to.Size > from.Size || !o.isLeaving(&c))
	})
	return !earlier && !o.drainRuns() && !o.at(before).moving()
}

// prepare keeps the list unchanged while the movers start. For the rest of the plan o.Record stays
// the next ring.
func (p *Plan) prepare(o *Observed) {
	before := p.From
	if p.Replicas == 0 || !o.mayPrepare(before) {
		return
	}
	until := o.preparesUntil()
	if !until.After(o.Now) {
		return
	}
	working, waits := 0, false
	stays := o.Record.Ring.Size > before.Ring.Size // no member leaves, or the cluster waits for a leaving member
	for i := range o.Claims {
		c := &o.Claims[i]
		stays = stays || o.waitsForMover(c)
		switch {
		case slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.ClaimUID == c.UID && d.Prepared }):
			working++
		case o.waitsForMover(c), o.toMove(c):
			waits = true
		}
	}
	if stays && waits && working < mostMovers {
		p.Prepares, p.ListSize, p.Record = true, o.ListSize, before
		p.wakeAt(until) // there is no event if a mover doesn't start
	}
}

// preparesUntil is when the list changes at the latest; zero if no member was told to leave lately,
// and none has joined. Any client may have written these times, so a time far in the future does
// not count.
func (o *Observed) preparesUntil() (until time.Time) {
	times := []time.Time{o.LastReady}
	for i := range o.Claims {
		switch c := &o.Claims[i]; {
		case c.MarkPending():
			return o.Now.Add(preparesWithin)
		case o.isLeaving(c):
			times = append(times, c.LeavingSince)
		}
	}
	for _, t := range times {
		if end := t.Add(preparesWithin); end.After(until) && !end.After(o.Now.Add(2*preparesWithin)) {
			until = end
		}
	}
	return until
}

// toMove tells whether items of a member that stays have to be moved by the ring in o.Record.
func (o *Observed) toMove(c *claim.Claim) bool {
	return o.misplaced(c) && c.MoveRequest != claim.Skip
}

// prepareMoves starts the movers of members that stay.
func (p *Plan) prepareMoves(o *Observed, slots int) {
	for i := range o.Claims {
		c := &o.Claims[i]
		if !o.toMove(c) {
			continue
		}
		state := MoveState{Claim: *c, Job: o.moveOf(c)}
		p.Moves = append(p.Moves, state.is(MoveWaits, InTurn, "movers are being prepared, then the clients' list changes"))
		if o.beingMoved(c) || slots <= 0 {
			continue
		}
		slots--
		p.add(action.CreateMove{Claim: c.Ref(), Target: o.target(), Members: o.Record.Ring.Size, Prepared: true})
	}
}

// moverRuns tells whether the pod of the leaving member's mover has started.
func (o *Observed) moverRuns(c *claim.Claim) bool {
	return slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.mover() && d.ClaimUID == c.UID && d.Running })
}

// beginMoves tells prepared movers to begin, right after the list was written.
func (p *Plan) beginMoves(o *Observed) {
	if p.Prepares || p.ListSize == 0 || o.moveWaits(o.target()) != "" || p.leasesWait(o) != "" {
		return
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		job := o.moveOf(c)
		if job == nil || !job.mayBegin(o.target()) || !o.misplaced(c) && (!p.runsOn(c) || !o.waitsForMover(c)) {
			continue
		}
		if slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.ClaimUID == c.UID && d.Target == job.Target && d.Waits }) {
			p.add(action.BeginMove{Claim: c.Ref(), Target: job.Target, Leases: p.leases(o)})
		}
	}
}

// mayBegin tells whether the Job is an active, prepared move by that ring.
func (j *Job) mayBegin(target string) bool {
	return j.Waits && j.Target == target && j.State == JobActive && !j.Deleting
}
