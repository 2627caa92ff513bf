package status

import (
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"

	"k8s.io/apimachinery/pkg/types"
)

// TestStatusTellsWhoIsReplacedWhichWayAndWhy: a line of the printer shows a step's state, how far it is, and since when.
func TestStatusTellsWhoIsReplacedWhichWayAndWhy(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, step := range map[string]plan.Step{
		"member 2 of 3 is stepping out, 41 %, 12 s":                                                   {Member: 2, State: plan.StepsOut, Since: now.Add(-13 * time.Second)},
		"member 0 of 3 is out of the ring, and starts empty, 0 s":                                     {State: plan.StepEmpties, Since: now},
		"member 1 of 3 is out of the ring, and is not ready, 60 s":                                    {Member: 1, State: plan.StepWaits, Since: now.Add(-time.Minute)},
		"member 1 of 3 is restarting with its items, as with rollout: Restart: it is the only member": {Member: 1, State: plan.RestartsInPlace, Why: "it is the only member", Since: now},
		"member 2 of 3 is out of the ring, and may be evicted, since node a is cordoned, 12 s":        {Member: 2, State: plan.StepAside, Node: "a", Since: now.Add(-12 * time.Second)},
		"member 1 of 3 is restarting without its items, as with rollout: Restart: member 0 is away":   {Member: 1, State: plan.RestartsInPlace, Loses: true, Why: "member 0 is away", Since: now},
		"member 2 of 3 is the next to be replaced: a volume is drained first":                         {Member: 2, State: plan.StepDelayed, Why: "a volume is drained first", Since: now},
	} {
		in := &Input{Now: now, Progress: map[types.UID]contract.Progress{"uid": {ItemsDone: 41, ItemsTotal: 100}}}
		in.Plan.Replicas, in.Plan.Step = 3, step
		in.Plan.Moves = []plan.MoveState{{Claim: claims.Claim{UID: "uid"}}}
		if got := stepping(in, &waits{now: now}); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	in := &Input{Now: now, RoutersBehind: []RouterBehind{{Pod: "cache-router-a", Since: now.Add(-claims.StuckAfter)}}}
	in.Plan.Replicas, in.Plan.Step = 3, plan.Step{Member: 2, State: plan.StepsOut}
	if got, want := stepping(in, &waits{now: now}), "router cache-router-a has not followed since "+clock(now.Add(-claims.StuckAfter))+": delete its pod, with --force if its node is gone"; !strings.HasSuffix(got, want) {
		t.Errorf("a router that is silent for ever: %s\nwant %s", got, want)
	}
	in = &Input{Now: now}
	in.Plan.Replicas, in.Plan.Step = 3, plan.Step{Member: 2, State: plan.StepsIn, Since: now}
	if got, want := stepEnds(in, &waits{now: now}), "member 2 of 3, which is stepping in, 0 s, is back in the ring"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
