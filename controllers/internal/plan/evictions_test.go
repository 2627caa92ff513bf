package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// cordoned puts members on nodes that are to be drained, one on each.
func cordoned(members ...int32) func(*Observed) {
	return func(o *Observed) {
		o.Cluster.StepsOutForEvictions = true
		for _, i := range members {
			o.Cordoned = append(o.Cordoned, Cordoned{i, fmt.Sprintf("node-%d", i), now.Add(-time.Minute)})
		}
	}
}

// rested is a cluster of three without a roll-out.
func rested(changes ...func(*Observed)) *scene {
	s := replacing3().with(func(o *Observed) { o.StatefulSet.Partition, o.StatefulSet.Outdated = 0, nil })
	for _, change := range changes {
		change(&s.o)
	}
	return s
}

// waitsSince is the same with member 2 out for so long.
func waitsSince(since time.Duration, changes ...func(*Observed)) *scene {
	return outOf3(append([]func(*Observed){emptied, func(o *Observed) {
		o.StatefulSet.Partition, o.StatefulSet.Outdated = 0, nil
		o.Table.Since = now.Add(-since)
	}}, changes...)...)
}

// TestAMemberOfADrainedNodeStepsOutOrIsEvictedWithItsItems, and status says why. The budget allows the eviction of no
// member that is ready as long as steps fit.
func TestAMemberOfADrainedNodeStepsOutOrIsEvictedWithItsItems(t *testing.T) {
	justNow := func(o *Observed) { o.Cordoned[0].Since = now.Add(-cordonedFor + time.Second) }
	unready := func(o *Observed) { o.Ready, o.Away = []int32{0, 1}, []Away{{2, now.Add(-time.Hour)}} }
	leaves := func(o *Observed) { // its pod has the only copy of its items
		o.Cluster.InPods = true
		for i := range o.Claims {
			if o.Claims[i].Ordinal == 2 {
				o.Claims[i].LeavingSince = now
			}
		}
	}
	lastOut := func(o *Observed) { o.Record.From = o.Record.Ring.Without(2) }
	for what, test := range map[string]struct {
		scene  *scene
		state  StepState
		member int32
		why    string
		shut   bool
		aside  bool
	}{
		"no node is drained":              {rested(cordoned()), "", 0, "", true, false},
		"one is":                          {rested(cordoned(1)), StepsOut, 1, "", true, false},
		"a moment ago":                    {rested(cordoned(1), justNow), "", 0, "", true, false},
		"all are":                         {rested(cordoned(0, 1, 2)), StepsOut, 2, "", true, false},
		"member 2 was out last":           {rested(cordoned(0, 1, 2), lastOut), StepsOut, 1, "", true, false},
		"nodes can't be watched":          {rested(cordoned(), func(o *Observed) { o.NodesUnknown = "forbidden" }), "", 0, "", false, false},
		"the spec wants no steps":         {rested(cordoned(1), func(o *Observed) { o.Cluster.StepsOutForEvictions = false }), "", 0, "", false, false},
		"a roll-out comes first":          {replacing3().with(cordoned(0)), StepsOut, 2, "", true, false},
		"a size comes first":              {rested(cordoned(1), func(o *Observed) { o.Cluster.Size = 4 }), StepDelayed, 1, "the size changes first", true, false},
		"it leaves with the only copy":    {rested(cordoned(2), leaves), StepDelayed, 2, "the size changes first", true, false},
		"another member is not ready":     {rested(cordoned(1), func(o *Observed) { o.Ready = []int32{1, 2} }), StepDelayed, 1, "member 0 is not ready", true, false},
		"too little memory":               {rested(cordoned(1), func(o *Observed) { o.StepRoom = &Room{Leaving: 2, Evicted: 1} }), "", 1, "it has", false, false},
		"a drain is held":                 {rested(cordoned(1)).left(3, requested(claims.Hold)), "", 1, "waits for a person", false, false},
		"it is out":                       {waitsSince(0, cordoned(2)), StepAside, 2, "", true, true},
		"it has not started empty":        {waitsSince(0, cordoned(2), func(o *Observed) { o.Empty = nil }), StepEmpties, 2, "", true, true},
		"it is not ready":                 {waitsSince(time.Hour, cordoned(2), unready), StepAside, 2, "", true, true},
		"the operator has just begun":     {waitsSince(time.Hour, cordoned(2), unready, justNow), StepAside, 2, "", true, true},
		"it does not know of nodes yet":   {waitsSince(time.Hour, cordoned(), unready, func(o *Observed) { o.Aside, o.NodesPending = []int32{2}, true }), StepAside, 2, "", true, true},
		"another node waits":              {waitsSince(evictedWithin-time.Second, cordoned(1, 2)), StepAside, 2, "", true, true},
		"its turn is over":                {waitsSince(evictedWithin, cordoned(1, 2)), StepsIn, 2, "", true, false},
		"its turn is over, it is aside":   {waitsSince(evictedWithin, cordoned(1, 2), func(o *Observed) { o.Aside = []int32{2} }), StepWaits, 2, "", true, false},
		"another member of its node":      {waitsSince(time.Hour, cordoned(1, 2), func(o *Observed) { o.Cordoned[0].Node = o.Cordoned[1].Node }), StepAside, 2, "", true, true},
		"its node takes pods again":       {waitsSince(0, cordoned()), StepsIn, 2, "", true, false},
		"a roll-out begins with it":       {waitsSince(0, cordoned(2), func(o *Observed) { o.StatefulSet.Partition, o.StatefulSet.Outdated = 3, []int32{0, 1, 2} }), StepWaits, 2, "", true, true},
		"a roll-out begins with a higher": {waitsSince(0, cordoned(1, 2), func(o *Observed) { o.StatefulSet.Replicas, o.StatefulSet.Outdated = 4, []int32{2, 3} }), StepsIn, 2, "", true, false},
	} {
		t.Run(what, func(t *testing.T) {
			p := Next(&test.scene.o)
			if p.State != test.state || p.Member != test.member || !strings.Contains(p.Why, test.why) {
				t.Errorf("%+v\nwant %q of member %d, %q", p.Step, test.state, test.member, test.why)
			}
			if budget := actions[action.ApplyBudget](p); len(budget) != 1 || budget[0].StepOut != test.shut {
				t.Errorf("the budget is %v", budget)
			}
			for _, told := range actions[action.StartEmpty](p) {
				if told.Aside != test.aside {
					t.Errorf("it is told %+v", told)
				}
			}
			if p.Aside != test.aside {
				t.Errorf("aside: %t", p.Aside)
			}
		})
	}
	if p := Next(&rested(cordoned(1), justNow).o); p.Wake.IsZero() {
		t.Error("it never looks again")
	}
}

// TestANodeThatTakesPodsAgainEndsAStepThatPrepares, because routers can still go back.
func TestANodeThatTakesPodsAgainEndsAStepThatPrepares(t *testing.T) {
	s := rested(cordoned())
	s.table(contract.RingPrepare, 3, 3).exclusive(true)
	s.o.Table.Old, s.o.Table.New = s.o.Record.Ring, s.o.Record.Ring.Without(1)
	if p := Next(&s.o); p.State != "" || p.Table.State != contract.RingStable || p.Table.Out != 0 {
		t.Errorf("%+v, routers are told %+v", p.Step, p.Table)
	}
}
