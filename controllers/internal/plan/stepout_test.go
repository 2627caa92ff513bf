package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// replacing3 is a cluster of three members whose template has just changed, with exclusive routers at rest.
func replacing3() *scene {
	return at(3).with(patient).with(func(o *Observed) {
		o.Now, o.Ready = now, []int32{0, 1, 2}
		o.Cluster.Moved = true
		o.StatefulSet.Partition, o.StatefulSet.Seen, o.StatefulSet.Outdated = 3, true, []int32{0, 1, 2}
		o.Tellable = []int32{0, 1, 2}
	}).table(contract.RingStable, 0, 3).exclusive(true)
}

// outOf3 is the same with member 2 out of the ring, moved and acknowledged.
func outOf3(changes ...func(*Observed)) *scene {
	s := replacing3().with(func(o *Observed) {
		o.Record = o.Record.Next(o.Record.Ring.Without(2))
		o.Claims[2].Moved = o.Record.Serial
		o.MemberPods = []action.PodRef{{Name: "cache-2", Ordinal: 2}}
	})
	s.o.Table = &ring.Table{State: contract.RingStable, New: s.o.Record.Ring, Since: now, Acknowledged: true}
	for _, change := range changes {
		change(&s.o)
	}
	return s
}

func unacknowledged(o *Observed) { o.Table.Acknowledged = false }

// gone2 lets member 2 be away.
func gone2(since time.Duration) func(*Observed) {
	return func(o *Observed) { o.Ready, o.Away = []int32{0, 1}, []Away{{2, now.Add(-since)}} }
}

func gone1(since time.Duration) func(*Observed) {
	return func(o *Observed) { o.Ready, o.Away = []int32{0, 2}, []Away{{1, now.Add(-since)}} }
}

// out1 lets member 1 be out, in place of member 2.
func out1(o *Observed) {
	o.Record.Ring.Out, o.Table.New.Out, o.Claims[1].Moved = 2, 2, o.Record.Serial
	o.MemberPods = []action.PodRef{{Name: "cache-1", Ordinal: 1}}
}

func empty1(o *Observed) { o.Empty = []int32{1} }

func aside1(o *Observed) { o.Aside = []int32{1} }

func stuck(o *Observed) { o.Stuck = []Stuck{{"x", now.Add(-stuckFor)}} }

// outOf3In lets member 2 be out, as in outOf3.
func outOf3In(change func(*Observed)) func(*Observed) {
	return func(o *Observed) {
		in := outOf3(change)
		o.Record, o.Table, o.Ready, o.Away, o.MemberPods = in.o.Record, in.o.Table, in.o.Ready, in.o.Away, in.o.MemberPods
		o.Claims[2].Moved = o.Record.Serial
	}
}

// growing is a scale-up to four, whose new member is not ready, and another template.
func growing(since time.Duration) *scene {
	return replacing3().wanted(4).with(func(o *Observed) {
		o.StatefulSet.Replicas, o.StatefulSet.Partition, o.StatefulSet.Outdated = 4, 4, []int32{0, 1, 2, 3}
		o.Pods, o.Tellable, o.Away = []int32{0, 1, 2, 3}, []int32{0, 1, 2, 3}, []Away{{3, now.Add(-since)}}
		o.Claims = append(o.Claims, o.Claims[2])
		o.Claims[3].Ordinal, o.Claims[3].Name, o.Claims[3].UID = 3, name(3), uid(3)
	})
}

// cold is a cluster whose clients are told of it when it has been filled from another cache, which has failed.
func cold() *scene {
	return replacing3().with(func(o *Observed) {
		o.ListSize = 0
		o.Warm = &Warm{Holder: claims.Claim{Name: "cache", UID: "uid-cache"}, Source: "source", Made: "made", HoldsList: true}
	})
}

func emptied(o *Observed) { o.Empty = []int32{2} }

func upToDate(o *Observed) { o.StatefulSet.Outdated = []int32{0, 1} }

// TestTheNextMemberStepsOutOrRestartsWhereItIs, or waits, and status says why.
func TestTheNextMemberStepsOutOrRestartsWhereItIs(t *testing.T) {
	lost := func(since time.Duration) func(*Observed) {
		return func(o *Observed) { o.Ready, o.Away = []int32{1, 2}, []Away{{0, now.Add(-since)}} }
	}
	for what, test := range map[string]struct {
		scene     *scene
		state     StepState
		why       string
		partition int32
	}{
		"all is well":                {replacing3(), StepsOut, "", 3},
		"Kubernetes has not seen it": {replacing3().with(func(o *Observed) { o.StatefulSet.Seen = false }), "", "", 3},
		"all are replaced":           {replacing3().with(func(o *Observed) { o.StatefulSet.Outdated = nil }), "", "", 0},
		"rollout is Restart":         {replacing3().with(func(o *Observed) { o.Cluster.Moved = false }), "", "", 0},
		"direct clients":             {replacing3().exclusive(false), RestartsInPlace, "router.exclusive is not set", 2},
		"no moves":                   {replacing3().with(func(o *Observed) { o.Cluster.MovesOff = true }), RestartsInPlace, "move no items", 2},
		"old supervisors":            {replacing3().with(func(o *Observed) { o.Tellable = nil }), RestartsInPlace, "before rollout was Moved", 2},
		"its claim is deleted":       {replacing3().change(2, deleting), RestartsInPlace, "its claim is being deleted", 2},
		"its claim is not seen":      {replacing3().with(func(o *Observed) { o.Claims = o.Claims[:2] }), StepDelayed, "its claim is not there", 3},
		"its pod is not seen":        {replacing3().with(func(o *Observed) { o.Pods, o.Ready, o.Tellable = []int32{0, 1}, []int32{0, 1}, []int32{0, 1} }), StepDelayed, "member 2 is not ready", 3},
		"a drain is held":            {replacing3().left(3, requested(claims.Hold)), RestartsInPlace, "waits for a person", 2},
		"a drain has failed":         {replacing3().left(3).job(3, 3, unreadable), RestartsInPlace, "has failed", 2},
		"a drainer does not end": {replacing3().left(3).with(func(o *Observed) { o.Stuck = []Stuck{{"drainer cache-drain does not end", now.Add(-stuckFor)}} }),
			RestartsInPlace, "drainer cache-drain does not end", 2},
		"a drainer does not end yet": {replacing3().left(3).with(func(o *Observed) { o.Stuck = []Stuck{{"drainer cache-drain does not end", now.Add(1 - stuckFor)}} }),
			StepDelayed, "a volume is drained first", 3},
		"a drain is due":                {replacing3().left(3), StepDelayed, "a volume is drained first", 3},
		"another size":                  {replacing3().wanted(4), StepDelayed, "the size changes first", 3},
		"routers change rings":          {replacing3().table(contract.RingFinish, 2, 3).exclusive(true), StepDelayed, "", 3},
		"a member is away for a moment": {replacing3().with(lost(time.Second)), StepDelayed, "member 0 is not ready", 3},
		"a member is away":              {replacing3().with(lost(lostAfter)), RestartsInPlace, "member 0 is away", 2},
		"too little memory": {replacing3().with(func(o *Observed) { o.StepRoom = &Room{Leaving: 64 << 20, Evicted: 32 << 20, Paged: true} }),
			RestartsInPlace, "it has 64.0 MiB of items, for which members would evict 32.0 MiB, counted in size classes", 2},
		"they are asked":      {replacing3().with(func(o *Observed) { o.StepRoom = &Room{Pending: true} }), StepDelayed, "how full", 3},
		"it is not known":     {replacing3().with(func(o *Observed) { o.StepRoom = &Room{Unknown: "TLS"} }), StepsOut, "", 3},
		"the restart goes on": {replacing3().with(func(o *Observed) { o.StatefulSet.Partition, o.Ready = 2, []int32{0, 1} }), RestartsInPlace, "", 2},
		"it moves its items":  {outOf3(func(o *Observed) { o.Claims[2].Moved = 0 }), StepsOut, "", 3},
		"its claim is deleted, and it is away": {outOf3(func(o *Observed) {
			o.Claims[2].Moved, o.Claims[2].Deleting, o.Ready = 0, true, []int32{0, 1}
		}), StepsOut, "", 3},
		"a router is behind":   {outOf3(unacknowledged, emptied), StepsOut, "", 3},
		"it is out":            {outOf3(), StepEmpties, "", 3},
		"it has started empty": {outOf3(emptied), StepWaits, "", 2},
		"a higher one first":   {outOf3(emptied, func(o *Observed) { o.StatefulSet.Outdated, o.StatefulSet.Replicas = []int32{2, 3}, 4 }), StepsIn, "", 3},
		"it is replaced":       {outOf3(emptied, upToDate), StepsIn, "", 3},
		"its new pod can't start, and the template is another one": {outOf3(gone2(lostAfter)), StepEmpties, "away for a minute", 2},
		"the same, for a moment":                                   {outOf3(gone2(time.Second)), StepEmpties, "", 3},
		"the same, before its items are moved":                     {outOf3(gone2(lostAfter), func(o *Observed) { o.Claims[2].Moved = 0 }), StepsOut, "away for a minute", 2},
		"the same, and a higher one has an earlier correction":     {outOf3(gone1(stuckFor), out1), StepEmpties, "away for a minute", 1},
		"the same, for a minute":                                   {outOf3(gone1(lostAfter), out1), StepEmpties, "away for a minute", 3},
		"the same, and its supervisor answers":                     {outOf3(gone1(stuckFor), out1, empty1), StepWaits, "away for a minute, and the members above it", 3},
		"the same, and it was to be evicted":                       {outOf3(gone1(stuckFor), out1, cordoned(1), aside1), StepEmpties, "", 3},
		"the same, without volumes":                                {inPods3(outOf3In(gone1(stuckFor)), out1), StepEmpties, "delete its pod, which then gets that of the last roll-out that has ended; or set spec.rollout to Restart", 3},
		"the same, without volumes, by a person's word":            {inPods3(outOf3In(gone1(lostAfter)), out1, func(o *Observed) { o.Cluster.Moved = false }), StepEmpties, "away for a minute", 1},
		"the same, without volumes, and a drainer doesn't end":     {inPods3(outOf3In(func(o *Observed) { o.Ready = []int32{0, 1, 2} }), out1, stuck), StepEmpties, "", 3},
		"no client is told before it is warm, without volumes":     {cold().with(func(o *Observed) { o.Cluster.InPods = true }), RestartsInPlace, "before the cluster is warm", 2},
		"the same, and claims are copied": {cold().with(func(o *Observed) {
			o.Cluster.InPods, o.Warm.Record.Claims = true, []string{"a"}
		}), StepDelayed, "the size changes first", 3},
		"the same, and a member can't start": {cold().with(func(o *Observed) {
			o.Cluster.InPods, o.Warm.Record.Claims, o.Ready = true, []string{"a"}, []int32{1, 2}
		}), RestartsInPlace, "before the cluster is warm", 2},
		"a copy's pod does not end": {inPods3(func(o *Observed) {
			o.Drainers = []claims.Drainer{{Pod: "cache-warm-x", ClaimUID: "uid-cache", Target: ring.WarmTarget("made", 0, o.Record)}}
		}), StepDelayed, "items are moved first, by drainer cache-warm-x", 3},
		"without volumes, it has no items":                {inPods3(outOf3In(gone2(lostAfter))), StepEmpties, "away for a minute", 2},
		"without volumes, before its items are moved":     {inPods3(outOf3In(gone2(lostAfter)), func(o *Observed) { o.Claims[2].Moved = 0 }), StepsOut, "away for a minute", 3},
		"its mover does not start":                        {outOf3(func(o *Observed) { o.Claims[2].Moved, o.Stuck = 0, []Stuck{{"x", now.Add(-stuckFor)}} }), StepsOut, "", 2},
		"a member that joins can't start":                 {growing(lostAfter), RestartsInPlace, "member 3 is away", 3},
		"a member that joins without volumes can't start": {growing(lostAfter).with(func(o *Observed) { o.Cluster.InPods = true }), RestartsInPlace, "member 3 is away", 3},
		"a member that joins starts":                      {growing(time.Second), StepDelayed, "the size changes first", 4},
		"items are moved, and a member can't start":       {replacing3().with(func(o *Observed) { o.Record.From, o.Record.Serial = o.Cluster.Ring.Of(2), 1 }).with(lost(lostAfter)), RestartsInPlace, "member 0 is away", 2},
		"no client is told before the cluster is warm":    {cold(), RestartsInPlace, "before the cluster is warm", 2},
		"its node is cordoned, and others wait":           {outOf3(emptied, upToDate, cordoned(2)), StepsIn, "", 3},
		"it is not ready":                                 {outOf3(emptied, upToDate, func(o *Observed) { o.Ready = []int32{0, 1} }), StepWaits, "", 3},
		"rollout is Restart now":                          {outOf3(emptied, func(o *Observed) { o.Cluster.Moved = false }), StepWaits, "", 2},
	} {
		t.Run(what, func(t *testing.T) {
			s := test.scene
			p := Next(&s.o)
			if p.State != test.state || !strings.Contains(p.Why, test.why) || p.Partition != test.partition {
				t.Errorf("%+v\nwant %q, %q, partition %d", p.Step, test.state, test.why, test.partition)
			}
			if tells := len(actions[action.StartEmpty](p)) > 0; tells != (test.state == StepEmpties || test.state == StepWaits) {
				t.Errorf("told to start empty: %t", tells)
			}
		})
	}
}

// TestAMemberWithoutAVolumeStepsOutToo, also if the others have too little room, or clients no time: a restart where it is
// loses all of its items, and the plan says so.
func TestAMemberWithoutAVolumeStepsOutToo(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*Observed)
		state  StepState
		why    string
	}{
		"all is well":       {func(*Observed) {}, StepsOut, ""},
		"too little memory": {func(o *Observed) { o.StepRoom = &Room{Leaving: 64 << 20, Evicted: 32 << 20} }, StepsOut, ""},
		"no patience":       {func(o *Observed) { o.Cluster.Patience = 0 }, StepsOut, ""},
		"no moves":          {func(o *Observed) { o.Cluster.MovesOff = true }, RestartsInPlace, "move no items"},
		"its pod is ended":  {func(o *Observed) { o.Claims[2].Deleting = true }, RestartsInPlace, "its pod is being deleted"},
	} {
		s := inPods3(test.change)
		p := Next(&s.o)
		if p.State != test.state || !strings.Contains(p.Why, test.why) || p.Loses != (test.state == RestartsInPlace) {
			t.Errorf("%s: %+v", what, p.Step)
		}
		for _, i := range []int32{0, 1, 2} {
			if s.o.StepsOut(i) != (test.state == StepsOut || i < 2 && what == "its pod is ended") {
				t.Errorf("%s: member %d steps out: %t", what, i, s.o.StepsOut(i))
			}
		}
	}
}

// TestTheWayOfARollOutIsToldOnce: when its first member steps out, or restarts where it is, and when a later one restarts
// where it is although the spec lets it step out.
func TestTheWayOfARollOutIsToldOnce(t *testing.T) {
	second := func(o *Observed) { o.StatefulSet.Partition, o.StatefulSet.Outdated = 2, []int32{0, 1} }
	away := func(o *Observed) { o.Ready, o.Away = []int32{1, 2}, []Away{{0, now.Add(-time.Hour)}} }
	off := func(o *Observed) { o.Cluster.MovesOff = true }
	prepares := func(o *Observed) {
		o.Table = &ring.Table{State: contract.RingPrepare, Old: o.Record.Ring, New: o.Record.Ring.Without(2), Since: now}
	}
	for what, test := range map[string]struct {
		scene  *scene
		begins bool
		why    string
	}{
		"the first steps out":             {replacing3(), true, ""},
		"routers are told already":        {replacing3().with(prepares), false, ""},
		"the second steps out":            {replacing3().with(second), false, ""},
		"the first restarts":              {replacing3().with(off), false, "move no items"},
		"the second does":                 {replacing3().with(off).with(second), false, ""},
		"the second does, and could step": {replacing3().with(away).with(second), false, "member 0 is away"},
		"a member steps out for its node": {rested(cordoned(1)), false, ""},
	} {
		p := Next(&test.scene.o)
		tables, sets := actions[action.WriteTable](p), actions[action.ApplyStatefulSet](p)
		if len(tables) != 1 || len(sets) != 1 || tables[0].Begins != test.begins || !strings.Contains(sets[0].Why, test.why) || (test.why == "") != (sets[0].Why == "") {
			t.Errorf("%s: %+v %+v", what, tables, p.Step)
		}
	}
}

// TestARollOutWaitsForNoPerson: a size that can't change, or a move that is not tried again by itself, doesn't hold it up.
func TestARollOutWaitsForNoPerson(t *testing.T) {
	short := func(o *Observed) {
		o.Cluster.Size, o.Cluster.WaitForRoom, o.Room = 2, true, &Room{Leaving: 2, Evicted: 1}
	}
	refused := func(o *Observed) {
		o.Cluster.Size = 2
		o.Obstructed = map[types.UID]claims.Obstruction{uid(2): {Why: "no", Until: now.Add(time.Hour)}}
	}
	unmoved := func(final bool) func(*Observed) {
		return func(o *Observed) {
			o.Record.From, o.Record.Serial = o.Cluster.Ring.Of(2), 1
			o.Claims[1].Moved, o.Claims[2].Moved = 1, 1
			receipt := ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source(uid(0), o.Record.Target()), Reason: "BadArguments", ExitCode: contract.ExitUsage})
			receipt.Final = final
			o.Moves = []claims.Job{{Name: "move", UID: "j", ClaimUID: uid(0), Target: o.Record.Target(), State: claims.JobFailed, Receipt: receipt, Ended: now}}
		}
	}
	for what, test := range map[string]struct {
		scene   *scene
		blocked Block
		state   StepState
		why     string
	}{
		"a volume is kept, and in the way":     {replacing3().left(3, decided(claims.Retain), unheld).wanted(4), BlockedByVolume, StepsOut, ""},
		"its volume is drained soon":           {replacing3().left(3).wanted(4), BlockedByVolume, StepDelayed, "drained first"},
		"too little room":                      {replacing3().with(short), BlockedByShortage, RestartsInPlace, "too little memory"},
		"too little room, and it has the only": {inPods3(short), BlockedByShortage, StepsOut, ""},
		"a mark is refused":                    {replacing3().with(refused), BlockedByRefusal, StepsOut, ""},
		"a move has failed for good":           {replacing3().with(unmoved(true)), NotBlocked, RestartsInPlace, "a move has failed"},
		"a move is tried again":                {replacing3().with(unmoved(false)), NotBlocked, StepDelayed, "items are moved first"},
	} {
		p := Next(&test.scene.o)
		if p.SizeBlocked != test.blocked || p.State != test.state || !strings.Contains(p.Why, test.why) {
			t.Errorf("%s: blocked %q, %+v", what, p.SizeBlocked, p.Step)
		}
	}
}

// inPods3 is a cluster of three members without volumes, whose template has just changed.
func inPods3(changes ...func(*Observed)) *scene {
	s := replacing3().with(func(o *Observed) {
		o.Cluster.InPods = true
		for i := range o.Claims {
			o.Claims[i].InPod = true
		}
	})
	for _, change := range changes {
		change(&s.o)
	}
	return s
}

// TestThePlanSaysWhatIsLost without volumes, before it is: each write that lets members go that have not stepped out.
func TestThePlanSaysWhatIsLost(t *testing.T) {
	restart := func(o *Observed) { o.Cluster.Moved = false }
	for what, test := range map[string]struct {
		scene *scene
		loses bool
	}{
		"members step out":                             {inPods3(), false},
		"a member is away":                             {inPods3(func(o *Observed) { o.Ready, o.Away = []int32{1, 2}, []Away{{0, now.Add(-time.Hour)}} }), true},
		"rollout becomes Restart midway":               {inPods3(restart), true},
		"the same, and all are replaced":               {inPods3(restart, func(o *Observed) { o.StatefulSet.Outdated = nil }), false},
		"the same, with volumes":                       {replacing3().with(restart), false},
		"a member is out, and rollout becomes Restart": {inPods3(outOf3In(gone1(lostAfter)), out1, restart), true},
		"a member is out and can't start":              {inPods3(outOf3In(gone2(lostAfter))), false},
		"rollout was Restart before":                   {inPods3(restart, func(o *Observed) { o.StatefulSet.Partition = 0 }), false},
	} {
		p := Next(&test.scene.o)
		if a := actions[action.ApplyStatefulSet](p); len(a) != 1 || a[0].Loses != test.loses {
			t.Errorf("%s: %+v", what, p.Step)
		}
	}
	for what, test := range map[string]struct {
		change func(*Observed)
		why    string
	}{
		"members step out":       {func(*Observed) {}, ""},
		"nodes can't be watched": {func(o *Observed) { o.NodesUnknown = "forbidden" }, "forbidden"},
		"no step fits":           {func(o *Observed) { o.Cluster.MovesOff = true }, "move no items"},
	} {
		s := inPods3(func(o *Observed) { o.StatefulSet.Partition, o.StatefulSet.Outdated = 0, nil }, cordoned(1), test.change)
		if a := actions[action.ApplyBudget](Next(&s.o)); len(a) != 1 || !strings.Contains(a[0].Loses, test.why) || (test.why == "") != (a[0].Loses == "") {
			t.Errorf("%s: %+v, want that they lose their items: %q", what, a, test.why)
		}
	}
}

// TestASizeGoesOnWithoutAMemberThatIsOutAndGone for a minute, and the member stays out. Status says how the step ends.
func TestASizeGoesOnWithoutAMemberThatIsOutAndGone(t *testing.T) {
	away := func(since time.Duration) func(*Observed) {
		return func(o *Observed) { o.Ready, o.Away = []int32{0, 1}, []Away{{2, now.Add(-since)}} }
	}
	unmoved := func(o *Observed) { o.Claims[2].Moved = 0 }
	for what, scene := range map[string]func() *scene{
		"it has moved its items":   func() *scene { return outOf3() },
		"it may still have items":  func() *scene { return outOf3(unmoved) },
		"it has started empty too": func() *scene { return outOf3(emptied, upToDate) },
	} {
		for _, size := range []int32{1, 2, 4, 5} {
			s := scene().with(away(lostAfter - time.Second)).wanted(size)
			p := Next(&s.o)
			if p.SizeBlocked == NotBlocked || !p.Wake.Equal(now.Add(time.Second)) {
				t.Errorf("%s, a member fewer of %d for a moment: blocked %q, looked at again at %s", what, size, p.SizeBlocked, p.Wake)
			}
			s = scene().with(away(lostAfter)).wanted(size)
			if p = Next(&s.o); p.SizeBlocked != NotBlocked || p.Replicas != size || p.Record.Ring.Has(2) {
				t.Errorf("%s, %d wanted: %d members, blocked %q, ring %s", what, size, p.Replicas, p.SizeBlocked, p.Record.Ring)
			}
			if !strings.Contains(p.Why, "delete its pod") {
				t.Errorf("%s: status says %q", what, p.Why)
			}
		}
	}
}

// TestTheFirstMemberStaysInARingOfOne, also if it is out and gone: a ring has a member.
func TestTheFirstMemberStaysInARingOfOne(t *testing.T) {
	s := replacing3().with(func(o *Observed) {
		o.Record = o.Record.Next(o.Record.Ring.Without(0))
		o.Claims[0].Moved = o.Record.Serial
		o.Ready, o.Away = []int32{1, 2}, []Away{{0, now.Add(-lostAfter)}}
	}).wanted(1)
	s.o.Table = &ring.Table{State: contract.RingStable, New: s.o.Record.Ring, Since: now, Acknowledged: true}
	if p := Next(&s.o); p.Replicas != 3 || p.SizeBlocked != BlockedByStep || p.Record != p.From {
		t.Errorf("%d members, blocked %q, %s", p.Replicas, p.SizeBlocked, p.Record)
	}
}

// TestAMemberIsAsideOnlyWhileItIsOutForItsEviction: whatever changes the ring or the spec meanwhile, it is told that it may
// be ready again.
func TestAMemberIsAsideOnlyWhileItIsOutForItsEviction(t *testing.T) {
	aside := func(o *Observed) { o.Aside = []int32{2} }
	for what, test := range map[string]struct {
		scene *scene
		ends  int
	}{
		"it waits for its eviction":                         {outOf3(emptied, func(o *Observed) { o.StatefulSet.Outdated = nil }, cordoned(2), aside), 0},
		"a router is behind":                                {outOf3(emptied, unacknowledged, cordoned(2), aside), 0},
		"its node takes pods again, which StartEmpty says":  {outOf3(emptied, aside, func(o *Observed) { o.StatefulSet.Outdated = nil }), 0},
		"its node takes pods again, and a router is behind": {outOf3(emptied, unacknowledged, aside), 1},
		"it is moved by another ring":                       {outOf3(emptied, cordoned(2), aside, func(o *Observed) { o.Claims[2].Moved = 0 }), 1},
		"clients call members directly":                     {outOf3(emptied, aside, func(o *Observed) { o.Cluster.Exclusive = false }), 1},
		"no member is out":                                  {rested(aside, func(o *Observed) { o.MemberPods = []action.PodRef{{Name: "cache-2", Ordinal: 2}} }), 1},
	} {
		p := Next(&test.scene.o)
		if ends := actions[action.EndAside](p); len(ends) != test.ends {
			t.Errorf("%s: %v, %+v", what, ends, p.Step)
		}
	}
}

// TestAStepIsNoReasonForAnother: while a member is out, another template replaces no other one by itself.
func TestAStepIsNoReasonForAnother(t *testing.T) {
	s := outOf3(emptied, cordoned(2), func(o *Observed) { o.Cluster.Moved, o.StatefulSet.Outdated, o.StatefulSet.Partition = false, nil, 0 })
	if a := actions[action.ApplyStatefulSet](Next(&s.o)); len(a) != 1 || !a[0].Steps {
		t.Errorf("%+v", a)
	}
}

// TestAFailedMoveOfAMemberThatIsOutSaysWhatASkipCosts: the member starts empty.
func TestAFailedMoveOfAMemberThatIsOutSaysWhatASkipCosts(t *testing.T) {
	s := outOf3(func(o *Observed) { o.Claims[2].Moved = 0 })
	s.o.Moves = []claims.Job{{Name: "move", UID: "j", ClaimUID: s.o.Claims[2].UID, Target: s.o.Record.Target(), State: claims.JobFailed,
		Receipt: ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source(s.o.Claims[2].UID, s.o.Record.Target()), Reason: "BadArguments", Message: "no such flag", ExitCode: contract.ExitUsage})}}
	p := Next(&s.o)
	if len(p.Moves) != 1 || p.Moves[0].Phase != MoveFailed || !strings.Contains(p.Moves[0].Message, "the member starts empty") {
		t.Errorf("the moves are %+v", p.Moves)
	}
}

// TestNoMemberIsToldToStartEmptyWhileTheRingChanges, because its items may have to be moved by the next ring.
func TestNoMemberIsToldToStartEmptyWhileTheRingChanges(t *testing.T) {
	s := outOf3()
	s.o.Cluster.Ring.Client = "gomemcache"
	if p := Next(&s.o); p.Record == p.From || len(actions[action.StartEmpty](p)) > 0 {
		t.Errorf("record %s, actions %v", p.Record, p.Actions)
	}
}

// TestAMemberIsToldToStartEmptyOnlyWhenItsItemsAreElsewhere, by a live read.
func TestAMemberIsToldToStartEmptyOnlyWhenItsItemsAreElsewhere(t *testing.T) {
	told := action.StartEmpty{Pod: action.PodRef{Name: "cache-2", Ordinal: 2}, Serial: 1}
	const refused = "member 2 is not out of the ring yet"
	refusals(t, func(o *Observed) error { return MayStartEmpty(o, told) }, map[*scene]string{
		outOf3(): "",
		outOf3(func(o *Observed) { o.Claims[2].Moved = 0 }):                             refused,
		outOf3(func(o *Observed) { o.Claims[2].Moved, o.Claims[2].Deleting = 0, true }): refused,
		outOf3(unacknowledged):                                                                      refused,
		outOf3(func(o *Observed) { o.Record.Serial = 2 }):                                           refused,
		outOf3(func(o *Observed) { o.Record.Ring.Out = 2 }):                                         refused,
		outOf3(func(o *Observed) { o.Table.State, o.Table.Old = contract.RingMove, o.Record.From }): refused,
		replacing3(): refused,
	})
}

// TestSizesAndDrainsWaitForAStep, and clients' lists stay.
func TestSizesAndDrainsWaitForAStep(t *testing.T) {
	for _, size := range []int32{2, 4} {
		s := outOf3().wanted(size)
		if p := Next(&s.o); p.Replicas != 3 || p.SizeBlocked != BlockedByStep || p.ListSize != 3 || len(actions[action.MarkLeaving](p)) > 0 {
			t.Errorf("size %d: %d members, blocked %q, %d listed", size, p.Replicas, p.SizeBlocked, p.ListSize)
		}
		if err := MaySetReplicas(&s.o, size); err == nil {
			t.Errorf("size %d may be set", size)
		}
	}
	s := outOf3().aside(1, func(c *claims.Claim) { c.Moved = 1 })
	p := Next(&s.o)
	if i := slices.IndexFunc(p.Drains, func(d claims.DrainState) bool { return strings.Contains(d.Message, "out of the ring") }); i < 0 || len(actions[action.CreateDrain](p)) > 0 {
		t.Errorf("the drains are %s", fmt.Sprint(p.Drains))
	}
}
