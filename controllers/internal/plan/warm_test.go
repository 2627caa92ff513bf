package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// warmFrom adds a source, and the changes to it.
func (s *scene) warmFrom(changes ...func(*Warm)) *scene {
	s.o.Now = time.Unix(1_000_000, 0)
	s.o.Ready = slices.Clone(s.o.Pods)
	s.o.Warm = &Warm{Holder: claims.Claim{Name: "cache", UID: "uid-cache"}, Source: "source", Made: "made"}
	for _, change := range changes {
		change(s.o.Warm)
	}
	return s
}

func (s *scene) warmTarget() string { return ring.WarmTarget("made", s.o.Warm.Record.Jobs, s.o.Record) }

// warmJob adds the Job of the warming.
func (s *scene) warmJob(changes ...func(*claims.Job)) *scene {
	j := claims.Job{Name: "warm", UID: "uid-warm", ClaimUID: "uid-cache", Target: s.warmTarget()}
	for _, change := range changes {
		change(&j)
	}
	s.o.Warms = append(s.o.Warms, j)
	return s
}

// copies adds the pod of the Job's drainer, which is at work.
func (s *scene) copies() *scene {
	s.o.Drainers = append(s.o.Drainers, claims.Drainer{Pod: "copies", ClaimUID: "uid-cache", Target: s.warmTarget(), Running: true})
	return s
}

func copied(j *claims.Job) {
	j.State = claims.JobComplete
	j.Receipt = ReceiptOf(&contract.Receipt{
		Version: 1, Source: ring.Source(j.ClaimUID, j.Target), Complete: true, Passes: 2, Found: 12, Outcomes: contract.Outcomes{Added: 9, AlreadyPresent: 1, Rejected: 2},
	})
}

func failedFor(reason string, code int) func(*claims.Job) {
	return func(j *claims.Job) {
		j.State, j.Ended = claims.JobFailed, time.Unix(1_000_000, 0)
		j.Receipt = ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source(j.ClaimUID, j.Target), Reason: reason, Message: "why", ExitCode: code})
	}
}

// rolls lets members get another template, one after the other.
func rolls(o *Observed) {
	o.Cluster.Moved, o.StatefulSet.Seen, o.StatefulSet.Outdated = true, true, []int32{0, 1}
}

func warmed(w *Warm) {
	w.Record = action.WarmRecord{Source: "source", Result: action.WarmCopied, Jobs: 1}
}

// aboutWarming are the actions of the plan about the warming.
func aboutWarming(p *Plan) (said []string) {
	for _, a := range p.Actions {
		if action.KindOf(a).Claim == "uid-cache" {
			said = append(said, a.String())
		}
	}
	return said
}

// TestAnotherCopyIsOneThatBeginsAfterItIsAskedFor: what changed at the source before may be missing in one that was at work.
func TestAnotherCopyIsOneThatBeginsAfterItIsAskedFor(t *testing.T) {
	asks := func(w *Warm) { w.Repeats, w.Asked = true, "again" }
	for what, test := range map[string]struct {
		scene   *scene
		answers string
	}{
		"the Job was made before":                         {at(3).warmFrom(asks).warmJob(copied), ""},
		"another client has removed what the Job answers": {at(3).warmFrom(warmed, asks, func(w *Warm) { w.Record.Owes = true }).warmJob(copied), "again"},
		"the Job was made for it":                         {at(3).warmFrom(warmed, asks).warmJob(copied, func(j *claims.Job) { j.Answers = "again" }), "again"},
	} {
		p := Next(&test.scene.o)
		records := actions[action.RecordWarm](p)
		if len(records) != 1 || records[0].Record.Result != action.WarmCopied || records[0].Answers != test.answers || records[0].Record.Owes != (test.answers == "") {
			t.Errorf("%s: %+v", what, records)
		}
	}
	p := Next(&at(3).warmFrom(warmed, asks).o)
	if made := actions[action.CreateWarm](p); len(made) != 1 || made[0].Answers != "again" {
		t.Errorf("the next Job: %+v", made)
	}
}

func TestAWarmingComesAfterAllThatIsNewerAndIsRecorded(t *testing.T) {
	create, note := "warm 3 members, by ring warm-made-0-0-", "note since when"
	for name, test := range map[string]struct {
		scene *scene
		// want begins the actions about the warming, in order.
		want  []string
		phase WarmPhase
		why   string
	}{
		"nothing is asked for":         {at(3), nil, "", ""},
		"it begins":                    {at(3).warmFrom(), []string{create}, WarmRuns, ""},
		"a member is not ready":        {at(3).warmFrom().with(func(o *Observed) { o.Ready = []int32{0, 2} }), nil, WarmWaits, "not all members are ready"},
		"the cluster hibernates":       {at(3).warmFrom().warmJob().wanted(0), []string{"delete Job warm: the cluster hibernates"}, WarmWaits, "no member runs"},
		"the source is not there":      {at(3).warmFrom(func(w *Warm) { w.NotThere = "no such Memcached" }), []string{note}, WarmWaits, "no such Memcached"},
		"it runs":                      {at(3).warmFrom().warmJob(), nil, WarmRuns, ""},
		"it was removed from the spec": {at(3).warmFrom().warmJob().with(func(o *Observed) { o.Warm = nil }), []string{"delete Job warm: spec.warmFrom was removed"}, "", ""},
		"its pods can't start, and would be made in another way now": {at(3).warmFrom().warmJob(func(j *claims.Job) { j.Unstarted, j.Outdated = true, true }),
			[]string{"delete Job warm: no pod of it has run"}, WarmWaits, "starts anew"},
		"another source":                                {at(3).warmFrom().warmJob().with(func(o *Observed) { o.Warm.Made = "other" }), []string{"delete Job warm: what is copied"}, WarmWaits, "being deleted"},
		"the size changes while it copies":              {at(3).warmFrom().warmJob().copies().wanted(4), nil, WarmRuns, ""},
		"the size changes while it can't copy":          {at(3).warmFrom().warmJob().wanted(4), []string{"delete Job warm: the size changes"}, WarmWaits, "the size changes first"},
		"the size changes before it begins":             {at(3).warmFrom().wanted(4), nil, WarmWaits, "the size changes first"},
		"members are replaced while it copies":          {at(3).warmFrom().warmJob().copies().with(rolls), nil, WarmRuns, ""},
		"members are replaced while it can't copy":      {at(3).warmFrom().warmJob().with(rolls), []string{"delete Job warm: members are replaced"}, WarmWaits, "members are replaced first"},
		"members are replaced before it begins":         {at(3).warmFrom().with(rolls), nil, WarmWaits, "members are replaced first"},
		"without volumes, what is copied would be lost": {at(3).warmFrom(func(w *Warm) { w.HoldsList, w.Record.Claims = true, []string{"a"} }).with(rolls).with(func(o *Observed) { o.Cluster.InPods, o.ListSize = true, 0 }), []string{create}, WarmRuns, ""},
		"it was copied":                                 {at(3).warmFrom().warmJob(copied), []string{"record the warming by ring warm-made-0-0-"}, WarmRuns, ""},
		"it was copied, and a member is to leave":       {at(3).warmFrom().warmJob(copied).wanted(2), []string{"record the warming by ring warm-made-0-0-"}, WarmRuns, ""},
		"its last claims are gone":                      {at(3).warmFrom(claimsLeft(), func(w *Warm) { w.Record.Claims = []string{ClaimHash("uid-a")} }), []string{"record the warming by ring : Warm"}, WarmEnded, ""},
		"it is warm":                                    {at(3).warmFrom(warmed).warmJob(copied), []string{"delete Job warm: the cluster is warm"}, WarmEnded, ""},
		"a word that comes too late":                    {at(3).warmFrom(warmed, func(w *Warm) { w.Holder.MoveRequest, w.Asked = claims.Skip, "skip" }), []string{"clear the request"}, WarmEnded, ""},
		"no other copy, of one that was given up": {at(3).warmFrom(func(w *Warm) {
			w.Holder.MoveRequest, w.Asked, w.Record = claims.Skip, "skip", action.WarmRecord{Source: "source", Result: action.WarmGivenUp, Why: "SourceNotThere"}
		}), []string{"clear the request"}, WarmEnded, ""},
		"a word about no source": {at(3).warmFrom(func(w *Warm) { w.Removed, w.Asked = true, "skip" }), []string{"clear the request"}, "", ""},
		"a person asks for more": {at(3).warmFrom(warmed, func(w *Warm) { w.Repeats, w.Asked = true, "again" }), []string{"warm 3 members, by ring warm-made-1-"}, WarmRuns, ""},
		"a person skips it":      {at(3).warmFrom(func(w *Warm) { w.Holder.MoveRequest, w.Asked = claims.Skip, "skip" }).warmJob(), []string{"delete Job warm: a person skips", "record the warming by ring : Skipped"}, WarmEnded, ""},
		"it failed":              {at(3).warmFrom().warmJob(failedFor(cachev1alpha1.ReasonSourceUnreachable, contract.ExitUnreachable)), []string{note}, WarmFailed, "the next one is at"},
		"it failed a minute ago": {at(3).warmFrom().warmJob(failedFor(cachev1alpha1.ReasonSourceUnreachable, contract.ExitUnreachable)).with(func(o *Observed) { o.Now = o.Now.Add(time.Minute) }),
			[]string{"count failure 1 of claim cache", "delete Job warm: it failed"}, WarmWaits, "next attempt"},
		"a person says retry": {at(3).warmFrom(func(w *Warm) { w.Holder.MoveRequest, w.Asked = claims.Retry, "retry" }).warmJob(failedFor(contract.ReasonTargetTooSmall, contract.ExitUsage)),
			[]string{"delete Job warm: a person asked for a retry", "clear the request"}, WarmWaits, "retry"},
		"the source refuses to be listed": {at(3).warmFrom().warmJob(failedFor(contract.ReasonListingRefused, contract.ExitUsage)), []string{note}, WarmFailed, "spec.warmFrom.onMiss"},
		"routers ask it then": {at(3).warmFrom(func(w *Warm) { w.OnMiss = true }).warmJob(failedFor(contract.ReasonListingRefused, contract.ExitUsage)),
			[]string{"record the warming by ring warm-made-0-0-"}, WarmRuns, ""},
		"the cluster is too small": {at(3).warmFrom().warmJob(failedFor(contract.ReasonTargetTooSmall, contract.ExitUsage)), []string{note}, WarmFailed, "raise spec.size"},
		"a pod is refused, a retry later": {at(3).warmFrom().with(func(o *Observed) {
			o.Obstructed = map[types.UID]claims.Obstruction{"uid-cache": {Why: "a quota", Until: o.Now.Add(time.Second)}}
		}), []string{note}, WarmFailed, "a quota"},
		"a volume is to be drained": {at(2).warmFrom().warmJob().left(2),
			[]string{"delete Job warm: claim data-2 is drained first"}, WarmWaits, "drained first"},
		"items are to be moved": {at(3).warmFrom().with(func(o *Observed) {
			o.Record = o.Record.Next(ring.Ring{Client: "gomemcache", Port: 11211, Size: 3})
			o.Cluster.Ring.Client = "gomemcache"
		}),
			nil, WarmWaits, "moved first"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&test.scene.o)
			said := aboutWarming(&p)
			if !slices.EqualFunc(said, test.want, strings.HasPrefix) {
				t.Errorf("it does %q, want %q", said, test.want)
			}
			if p.Warming.Phase != test.phase || !strings.Contains(p.Warming.Message, test.why) {
				t.Errorf("it is %s: %s, want %s: %s", p.Warming.Phase, p.Warming.Message, test.phase, test.why)
			}
		})
	}
}

func TestTheSizeWaitsForAWarmingAtWorkAndForNoOther(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	for name, test := range map[string]struct {
		scene *scene
		want  int32
	}{
		"at work":          {at(3).warmFrom().warmJob().copies().wanted(4), 3},
		"at work, smaller": {at(3).warmFrom().warmJob().copies().wanted(2), 3},
		"failed":           {at(3).warmFrom().warmJob(failedFor(cachev1alpha1.ReasonSourceUnreachable, contract.ExitUnreachable)).wanted(4), 4},
		"not begun":        {at(3).warmFrom(func(w *Warm) { w.NotThere = "gone" }).wanted(4), 4},
		"at work, size 0":  {at(3).warmFrom().warmJob().wanted(0), 0},
	} {
		p := Next(&test.scene.o)
		if p.Replicas != test.want {
			t.Errorf("%s: %d members, want %d (%s)", name, p.Replicas, test.want, p.SizeBlocked)
		}
	}
}

func TestANewClusterIsOnItsOwnListWhenItIsWarm(t *testing.T) {
	listed := func(s *scene) int32 { p := Next(&s.o); return p.ListSize }
	fresh := func(changes ...func(*Warm)) *scene {
		return at(3).warmFrom(append(changes, func(w *Warm) { w.HoldsList = true })...).with(func(o *Observed) { o.ListSize, o.Record.Ring = 0, o.Cluster.Ring.Of(0) })
	}
	if got := listed(fresh()); got != 0 {
		t.Errorf("%d members are on the list of a cold cluster", got)
	}
	if p := Next(&fresh().o); p.Record.Ring.Size != 3 {
		t.Errorf("the ring has %d members: nothing can be copied", p.Record.Ring.Size)
	}
	held := fresh().with(func(o *Observed) { o.Record.Ring = o.Cluster.Ring.Of(3) })
	if p := Next(&held.o); !slices.ContainsFunc(p.Actions, func(a action.Action) bool { _, is := a.(action.CreateWarm); return is }) || p.ListSize != 0 {
		t.Errorf("%d members are on the list, and it does %v", p.ListSize, p.Actions)
	}
	if got := listed(fresh(warmed)); got != 3 {
		t.Errorf("%d members are on the list of a warm cluster", got)
	}
	if got := listed(fresh(func(w *Warm) { w.Holder.MoveRequest = claims.Skip })); got != 3 {
		t.Errorf("%d members are on the list when the warming is skipped", got)
	}
	if got := listed(at(3).warmFrom(func(w *Warm) { w.HoldsList = true })); got != 3 {
		t.Errorf("%d members are on the list of a cluster that clients use", got)
	}
}

// While a Job copies, no drain, move, mark or size begins; and no Job begins to copy while one is due.
func TestALiveCheckKeepsAWarmingApart(t *testing.T) {
	create := func(s *scene) action.CreateWarm {
		return action.CreateWarm{Target: s.warmTarget(), Members: s.o.Record.Ring.Size, Claim: s.o.Warm.Holder.Ref()}
	}
	for name, test := range map[string]struct {
		scene *scene
		ok    bool
	}{
		"as the plan saw it": {at(3).warmFrom(), true},
		"a Job exists":       {at(3).warmFrom().warmJob(), false},
		"its pod lingers": {at(3).warmFrom().with(func(o *Observed) {
			o.Drainers = []claims.Drainer{{Pod: "p", ClaimUID: "uid-cache", Target: "warm-other-0-0-1"}}
		}), false},
		"a member is gone":  {at(3).warmFrom().with(func(o *Observed) { o.Ready = nil }), false},
		"a claim is marked": {marked(at(3).warmFrom(), 2).with(func(o *Observed) { o.StatefulSet.Replicas = 2 }), false},
		"a drain runs":      {at(3).warmFrom().job(2, 2), false},
	} {
		if err := MayWarm(&test.scene.o, create(test.scene)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := at(3).warmFrom()
	a := create(other)
	if err := MayWarm(&other.o, action.CreateWarm{Target: a.Target, Members: 2}); err == nil {
		t.Error("it takes another ring")
	}
	runs := at(3).warmFrom().warmJob()
	if MaySetReplicas(&runs.o, 2) == nil || MayMark(&runs.o, 2) == nil {
		t.Error("members may leave while items are copied to them")
	}
	if err := MayMove(&runs.o, action.CreateMove{Claim: runs.o.Claims[2].Ref(), Target: runs.o.Record.Target()}); err == nil {
		t.Error("a move may begin")
	}
}

// claimsLeft gives the warming these claims of a source, whose Jobs are made of their names.
func claimsLeft(names ...string) func(*Warm) {
	return func(w *Warm) {
		w.Volumes, w.Left = true, nil
		for _, name := range names {
			w.Left = append(w.Left, WarmClaim{action.ClaimRef{Name: name, UID: types.UID("uid-" + name)}, name, "count-" + name})
		}
	}
}

// recorded is the record that the plan writes; zero if it writes none.
func recorded(s *scene) action.WarmRecord {
	p := Next(&s.o)
	for _, a := range p.Actions {
		if r, is := a.(action.RecordWarm); is {
			return r.Record
		}
	}
	return action.WarmRecord{}
}

func TestTheClaimsOfASourceAreReadOneAfterTheOther(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	s := at(3).warmFrom(claimsLeft("made", "other"), func(w *Warm) { w.Record.Since = time.Unix(999_000, 0) }).warmJob(copied)
	first := recorded(s)
	want := action.WarmRecord{UID: "uid-cache", Source: "source", Jobs: 1, Claims: []string{ClaimHash("uid-made")}, Passes: 2, Found: 12, Added: 9, AlreadyPresent: 1, Rejected: 2}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s = at(3).warmFrom(claimsLeft("made"), func(w *Warm) { w.Record = first }).warmJob(copied)
	if last := recorded(s); last.Result != action.WarmCopied || last.Jobs != 2 || last.Found != 24 || last.Claims != nil {
		t.Errorf("at the end: %+v", last)
	}
	again, err := action.ParseWarmRecord(first.String())
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// The items of all claims are counted, claim by claim, before the first claim is copied, for the ring of that moment.
func TestTheClaimsOfASourceAreCountedBeforeTheFirstIsCopied(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	claim := func(name string) WarmClaim {
		return WarmClaim{action.ClaimRef{Name: name, UID: types.UID("uid-" + name)}, "copy-" + name, "count-" + name}
	}
	from := func(left ...WarmClaim) *scene {
		return at(3).warmFrom(func(w *Warm) { w.Volumes, w.CountsFirst, w.Left = true, true, left })
	}
	a, b := claim("a"), claim("b")
	creates := func(s *scene) (create action.CreateWarm) {
		p := Next(&s.o)
		for _, planned := range p.Actions {
			if c, is := planned.(action.CreateWarm); is {
				create = c
			}
		}
		return create
	}
	counts := func(s *scene, demand ...int64) *scene {
		s.o.Warm.Record.Since = time.Unix(999_000, 0)
		c := creates(s)
		if !c.Counts {
			t.Fatalf("it doesn't count: %+v", c)
		}
		s.o.Warms = []claims.Job{{Name: "warm", UID: "uid-warm", ClaimUID: "uid-cache", Target: c.Target, State: claims.JobComplete,
			Receipt: ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source("uid-cache", c.Target), Complete: true, Demand: demand})}}
		p := Next(&s.o)
		for _, planned := range p.Actions {
			if r, is := planned.(action.RecordWarm); is {
				if s.o.Warm.Record, s.o.Warms = r.Record, nil; !r.Record.Since.IsZero() {
					t.Error("what comes next counts as failed since before the count")
				}
				return s
			}
		}
		t.Fatalf("the count is not recorded: %v, %+v", p.Actions, p.Warming)
		return nil
	}
	s := from(a, b)
	if c := creates(s); c.Volume.Name != "a" || c.Decides || c.Besides != nil || c.Resume != "" {
		t.Errorf("first: %+v", c)
	}
	counts(s, 1, 2, 3)
	if c := creates(s); c.Volume.Name != "b" || !c.Counts || !c.Decides || !slices.Equal(c.Besides, []int64{1, 2, 3}) {
		t.Errorf("second: %+v", c)
	}
	counts(s, 4, 5, 6)
	if c := creates(s); c.Volume.Name != "a" || c.Counts || c.Resume != "uid-cache/uid-a/0" || c.Before.Jobs != 0 {
		t.Errorf("third: %+v", c)
	}
	// Another ring has other needs. Counts of other claims are not used.
	other := s.o.Warm.Record
	other.Ring = "other"
	s.o.Warm.Record = other
	if c := creates(s); c.Volume.Name != "a" || !c.Counts || c.Besides != nil {
		t.Errorf("for another ring: %+v", c)
	}
	other.Ring = s.o.Record.Target()
	s.o.Warm.Record, s.o.Warm.Left = other, []WarmClaim{b, claim("c")}
	if c := creates(s); c.Volume.Name != "b" || !c.Counts || c.Besides != nil {
		t.Errorf("of other claims: %+v", c)
	}
	// Once the first one is copied, nothing is counted any more, and the names of the others' copies stay.
	other.Claims, other.Jobs = []string{ClaimHash(a.UID)}, 1
	other.Ring = "other"
	s.o.Warm.Record, s.o.Warm.Left = other, []WarmClaim{b, claim("c")}
	if c := creates(s); c.Volume.Name != "b" || c.Counts || c.Resume != "uid-cache/uid-b/0" {
		t.Errorf("in the middle: %+v", c)
	}
	if c := creates(from(a)); c.Counts {
		t.Errorf("a single claim is counted by its copy: %+v", c)
	}
	// The receipt of a copy is none of a count.
	s = from(a, b)
	c := creates(s)
	s.o.Warms = []claims.Job{{Name: "warm", UID: "uid-warm", ClaimUID: "uid-cache", Target: c.Target}}
	copied(&s.o.Warms[0])
	s.o.Warms[0].Ended = s.o.Now
	if p := Next(&s.o); p.Warming.Phase != WarmFailed {
		t.Errorf("with the receipt of a copy it is %s", p.Warming.Phase)
	}
}

// A source that can't be copied doesn't hold a cluster back for ever. A Job that copies is not ended.
func TestASourceThatCannotBeCopiedIsGivenUp(t *testing.T) {
	const patience = time.Hour
	away := func(changes ...func(*Warm)) *scene {
		return at(3).warmFrom(append([]func(*Warm){func(w *Warm) { w.Patience, w.HoldsList, w.NotThere = patience, true, "gone" }}, changes...)...).
			with(func(o *Observed) { o.ListSize = 0 })
	}
	since := func(ago time.Duration) func(*Warm) {
		return func(w *Warm) {
			w.Record = action.WarmRecord{UID: "uid-cache", Source: "source", Since: time.Unix(1_000_000, 0).Add(-ago)}
		}
	}
	unstarted := func(ago time.Duration) func(*Warm) {
		return func(w *Warm) {
			w.Patience, w.Waits = patience, claims.Wait{Reason: "Unschedulable", Since: time.Unix(1_000_000, 0).Add(-ago)}
		}
	}
	starting := func(j *claims.Job) { j.Unstarted = true }
	outOfTime := func(added, found int64) func(*claims.Job) {
		return func(j *claims.Job) {
			failedFor(contract.ReasonDeadlineExceeded, contract.ExitFailed)(j)
			j.Receipt = ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source(j.ClaimUID, j.Target), Reason: contract.ReasonDeadlineExceeded, ExitCode: contract.ExitFailed, Found: found, Outcomes: contract.Outcomes{Added: added}})
		}
	}
	fails := failedFor(cachev1alpha1.ReasonSourceUnreachable, contract.ExitUnreachable)
	for name, test := range map[string]struct {
		scene *scene
		want  []string
		phase WarmPhase
	}{
		"at first":       {away(), []string{"note since when"}, WarmWaits},
		"before the end": {away(since(patience - 1)), nil, WarmWaits},
		"at the end":     {away(since(patience)), []string{"record the warming by ring : GivenUp"}, WarmEnded},
		"without end":    {away(since(patience), func(w *Warm) { w.Patience = 0 }), nil, WarmWaits},
		"it fails":       {at(3).warmFrom(func(w *Warm) { w.Patience = patience }).warmJob(fails), []string{"note since when"}, WarmFailed},
		"it has failed for so long": {at(3).warmFrom(since(patience), func(w *Warm) { w.Patience = patience }).warmJob(fails),
			[]string{"delete Job warm: the source is given up", "record the warming by ring : GivenUp"}, WarmEnded},
		"it copies":     {at(3).warmFrom(since(patience), func(w *Warm) { w.Patience = patience }).warmJob().copies(), nil, WarmRuns},
		"it hibernates": {away(since(time.Minute)).wanted(0), []string{"note since when"}, WarmWaits},
		"another copy": {away(since(patience), func(w *Warm) {
			w.Repeats, w.Asked, w.Record.Result, w.Record.Jobs = true, "again", action.WarmCopied, 1
		}), nil, WarmWaits},
		"not all members are ready":     {at(3).warmFrom(since(time.Minute)).with(func(o *Observed) { o.Ready = nil }), []string{"note since when"}, WarmWaits},
		"a failed Job is being deleted": {at(3).warmFrom(since(time.Minute)).warmJob(fails, gone), nil, WarmWaits},
		"a drain comes first":           {at(2).warmFrom(since(time.Minute)).left(2), []string{"note since when"}, WarmWaits},
		"its pod can't start":           {at(3).warmFrom(unstarted(patience - 1)).warmJob(starting), nil, WarmRuns},
		"its pod could not start for so long": {at(3).warmFrom(unstarted(patience)).warmJob(starting),
			[]string{"delete Job warm: the source is given up", "record the warming by ring : GivenUp"}, WarmEnded},
		"it was out of time, and has copied":         {at(3).warmFrom(since(patience), func(w *Warm) { w.Patience = patience }).warmJob(outOfTime(7, 700)), []string{"note since when"}, WarmFailed},
		"it was out of time at first":                {at(3).warmFrom(func(w *Warm) { w.Patience = patience; w.Record.Source = "source" }).warmJob(outOfTime(7, 700)), nil, WarmFailed},
		"it was out of time, and has copied little":  {at(3).warmFrom(since(patience), func(w *Warm) { w.Patience = patience }).warmJob(outOfTime(6, 700)), []string{"delete Job", "record the warming by ring : GivenUp"}, WarmEnded},
		"it was out of time, and has copied nothing": {at(3).warmFrom(since(patience), func(w *Warm) { w.Patience = patience }).warmJob(outOfTime(0, 700)), []string{"delete Job", "record the warming by ring : GivenUp"}, WarmEnded},
		"it was given up": {away(func(w *Warm) {
			w.Record = action.WarmRecord{Source: "source", Result: action.WarmGivenUp, Why: "SourceNotThere"}
		}), nil, WarmEnded},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&test.scene.o)
			if said := aboutWarming(&p); !slices.EqualFunc(said, test.want, strings.HasPrefix) {
				t.Errorf("it does %q, want %q", said, test.want)
			}
			if p.Warming.Phase != test.phase {
				t.Errorf("it is %s: %s", p.Warming.Phase, p.Warming.Message)
			}
		})
	}
	if why := recorded(at(3).warmFrom(unstarted(patience)).warmJob(starting)).Why; why != "Unschedulable" {
		t.Errorf("it was given up because of %q", why)
	}
	if since := recorded(at(2).warmFrom(since(time.Minute)).left(2)).Since; !since.IsZero() {
		t.Errorf("after the drain it counts as failed since %s", since)
	}
	if p := Next(&away(since(patience - time.Minute)).o); p.Wake.IsZero() || p.Wake.After(time.Unix(1_000_000, 0).Add(time.Minute)) {
		t.Errorf("the next look is at %s", p.Wake)
	}
	if p := Next(&away(since(time.Minute)).o); p.ListSize != 0 {
		t.Errorf("%d members are on the list of a cluster that waits", p.ListSize)
	}
	if p := Next(&away(func(w *Warm) { w.Record.Result = action.WarmGivenUp }).o); p.ListSize != 3 {
		t.Errorf("%d members are on the list when the source is given up", p.ListSize)
	}
}

// A complete copy is recorded before anything else ends its Job: the next one would bring back what clients have deleted.
func TestACompleteCopyIsRecordedWhateverComesNext(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	counted := func(j *claims.Job) {
		j.State, j.Target = claims.JobComplete, strings.Replace(j.Target, "-made-", "-count-made-", 1)
		j.Receipt = ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source(j.ClaimUID, j.Target), Complete: true, Demand: []int64{1, 2, 3}})
	}
	countsFirst := func(w *Warm) { w.CountsFirst = true }
	away := func(w *Warm) { w.NotThere = "claim other is being deleted" }
	const record = "record the warming by ring warm-"
	for name, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"the cluster shrinks":          {at(3).warmFrom().warmJob(copied).wanted(2), []string{record}},
		"it hibernates":                {at(3).warmFrom().warmJob(copied).wanted(0), []string{record}},
		"a volume is drained":          {at(2).warmFrom().warmJob(copied).left(2), []string{record}},
		"a claim that comes before it": {at(3).warmFrom(claimsLeft("a", "made")).warmJob(copied), []string{record}},
		"another claim, to be counted": {at(3).warmFrom(claimsLeft("made", "z"), countsFirst).warmJob(copied), []string{record}},
		"another claim goes":           {at(3).warmFrom(claimsLeft("made", "other"), away).warmJob(copied), []string{record}},
		"a count":                      {at(3).warmFrom(claimsLeft("made", "other"), countsFirst).warmJob(counted), []string{record}},
		"a count, and a claim goes":    {at(3).warmFrom(claimsLeft("a", "made", "other"), countsFirst, away).warmJob(counted), []string{record}},
		"a count, and it shrinks":      {at(3).warmFrom(claimsLeft("made", "other"), countsFirst).warmJob(counted).wanted(2), []string{"delete Job warm"}},
		"another source":               {at(3).warmFrom().warmJob(copied).with(func(o *Observed) { o.Warm.Made = "new" }), []string{"delete Job warm"}},
		"an earlier copy":              {at(3).warmFrom().warmJob(copied).with(func(o *Observed) { o.Warm.Record.Jobs = 1 }), []string{"delete Job warm"}},
		"without a receipt":            {at(3).warmFrom().warmJob(withoutReceipt).wanted(2), []string{"delete Job warm"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&test.scene.o)
			if said := aboutWarming(&p); !slices.EqualFunc(said, test.want, strings.HasPrefix) {
				t.Errorf("it does %q, want %q", said, test.want)
			}
		})
	}
}

// Claims come and go while others are copied. None counts as copied that was not, and one that has gone holds nothing up.
func TestClaimsThatGoMidwayHoldNothingUp(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	away := func(w *Warm) { w.NotThere = "claim c is being deleted" }
	one := func(w *Warm) {
		w.Record = action.WarmRecord{Source: "source", Jobs: 1, Claims: []string{ClaimHash("uid-a")}}
	}
	for name, test := range map[string]struct {
		scene  *scene
		want   []string
		phase  WarmPhase
		result action.WarmResult
		claims int
	}{
		"the first is copied, a further one goes": {at(3).warmFrom(claimsLeft("made", "b", "c"), away).warmJob(copied), []string{"record the warming"}, WarmRuns, action.WarmOpen, 1},
		"it goes itself, when it is copied":       {at(3).warmFrom(claimsLeft(), away).warmJob(copied), []string{"note since when"}, WarmWaits, action.WarmOpen, 0},
		"it goes itself, while it is copied":      {at(3).warmFrom(claimsLeft(), away).warmJob().copies(), nil, WarmRuns, action.WarmOpen, 0},
		"the last one is gone":                    {at(3).warmFrom(claimsLeft(), one), []string{"record the warming by ring : Warm"}, WarmEnded, action.WarmCopied, 0},
		"the last one is gone, with a Job":        {at(3).warmFrom(claimsLeft(), one).warmJob(), []string{"delete Job warm: all claims are copied", "record the warming by ring : Warm"}, WarmEnded, action.WarmCopied, 0},
		"the last one is on its way":              {at(3).warmFrom(claimsLeft("made"), one).warmJob().copies(), nil, WarmRuns, action.WarmOpen, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&test.scene.o)
			if said := aboutWarming(&p); !slices.EqualFunc(said, test.want, strings.HasPrefix) || p.Warming.Phase != test.phase {
				t.Errorf("it does %q and is %s, want %q, %s", said, p.Warming.Phase, test.want, test.phase)
			}
			if r := recorded(test.scene); r.Result != test.result || len(r.Claims) != test.claims {
				t.Errorf("the record is %+v", r)
			}
		})
	}
	s := at(3).warmFrom(claimsLeft("made", "b"), one).warmJob(copied)
	s.o.Warm.Record.Claims = slices.Repeat(s.o.Warm.Record.Claims, action.MaxWarmClaims)
	full := recorded(s)
	if _, err := action.ParseWarmRecord(full.String()); err != nil {
		t.Errorf("after many claims, which have gone: %v", err)
	}
}

// What is said of a claim names it.
func TestAFailureNamesTheClaim(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	s := at(3).warmFrom(claimsLeft("made", "b")).warmJob(failedFor("WarmFileTruncated", contract.ExitUnrecoverable))
	if p := Next(&s.o); p.Warming.Phase != WarmFailed || !strings.Contains(p.Warming.Message, "claim made: why") {
		t.Errorf("it is %s: %s", p.Warming.Phase, p.Warming.Message)
	}
}

// Failures of a source don't count for the next one.
func TestFailuresOfAnEarlierSourceAreForgotten(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	failed := func(w *Warm) { w.Holder.Attempts = action.Attempts{Failed: 6, Last: "uid-before"} }
	sameSource := func(w *Warm) { w.Record.Source = "source" }
	const clear, create = "clear the request", "warm 3 members"
	for name, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"another source":         {at(3).warmFrom(failed), []string{clear, create}},
		"another one, not there": {at(3).warmFrom(failed, func(w *Warm) { w.NotThere = "gone" }), []string{clear, "note since when"}},
		"the same":               {at(3).warmFrom(failed, sameSource), []string{create}},
		"the first one":          {at(3).warmFrom(), []string{create}},
	} {
		p := Next(&test.scene.o)
		if said := aboutWarming(&p); !slices.EqualFunc(said, test.want, strings.HasPrefix) {
			t.Errorf("%s: it does %q, want %q", name, said, test.want)
		}
	}
}

func TestADamagedRecordOfAWarmingCountsAsNone(t *testing.T) {
	for _, text := range []string{"", "{", `{"jobs":-1}`, `{"result":"Done"}`, `{"found":-1}`, `{"needs":[-1]}`, fmt.Sprintf(`{"why":%q}`, strings.Repeat("a", 65)), fmt.Sprintf(`{"source":%q}`, strings.Repeat("a", 65)), strings.Repeat(" ", 17000)} {
		if r, err := action.ParseWarmRecord(text); err == nil {
			t.Errorf("%.20q is %+v", text, r)
		}
	}
}
