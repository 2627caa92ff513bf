package plan

import (
	"errors"
	"fmt"
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
// A mover's pod takes a second or two to start, and clients that follow the list miss an item until it is
// moved. So if the size changes, the movers are started before the list changes. A prepared mover connects to
// all members and looks through the items, but moves nothing, because a client could change the original
// after it was copied. When all movers are prepared, or after preparesWithin, the list changes, and the
// movers are told to begin.
//
// Prepared movers don't keep the size or the ring from changing. If either is to change meanwhile, or if a
// member is no longer ready, the list changes at once, as it would without movers.

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

// decideList decides where clients look: at the members of the next size, but at no more than now while items
// have to be moved. step is the decision about the member that is out.
func decideList(v *view, replicas int32, step *Step) Told {
	wanted := replicas
	if v.ringStays() {
		wanted = min(wanted, v.Record.Ring.Size)
	}
	t := Told{ListSize: nextListSize(v.Observed, wanted), From: v.Record}
	if wanted > 0 && v.settle {
		t.ListSize = v.Table.NewSize()
	}
	next := v.Cluster.Ring.Of(t.ListSize)
	if step.Out <= t.ListSize {
		next.Out = step.Out
	}
	t.Record = v.Record.Next(next)
	return t
}

// nextListSize is how many members the list names next, if that many are wanted. The list grows when all
// missing members are ready. A member stays on the list when it isn't ready, so a restart changes nothing.
func nextListSize(o *Observed, wanted int32) int32 {
	for i := o.ListSize; i < wanted; i++ {
		if !slices.Contains(o.Ready, i) {
			return o.ListSize
		}
	}
	return wanted
}

// heldBack keeps the present list.
func (told Told) heldBack(listSize int32) Told {
	told.Prepares, told.ListSize, told.Record = true, listSize, told.From
	return told
}

// preparesWithin bounds how long the list waits for the movers: from the leaving mark on, or since the last
// joining member became ready.
const preparesWithin = 10 * time.Second

// prepare holds the list back while the movers start. v has the record of the next list.
func (told Told) prepare(v *view, replicas int32) (Told, claims.Work) {
	var w claims.Work
	until := preparesUntil(v)
	if replicas == 0 || !until.After(v.Now) || !mayPrepare(v, told.From) {
		return told, w
	}
	working, waits := 0, false
	stays := v.Record.Ring.Size > told.From.Ring.Size // no member leaves, or the cluster waits for a leaving member
	for i := range v.members {
		m := &v.members[i]
		stays = stays || m.waits
		switch {
		case m.prepared:
			working++
		case m.waits, m.toMove():
			waits = true
		}
	}
	if stays && waits && working < mostMovers {
		w.WakeAt(until) // there is no event if a mover doesn't start
		return told.heldBack(v.ListSize), w
	}
	return told, w
}

// mayPrepare tells whether movers may be prepared for the ring of the record while clients still use the ring
// before: members only leave, or only join, or one steps out or in, and nothing else is under way. The plan
// asks this, and MayMove asks it about live state.
func mayPrepare(v *view, before ring.Record) bool {
	from, to := before.Ring, v.Record.Ring
	if from.Out != to.Out {
		return look(v.at(before)).mayStep(to)
	}
	if from.Size == 0 || to.Size == 0 || to.Size == from.Size || from != v.Cluster.Ring.Of(from.Size) || v.ListSize != from.Size ||
		v.StatefulSet.Replicas < max(from.Size, to.Size) || v.drains {
		return false
	}
	for i := range v.StatefulSet.Replicas {
		if !slices.Contains(v.Ready, i) {
			return false
		}
	}
	// The volumes of members that left earlier come first.
	earlier := slices.ContainsFunc(v.members, func(m member) bool {
		return !m.LeavingSince.IsZero() && (v.Cluster.ToDrain(m.Claim) || m.Finalizer) && (to.Size > from.Size || !m.isLeaving)
	})
	return !earlier && !look(v.at(before)).moving
}

// preparesUntil is when the list changes at the latest; zero if no member was told to leave lately,
// and none has joined. Any client may have written these times, so a time far in the future does
// not count.
func preparesUntil(v *view) (until time.Time) {
	times := []time.Time{v.LastReady}
	for i := range v.members {
		switch m := &v.members[i]; {
		case m.MarkPending():
			return v.Now.Add(preparesWithin)
		case m.isLeaving:
			times = append(times, m.LeavingSince)
		}
	}
	for _, t := range times {
		if end := t.Add(preparesWithin); end.After(until) && !end.After(v.Now.Add(2*preparesWithin)) {
			until = end
		}
	}
	return until
}

// MayWriteList is asked before the clients' list changes. The live record must be the one that the
// plan saw: otherwise two rings could get the same serial, or a ring whose items have to be moved
// could be forgotten. The size must be allowed to change, too. MayWriteList needs what
// MaySetReplicas needs.
func MayWriteList(live *Observed, a action.WriteList) error {
	if live.Record != a.From && live.Record != a.Record {
		return errors.New("the clients' list has changed, and the cache is stale")
	}
	if err := stamped(live); err != nil && a.Record != live.Record {
		return err
	}
	if live.StatefulSet.Exists && look(live).staying == a.Replicas {
		return nil
	}
	return MaySetReplicas(live, a.Replicas)
}

// stamped refuses if a pod isn't stamped yet: with another ring, its items would be looked for elsewhere, or not be
// looked for at all.
func stamped(live *Observed) error {
	for i := range live.Claims {
		if c := &live.Claims[i]; c.InPod && c.Unstamped && !c.Deleting {
			return fmt.Errorf("pod %s was just created", c.Name)
		}
	}
	return nil
}
