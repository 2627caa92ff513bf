package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/test/tier"
)

// If the cache is up to date, the plan and the live checks see the same state, and no check may refuse. A
// step that is always refused would block all later ones. A mark of this plan may change which of its later
// steps are allowed. The next plan must then plan accordingly.
func TestNoStepIsRefusedOnWhatThePlanSaw(t *testing.T) {
	scenes := 5_000
	if tier.All() {
		scenes = 100_000
	}
	guarded, refusedOnce := map[string]int{}, 0
	for seed := range uint64(scenes) {
		o := anyScene(rand.New(rand.NewPCG(seed, 0)))
		if _, err := takeAll(o, guarded); err == nil {
			continue
		}
		refusedOnce++
		if refused, err := takeAll(o, guarded); err != nil {
			t.Fatalf("scene %d: %s is refused twice: %v\n%s", seed, refused, err, describe(o))
		}
	}
	if refusedOnce > max(1, scenes/10_000) {
		t.Errorf("of %d plans, %d were refused at first", scenes, refusedOnce)
	}
	for _, kind := range []string{"mark", "list", "size", "drain", "move", "prepare", "begin", "warm"} {
		if guarded[kind] < scenes/1000 {
			t.Errorf("%s: asked in %d scenes of %d", kind, guarded[kind], scenes)
		}
	}
}

// takeAll takes the steps of a plan, and returns the first refused step, and why.
func takeAll(o *Observed, guarded map[string]int) (action.Action, error) {
	unmarked := *o // all marks of a plan share one live read
	unmarked.Claims = slices.Clone(o.Claims)
	membersWait := false
	for _, a := range Next(o).Actions {
		if membersWait && action.KindOf(a).Class == action.Members {
			continue // as package apply does after a refusal
		}
		live := o
		if _, marks := a.(action.MarkLeaving); marks {
			live = &unmarked
		}
		kind, err := refusedLive(live, a)
		if err != nil && strings.HasSuffix(err.Error(), "has no leaving mark yet") && o.DrainMayRun() {
			membersWait = true // a newer member's claim has no mark before the drain has ended
			continue
		}
		if err != nil {
			return a, err
		}
		guarded[kind]++
		happen(o, a)
	}
	return nil, nil
}

// refusedLive asks the live check before the step, as package apply does.
func refusedLive(o *Observed, a action.Action) (kind string, err error) {
	switch a := a.(type) {
	case action.MarkLeaving:
		return "mark", MayMark(o, a.Claim.Ordinal)
	case action.WriteList:
		return "list", MayWriteList(o, a)
	case action.ApplyStatefulSet:
		if o.StatefulSet.Exists && o.StatefulSet.Replicas == a.Replicas {
			return "", nil
		}
		return "size", errors.Join(MaySetReplicas(o, a.Replicas), MayShrink(o, a.Replicas))
	case action.CreateDrain:
		return "drain", MayDrain(o, a)
	case action.CreateMove:
		if a.Prepared {
			return "prepare", MayMove(o, a)
		}
		return "move", MayMove(o, a)
	case action.BeginMove:
		return "begin", MayBegin(o, a)
	case action.CreateWarm:
		return "warm", MayWarm(o, a)
	case action.StartEmpty:
		return "empty", MayStartEmpty(o, a)
	}
	return "", nil
}

// happen applies a step to the observed state, for later steps of the same plan.
func happen(o *Observed, a action.Action) {
	switch a := a.(type) {
	case action.AddClaimFinalizer:
		o.Claim(a.Claim.UID).Finalizer = true
	case action.MarkLeaving:
		o.Claim(a.Claim.UID).LeavingSince, o.Claim(a.Claim.UID).Left = time.Unix(2000, 0), 9 // the latest mark
	case action.WriteList:
		o.Record = a.Record
	case action.ApplyStatefulSet:
		o.StatefulSet.Exists, o.StatefulSet.Replicas = true, a.Replicas
	case action.CreateDrain:
		o.Jobs = append(o.Jobs, claims.Job{Name: "new", ClaimUID: a.Claim.UID, Survivors: a.Survivors})
	case action.CreateMove:
		o.Moves = append(o.Moves, claims.Job{Name: "new", ClaimUID: a.Claim.UID, Target: a.Target, Waits: a.Prepared})
	case action.CreateWarm:
		o.Warms = append(o.Warms, claims.Job{Name: "new", ClaimUID: a.Claim.UID, Target: a.Target})
	case action.BeginMove:
		for i := range o.Drainers {
			if d := &o.Drainers[i]; d.ClaimUID == a.Claim.UID && d.Target == a.Target {
				d.Waits = false
			}
		}
	}
}

// anyScene is a random scene with up to five members, with objects that the operator creates and
// changes that other clients make.
func anyScene(r *rand.Rand) *Observed {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	s := at(r.Int32N(4))
	o := &s.o
	// Survivors of a Job: usually the members that exist.
	survivors := func() int32 {
		if chance(70) {
			return o.Cluster.Size
		}
		return r.Int32N(6)
	}
	anyEnd := func() func(*claims.Job) {
		return [...]func(*claims.Job){func(*claims.Job) {}, gone, complete, unreadable, outOfTime, withoutReceipt, podKept}[r.IntN(7)]
	}
	o.Now = time.Unix(3000, 0)
	o.Cluster.Parallelism = 1 + r.Int32N(2)
	if chance(50) {
		o.Cluster.Ring.Client = "gomemcache" // moves keys of members that stay
		o.Record.Ring.Client = o.Cluster.Ring.Client
	}
	for _, i := range r.Perm(3) {
		ordinal := o.Cluster.Size + int32(i)
		switch {
		case chance(60):
		case chance(20): // the list was restored, or a member came and went
			s.member(ordinal)
		default:
			s.left(ordinal, func(c *claims.Claim) { c.LeavingSince, c.Left = time.Unix(int64(1000+r.IntN(5)), 0), r.Int64N(5) })
			c := &o.Claims[len(o.Claims)-1]
			c.Request = [...]claims.Request{claims.NoRequest, claims.NoRequest, claims.NoRequest, claims.Hold, claims.Skip, claims.Retry}[r.IntN(6)]
			c.Unmoved = chance(10)
			if chance(10) {
				deleting(c)
				c.Where = claims.Where(r.IntN(5))
			}
			if chance(10) {
				s.aside(ordinal, func(c *claims.Claim) { c.Pending = chance(50) })
			}
			if chance(20) {
				s.pod(ordinal)
			}
			if chance(40) {
				s.job(ordinal, survivors(), anyEnd(), anyEnd())
			}
		}
	}
	if chance(20) {
		s.job(9, survivors()) // the Job's claim is gone
	}
	if chance(20) && o.Cluster.Size > 0 { // the operator died after the mark, or a person wrote it
		marked(s, r.Int32N(o.Cluster.Size))
	}
	if chance(10) && len(o.Claims) > 0 {
		c := &o.Claims[r.IntN(len(o.Claims))]
		d := claims.Drainer{Pod: "drainer", ClaimUID: c.UID}
		if c.LeavingSince.IsZero() || chance(20) {
			d.Target = [...]string{"4-cafe", o.Record.Target()}[r.IntN(2)]
		}
		o.Drainers = append(o.Drainers, d)
		o.ClaimsWithDrainerPod = []types.UID{c.UID}
	}
	if chance(40) {
		o.Record.Serial, o.Record.From = 5, o.Record.Ring.Of(r.Int32N(5))
		for i := range o.Claims {
			o.Claims[i].Moved = 4 + r.Int64N(2)
		}
	}
	for i := range o.StatefulSet.Replicas {
		if chance(90) {
			o.Ready = append(o.Ready, i)
		}
	}
	if chance(20) { // another client scaled the StatefulSet, or it is gone
		o.StatefulSet = StatefulSet{}
		if chance(80) {
			o.StatefulSet = StatefulSet{Exists: true, Replicas: r.Int32N(6)}
		}
	}
	if chance(50) {
		o.Cluster.Patience = time.Minute
		leavingScene(s, chance)
	}
	if chance(30) && o.ListSize > 1 && o.Record.Ring.Size == o.ListSize { // a member has joined
		o.ListSize--
		o.Record.Ring.Size--
		o.LastReady = o.Now.Add(-[...]time.Duration{time.Second, time.Hour}[r.IntN(2)])
		if target := o.Record.Next(o.Cluster.Ring.Of(o.ListSize + 1)).Target(); chance(50) {
			s.move(r.Int32N(o.ListSize), func(j *claims.Job) { j.Target, j.Waits = target, true })
		}
	}
	o.Cluster.Size = max(0, o.Cluster.Size+[...]int32{-2, -1, 0, 0, 1, 2}[r.IntN(6)])
	if chance(50) {
		preparedScene(s, chance)
	}
	if chance(30) {
		warmScene(s, chance)
	}
	o.Cluster.Policy = [...]claims.DrainPolicy{claims.Drain, claims.Drain, claims.Drain, claims.Retain, claims.Delete}[r.IntN(5)]
	if o.Cluster.Policy == claims.Drain && chance(20) {
		o.Cluster.Deleting = chance(20)
	}
	return o
}

// warmScene adds a source, and perhaps a Job that copies it, or did.
func warmScene(s *scene, chance func(percent int) bool) {
	o := &s.o
	ready := o.Ready
	s.warmFrom(func(w *Warm) { w.HoldsList = chance(30) })
	o.Now, o.Ready = time.Unix(3000, 0), ready
	if chance(10) {
		o.Warm.Holder.MoveRequest = claims.Skip
	}
	if chance(40) {
		s.warmJob([...]func(*claims.Job){func(*claims.Job) {}, copied, gone}[map[bool]int{true: 0, false: 1}[chance(70)]])
		if chance(60) {
			s.copies()
		}
	}
	if chance(10) {
		o.Warm = nil
	}
}

// leavingScene adds leaving members, some with a mover.
func leavingScene(s *scene, chance func(percent int) bool) {
	o := &s.o
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.LeavingSince.IsZero() || c.Aside || chance(50) {
			continue
		}
		o.StatefulSet.Exists, o.StatefulSet.Replicas = true, max(o.StatefulSet.Replicas, c.Ordinal+1)
		o.Pods, o.Ready = append(o.Pods, c.Ordinal), append(o.Ready, c.Ordinal)
		if chance(50) {
			c.LeavingSince = o.Now.Add(-time.Second)
		}
		if chance(40) {
			s.move(c.Ordinal, func(j *claims.Job) { j.Deleting = chance(10) })
			if chance(50) {
				o.Drainers = append(o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: c.UID, Target: s.by(), Running: chance(80)})
				prepared(s, chance)
			}
		}
	}
}

// preparedScene marks members that are still on the list, some with a prepared mover.
func preparedScene(s *scene, chance func(percent int) bool) {
	o := &s.o
	next := o.Record.Next(o.Wanted())
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.Ordinal < o.Cluster.Size || !c.LeavingSince.IsZero() || c.Aside || chance(20) {
			continue
		}
		c.LeavingSince = o.Now.Add(-time.Second)
		if chance(50) {
			s.move(c.Ordinal, func(j *claims.Job) { j.Target, j.Deleting = next.Target(), chance(10) })
			if chance(50) {
				o.Drainers = append(o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: c.UID, Target: next.Target(), Running: chance(80), Prepared: chance(60)})
			}
			prepared(s, chance)
		}
	}
}

// prepared usually makes the last Job a prepared one whose pod waits.
func prepared(s *scene, chance func(percent int) bool) {
	o := &s.o
	j := &o.Moves[len(o.Moves)-1]
	j.Waits = chance(80)
	for i := range o.Drainers {
		if d := &o.Drainers[i]; j.Waits && d.ClaimUID == j.ClaimUID && d.Target == j.Target {
			d.Waits = chance(90)
		}
	}
}

func describe(o *Observed) string {
	out := fmt.Sprintf("%+v\n%+v, listed %d record %s ready %v pods %v drainers %v\n", o.Cluster, o.StatefulSet, o.ListSize, o.Record, o.Ready, o.Pods, o.Drainers)
	for _, c := range o.Claims {
		out += fmt.Sprintf("  %s marked %d aside %v deleting %v %v pending %v request %q unmoved %v moved %d\n",
			c.Name, c.LeavingSince.Unix(), c.Aside, c.Deleting, c.Where, c.Pending, c.Request, c.Unmoved, c.Moved)
	}
	for _, j := range slices.Concat(o.Jobs, o.Moves, o.Warms) {
		out += fmt.Sprintf("  Job %s of %s into %d, by %q, %v, deleting %v\n", j.Name, j.ClaimUID, j.Survivors.Count, j.Target, j.State, j.Deleting)
	}
	return out
}
