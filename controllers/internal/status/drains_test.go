package status

import (
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

func progress(p contract.Progress) func(*Input) {
	return func(in *Input) { in.Progress = map[types.UID]contract.Progress{"uid-2": p} }
}

func TestTheTimeLeftFollowsFromTheSpeedSoFar(t *testing.T) {
	moving := contract.Progress{
		Phase: contract.PhaseAdding, ItemsDone: 100, ItemsTotal: 400, BytesDone: 1000, BytesTotal: 4000, Seconds: 25,
	}
	for name, test := range map[string]struct {
		change func(*contract.Progress)
		want   time.Duration // 0: not known
		line   string
	}{
		"a quarter in 25 s":          {func(*contract.Progress) {}, 75 * time.Second, "25% (100/400 items, 1m15s left)"},
		"part of a second":           {func(p *contract.Progress) { p.BytesDone = 3990 }, time.Second, "99% (100/400 items, 1s left)"},
		"it seems to take an age":    {func(p *contract.Progress) { p.Seconds, p.BytesTotal = 1e9, 1<<50 }, mostLeft, "0% (100/400 items, 8760h0m0s left)"},
		"the total is unknown":       {func(p *contract.Progress) { p.ItemsTotal = 0 }, 75 * time.Second, "25% (100 items, 1m15s left)"},
		"nothing read yet":           {func(p *contract.Progress) { p.BytesDone = 0 }, 0, "0% (100/400 items)"},
		"it has just begun":          {func(p *contract.Progress) { p.Seconds = 0.5 }, 0, "25% (100/400 items)"},
		"all is read":                {func(p *contract.Progress) { p.BytesDone = 4000 }, 0, "100% (100/400 items)"},
		"a survivor is awaited":      {func(p *contract.Progress) { p.Message = "waiting for cache-0" }, 0, "25% (100/400 items)"},
		"it connects":                {func(p *contract.Progress) { p.Phase = contract.PhaseConnecting }, 0, "25% (100/400 items)"},
		"the file's size is unknown": {func(p *contract.Progress) { p.BytesTotal = 0 }, 0, "Adding"},
	} {
		t.Run(name, func(t *testing.T) {
			p := moving
			test.change(&p)
			s := compute(t, input(2).leaving(2, claims.Draining, "", "").with(progress(p)))
			var want *metav1.Duration
			if test.want > 0 {
				want = &metav1.Duration{Duration: test.want}
			}
			if diff := cmp.Diff(want, s.Drains[0].TimeLeft); diff != "" || s.Progress != test.line {
				t.Errorf("time left: -want +got:\n%s; got %q, want %q", diff, s.Progress, test.line)
			}
		})
	}
}

func TestADrainThatHasNoDrainerAtWorkSaysWhy(t *testing.T) {
	in := input(2).leaving(2, claims.Draining, "", "").with(progress(contract.Progress{Phase: contract.PhaseAdding, BytesTotal: 10}))
	in.Cluster.Status = compute(t, in)
	in.Progress = nil
	in.Waits = map[types.UID]claims.Wait{"uid-2": {Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	got := compute(t, in).Drains[0]
	want := []any{cachev1alpha1.DrainStarting, "Unschedulable", "0/1 nodes are available", int64(0)}
	if diff := cmp.Diff(want, []any{got.Phase, got.Reason, got.Message, got.BytesTotal}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A leaving member whose items were moved waits for its last client, and status says which clients
// call it. Another cause of waiting comes first in the message.
func TestALeavingMemberTellsWhoStillCallsIt(t *testing.T) {
	const who = "clients still call it: 44 commands a second; connections: 10.0.0.9 (2)"
	settling := contract.Progress{Phase: contract.PhaseSettling, ItemsDone: 7, ItemsTotal: 9, Message: who}
	changed := func(change func(*contract.Progress)) *contract.Progress {
		p := settling
		change(&p)
		return &p
	}
	alone := func(*Input) {}
	for name, test := range map[string]struct {
		progress        *contract.Progress
		also            func(*Input)
		reason, message string
	}{
		"clients call":           {&settling, alone, cachev1alpha1.ReasonStillCalled, who},
		"no client is named yet": {changed(func(p *contract.Progress) { p.Message = "" }), alone, cachev1alpha1.ReasonStillCalled, "it leaves when no client has called it for some seconds"},
		"items are moved":        {changed(func(p *contract.Progress) { p.Phase, p.Message = contract.PhaseAdding, "" }), alone, "", ""},
		"a survivor is silent":   {changed(func(p *contract.Progress) { p.Phase, p.Message = contract.PhaseAdding, "waiting for cache-0" }), alone, cachev1alpha1.ReasonSurvivorUnreachable, "waiting for cache-0"},
		"its mover has no node": {&settling, func(in *Input) {
			in.Waits = map[types.UID]claims.Wait{"uid-2": {Reason: "Unschedulable", Message: "0/1 nodes are available"}}
		}, "Unschedulable", "0/1 nodes are available"},
		"others leave with it": {&settling, func(in *Input) {
			in.Plan.Drains[0].Reason, in.Plan.Drains[0].Message = claims.InTurn, "it leaves together with the others"
		}, claims.InTurn, "it leaves together with the others"},
		"nothing is known": {nil, alone, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(2).leaving(2, claims.Leaving, "", "").with(test.also)
			items := int64(0)
			if test.progress != nil {
				in.with(progress(*test.progress))
				items = 7
			}
			all := compute(t, in)
			got := all.Drains[0]
			want := []any{cachev1alpha1.DrainLeaving, test.reason, test.message, items, int32(1)}
			if diff := cmp.Diff(want, []any{got.Phase, got.Reason, got.Message, got.ItemsDone, all.Moving}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestADrainTellsSinceWhenItWaits(t *testing.T) {
	in := input(2)
	at := func(seconds int64, phase claims.DrainPhase, reason string) {
		t.Helper()
		in.Now = time.Unix(5000+seconds, 0)
		in.Plan.Drains = nil
		in.leaving(2, phase, reason, "message")
		in.Cluster.Status = compute(t, in)
	}
	since := func(want int64) {
		t.Helper()
		if got := in.Cluster.Status.Drains[0].Since; got == nil || got.Unix() != 5000+want {
			t.Errorf("at %d s: waits since %v, want since %d s", in.Now.Unix()-5000, got, want)
		}
	}
	at(0, claims.Waiting, claims.PodPresent)
	since(0)
	at(10, claims.Waiting, claims.PodPresent)
	since(0)
	at(20, claims.Waiting, claims.InTurn)
	since(20)
	in.Progress = map[types.UID]contract.Progress{"uid-2": {Phase: contract.PhaseAdding, BytesDone: 1, BytesTotal: 10}}
	at(30, claims.Draining, "")
	since(30)
	at(40, claims.Draining, "")
	since(30)
	in.Progress["uid-2"] = contract.Progress{Phase: contract.PhaseAdding, BytesDone: 1, BytesTotal: 10, Message: "waiting for cache-0"}
	at(50, claims.Draining, "")
	since(50)
	at(60, claims.Draining, "")
	since(50)
}

func TestDrainingCountsWhatIsUnderWayWhatFailedAndWhatAPersonHolds(t *testing.T) {
	held := func(in *Input) { in.leaving(4, claims.Held, claims.HeldByRequest, "held") }
	failed := func(in *Input) { in.leaving(3, claims.Failed, "SourceCorrupt", "torn") }
	runs := func(in *Input) { in.leaving(2, claims.Draining, "", "") }
	waits := func(in *Input) { in.leaving(1, claims.Waiting, claims.InTurn, "wait") }
	for name, test := range map[string]struct {
		in       *Input
		draining bool
		reason   string
		message  string
	}{
		"none":                 {input(1), false, "", ""},
		"one runs":             {input(1).with(runs), true, "Draining", "volumes to drain: 1"},
		"one runs, one waits":  {input(1).with(runs).with(waits), true, "Draining", "volumes to drain: 2"},
		"held":                 {input(1).with(held), false, "DrainHeld", "drains held by a person: 1"},
		"two are held":         {input(1).with(held).with(held), false, "DrainHeld", "drains held by a person: 2"},
		"failed":               {input(1).with(failed), false, "DrainFailed", "failed drains: 1"},
		"failed, and one held": {input(1).with(held).with(failed), false, "DrainFailed", "failed drains: 1; drains held by a person: 1"},
		"all of it": {
			input(1).with(held).with(failed).with(runs).with(waits), true, "Draining",
			"volumes to drain: 2; failed drains: 1; drains held by a person: 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := meta.FindStatusCondition(compute(t, test.in).Conditions, cachev1alpha1.ConditionDraining)
			if (c != nil && c.Status == metav1.ConditionTrue) != test.draining || reasonOf(c) != test.reason || messageOf(c) != test.message {
				t.Errorf("got %+v, want %s: %q", c, test.reason, test.message)
			}
		})
	}
}

// The last mover of a member without a volume counts the items that it left with. The first receipt counts,
// because the mover's Job is gone afterwards.
func TestAMemberThatLeavesWithItemsIsCounted(t *testing.T) {
	receipt := func(r contract.Receipt) *claims.Job {
		r.Version = 1
		return &claims.Job{State: claims.JobFailed, Receipt: plan.ReceiptOf(&r)}
	}
	for name, test := range map[string]struct {
		why    action.Release
		mover  *claims.Job
		says   *contract.Progress
		wanted *cachev1alpha1.DrainReceipt
	}{
		"all is moved":              {action.ByMove, receipt(contract.Receipt{Complete: true, Found: 5, Outcomes: contract.Outcomes{Added: 5}}), nil, &cachev1alpha1.DrainReceipt{Result: "Moved", Moved: 5}},
		"some were refused":         {action.NotMoved, receipt(contract.Receipt{Complete: true, Found: 9, Outcomes: contract.Outcomes{Added: 5, Expired: 1, Rejected: 3}}), nil, &cachev1alpha1.DrainReceipt{Result: "NotMoved", Moved: 5, Expired: 1, NotMoved: ptr.To[int64](3)}},
		"its mover read not all":    {action.NotMoved, receipt(contract.Receipt{Found: 9, Outcomes: contract.Outcomes{Added: 5}}), nil, &cachev1alpha1.DrainReceipt{Result: "NotMoved", Moved: 5}},
		"a skip while it is moved":  {action.BySkip, &claims.Job{}, &contract.Progress{ItemsDone: 4, ItemsTotal: 10}, &cachev1alpha1.DrainReceipt{Result: "Skipped", Moved: 4, NotMoved: ptr.To[int64](6)}},
		"there was no mover":        {action.BySkip, nil, nil, &cachev1alpha1.DrainReceipt{Result: "Skipped"}},
		"it has had no items":       {"", nil, nil, nil},
		"spec.drain.policy: Delete": {action.ByPolicyDelete, nil, nil, &cachev1alpha1.DrainReceipt{Result: "Deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(2).leaving(2, claims.Waiting, claims.PodPresent, "it shuts down")
			in.Cluster.Spec.Storage.Mode = cachev1alpha1.StorageMemory
			d := &in.Plan.Drains[0]
			d.Claim.InPod, d.Why, d.Mover = true, test.why, test.mover
			if test.says != nil {
				in.Progress = map[types.UID]contract.Progress{d.Claim.UID: *test.says}
			}
			in.StatefulSet = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}
			if got := compute(t, in).LastDrains; len(got) > 0 {
				t.Errorf("before it goes: %+v", got)
			}
			in.StatefulSet.Spec.Replicas = ptr.To[int32](2)
			var want []cachev1alpha1.DrainReceipt
			if r := test.wanted; r != nil {
				r.Claim, r.ClaimUID, r.EndedAt, r.Duration = d.Claim.Name, string(d.Claim.UID), metav1.NewTime(now), &metav1.Duration{Duration: 1000 * time.Second}
				want = append(want, *r)
			}
			before := in.Cluster.DeepCopy()
			in.Cluster.Status = compute(t, in)
			if diff := cmp.Diff(want, in.Cluster.Status.LastDrains); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			told := test.wanted != nil && (test.why == action.BySkip || test.why == action.NotMoved)
			if got := NewlyNotMoved(before, in.Cluster); told != (len(got) == 1) {
				t.Errorf("the event tells of %+v", got)
			}
			d.Why, d.Mover = action.NotMoved, nil
			if test.why == "" {
				return
			}
			if got := compute(t, in).LastDrains; len(got) != 1 || got[0].Result != string(test.why) {
				t.Errorf("without the Job: %+v", got)
			}
		})
	}
}
