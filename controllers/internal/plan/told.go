package plan

import (
	"errors"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// The clients' list says where applications look, and has the record of the rings. A scaling
// changes the list once: members are off it before they leave, and joining members are added
// together, when all of them are ready.
//
// A mover's pod takes a second or two to start. Clients that follow the list miss an item until it
// is moved. So if the size changes, the movers are started before the list changes. They connect to
// all members and look through the items, but move nothing, because a client could change the
// original after it was copied. When all movers are prepared, or after preparesWithin, the list
// changes, and they are told to begin.
//
// Prepared movers don't keep the size or the ring from changing. If either is to change meanwhile,
// or if a member is no longer ready, the list changes at once, as it would without them.

// Told is what clients and routers are told.
type Told struct {
	// ListSize is how many members the clients' list has, and Record the resulting record of the
	// rings. Prepares: the list doesn't change while movers are prepared for the next ring.
	ListSize int32
	Record   ring.Record
	Prepares bool
	// From is the record that is replaced.
	From ring.Record
	// Table is what routers are told (table.go).
	Table action.WriteTable
}

// decideList decides where clients look: at the members of the next size, but at no more than now
// while items have to be moved.
func decideList(o *Observed, replicas int32) Told {
	wanted := replicas
	if o.moving() {
		wanted = min(wanted, o.Record.Ring.Size)
	}
	t := Told{ListSize: o.nextListSize(wanted), From: o.Record}
	if wanted > 0 && o.settles() {
		t.ListSize = o.Table.NewSize()
	}
	t.Record = o.Record.Next(o.Cluster.Ring.Of(t.ListSize))
	return t
}

// nextListSize is how many members the list names next, if that many are wanted. It grows
// when all missing members are ready. A member stays on the list when it isn't ready, so
// a restart changes nothing.
func (o *Observed) nextListSize(wanted int32) int32 {
	for i := o.ListSize; i < wanted; i++ {
		if !slices.Contains(o.Ready, i) {
			return o.ListSize
		}
	}
	return wanted
}

// heldBack leaves the list as it is.
func (t Told) heldBack(o *Observed) Told {
	t.Prepares, t.ListSize, t.Record = true, o.ListSize, t.From
	return t
}

// preparesWithin bounds how long the list waits for the movers, from the leaving mark on or since
// the last joining member became ready.
const preparesWithin = 10 * time.Second

// prepare holds the list back while the movers start. o has the record of the next list.
func (t Told) prepare(o *Observed, replicas int32) (told Told, w claims.Work) {
	until := o.preparesUntil()
	if replicas == 0 || !o.mayPrepare(t.From) || !until.After(o.Now) {
		return t, w
	}
	working, waits := 0, false
	stays := o.Record.Ring.Size > t.From.Ring.Size // no member leaves, or the cluster waits for a leaving member
	for i := range o.Claims {
		c := &o.Claims[i]
		stays = stays || o.waitsForMover(c)
		switch {
		case slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == c.UID && d.Prepared }):
			working++
		case o.waitsForMover(c), o.toMove(c):
			waits = true
		}
	}
	if stays && waits && working < mostMovers {
		w.WakeAt(until) // there is no event if a mover doesn't start
		return t.heldBack(o), w
	}
	return t, w
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
	earlier := slices.ContainsFunc(o.Claims, func(c claims.Claim) bool {
		return !c.LeavingSince.IsZero() && (o.Cluster.ToDrain(&c) || c.Finalizer) && (to.Size > from.Size || !o.isLeaving(&c))
	})
	return !earlier && !o.DrainRuns() && !o.at(before).moving()
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
func (o *Observed) toMove(c *claims.Claim) bool {
	return o.misplaced(c) && c.MoveRequest != claims.Skip
}

// MayWriteList is asked before the clients' list changes. The live record must be the one that the
// plan saw: otherwise two rings could get the same serial, or a ring whose items have to be moved
// could be forgotten. The size must be allowed to change, too. MayWriteList needs what
// MaySetReplicas needs.
func MayWriteList(live *Observed, a action.WriteList) error {
	if live.Record != a.From && live.Record != a.Record {
		return errors.New("the clients' list has changed, and the cache is stale")
	}
	if live.StatefulSet.Exists && live.staying() == a.Replicas {
		return nil
	}
	return MaySetReplicas(live, a.Replicas)
}
