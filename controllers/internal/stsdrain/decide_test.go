package stsdrain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// at is a StatefulSet at rest with this many members, whose claims are protected.
func at(members int32) *stsdrain.Observed {
	o := &stsdrain.Observed{
		Drain: stsdrain.Drain{Name: "queue", UID: "drain", Parallelism: 1, Finalizer: true},
		Set:   stsdrain.StatefulSet{Name: "queue", UID: "set", Exists: true, Replicas: members, Templates: []string{"data"}},
	}
	o.Now = time.Unix(1_000_000, 0)
	for i := range members {
		o.Pods, o.Ready = append(o.Pods, i), append(o.Ready, i)
		name := fmt.Sprintf("data-queue-%d", i)
		o.Claims = append(o.Claims, claims.Claim{
			Name: name, UID: types.UID(name), Ordinal: i, Template: "data", Volume: "pv-" + name, AsideName: name + "-aside",
			Finalizer: true, Protected: true, Labelled: true, Where: claims.Here,
		})
	}
	return o
}

func with(o *stsdrain.Observed, changes ...func(*stsdrain.Observed)) *stsdrain.Observed {
	for _, change := range changes {
		change(o)
	}
	return o
}

func scaled(n int32) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) { o.Set.Replicas = n }
}
func gone(n int32) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) { o.Pods, o.Ready = o.Pods[:n], o.Ready[:n] }
}
func claim(i int, change func(*claims.Claim)) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) { change(&o.Claims[i]) }
}
func marked(c *claims.Claim)      { c.LeavingSince, c.Left, c.Decided = time.Unix(1000, 0), 1, true }
func unprotected(c *claims.Claim) { c.Protected, c.Labelled, c.Finalizer = false, false, false }
func deleting(c *claims.Claim)    { c.Deleting = true }

func TestTheClaimsOfAStatefulSet(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want []string
	}{
		"at rest":                        {at(3), nil},
		"seen while wanted":              {with(at(3), claim(1, unprotected)), []string{"protect claim data-queue-1"}},
		"left over":                      {with(at(3), scaled(2), claim(2, unprotected)), []string{"label claim data-queue-2"}},
		"it leaves":                      {with(at(3), scaled(2)), []string{"mark claim data-queue-2 as leaving"}},
		"its pod is there":               {with(at(3), scaled(2), claim(2, marked)), nil},
		"departed":                       {with(at(3), scaled(2), claim(2, marked), gone(2)), []string{"set claim data-queue-2 aside"}},
		"deleted":                        {with(at(3), scaled(2), claim(2, marked), claim(2, deleting), gone(2)), []string{"reserve volume pv-data-queue-2 of claim data-queue-2 for claim data-queue-2-aside", "create claim data-queue-2-aside for volume pv-data-queue-2 of claim data-queue-2"}},
		"wanted again":                   {with(at(3), claim(2, marked), gone(2)), []string{"take the leaving mark off claim data-queue-2"}},
		"no right to volumes":            {with(at(3), scaled(2), claim(2, marked), gone(2), claim(2, func(c *claims.Claim) { c.Where = claims.Forbidden })), []string{"drain claim data-queue-2 into 2 survivors"}},
		"a member is not ready":          {with(at(3), scaled(2), claim(2, marked), gone(2), claim(2, func(c *claims.Claim) { c.Where = claims.Forbidden }), func(o *stsdrain.Observed) { o.Ready = o.Ready[:1] }), nil},
		"replicas 0":                     {with(at(3), scaled(0), gone(0)), nil},
		"no StatefulSet":                 {with(at(3), gone(0), func(o *stsdrain.Observed) { o.Set.Exists = false }), nil},
		"retained":                       {with(at(3), scaled(2), claim(2, marked), gone(2), claim(2, func(c *claims.Claim) { c.Policy = claims.Retain })), []string{"release claim data-queue-2: Retained"}},
		"a claim of a member is deleted": {with(at(3), claim(1, deleting), claim(1, func(c *claims.Claim) { c.InUse = true })), []string{"mark claim data-queue-1 as leaving"}},
		"another StatefulSetDrain":       {with(at(3), scaled(2), func(o *stsdrain.Observed) { o.Others = []stsdrain.Other{{Name: "a"}} }), nil},
		"a Memcached's":                  {with(at(3), scaled(2), func(o *stsdrain.Observed) { o.Set.Memcached = "cache" }), nil},
		"its claim is gone":              {with(at(3), gone(2), func(o *stsdrain.Observed) { o.Claims = o.Claims[:2] }), []string{"wake the StatefulSet's controller"}},
	} {
		var got []string
		for _, a := range stsdrain.Decide(test.o).Actions {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// A backup may bring a claim back that takes over a volume, before the first claim goes. The first claim waits for it, so it is
// not left over: the hand-over goes on, and then a person decides.
func TestAHandOverGoesOnWhenABackupBringsItsClaimBack(t *testing.T) {
	t.Parallel()
	first := func(c *claims.Claim) { c.Deleting, c.Where = true, claims.Reserved }
	handOver := func(changes ...func(*claims.Claim)) *stsdrain.Observed {
		o := with(at(3), scaled(2), claim(2, marked), claim(2, first), gone(2))
		back := o.Claims[2]
		back.UID, back.Name, back.AsideName, back.Aside, back.First = "back", back.AsideName, "next", true, back.UID
		back.Deleting, back.Where = false, claims.NotLookedAt
		unprotected(&back)
		back.Restored, back.Request = true, claims.Hold
		for _, change := range changes {
			change(&back)
		}
		o.Claims = append(o.Claims, back)
		return o
	}
	unnoted := func(c *claims.Claim) { c.Unnoted, c.Finalizer = true, true }
	bound := func(c *claims.Claim) { c.Protected, c.Labelled, c.Finalizer = true, true, true }
	pending := func(c *claims.Claim) { c.Pending = true }
	retained := func(c *claims.Claim) { c.Policy = claims.Retain }
	over := func(o *stsdrain.Observed) *stsdrain.Observed {
		o.Claims = append(o.Claims[:2], o.Claims[3])
		return o
	}
	const note, protect, release = "note that claim data-queue-2-aside was restored", "protect claim data-queue-2-aside", "release claim data-queue-2: SetAside"
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want []string
		left int
	}{
		"it is back":                       {handOver(unnoted), []string{note, release}, 0},
		"it is back, and not bound":        {handOver(unnoted, pending), []string{note}, 0},
		"it was noted":                     {handOver(), []string{protect, release}, 0},
		"it was noted, and is retained":    {handOver(retained), []string{protect, release}, 0},
		"it was noted, and is protected":   {handOver(bound), []string{release}, 0},
		"the first claim is gone":          {over(handOver(bound)), nil, 0},
		"the first claim went before":      {over(handOver()), []string{"label claim data-queue-2-aside"}, 1},
		"it went, and a person says retry": {over(handOver(func(c *claims.Claim) { c.Request = claims.Retry })), []string{protect, "clear the retry of claim data-queue-2-aside", "drain claim data-queue-2-aside into 2 survivors"}, 0},
	} {
		p := stsdrain.Decide(test.o)
		var got []string
		for _, a := range p.Actions {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(p.LeftOver) != test.left {
			t.Errorf("%s: left over %v; -want +got:\n%s", what, p.LeftOver, diff)
		}
		if !test.o.Claims[2].Aside || len(p.LeftOver) > 0 || test.want != nil {
			continue
		}
		if len(p.Drains) != 1 || p.Drains[0].Phase != claims.Held {
			t.Errorf("%s: its drain is not held: %+v", what, p.Drains)
		}
	}
}

// A wait says why Kubernetes can't end the member, and why a claim gets no finalizer.
func TestAWaitSaysWhatTheAPIServerDenies(t *testing.T) {
	t.Parallel()
	const denied = "delete Pod queue-2 in StatefulSet queue failed error: it is not allowed"
	unheld := func(c *claims.Claim) { c.Finalizer = false }
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want string
	}{
		"the member ends":           {with(at(3), scaled(2), claim(2, marked)), "member 2 is still shutting down"},
		"its end is denied":         {with(at(3), scaled(2), claim(2, marked), func(o *stsdrain.Observed) { o.NotEnded = map[int32]string{2: denied} }), "member 2 is not shut down: " + denied},
		"the finalizer was refused": {with(at(3), two, scaled(2), gone(2), claim(2, marked), claim(5, marked), claim(5, unheld), refused("log-queue-2")), "claim log-queue-2 lacks the finalizer: the drain starts when the API server takes it, which it refused: a quota forbids it"},
	} {
		var got []string
		for _, d := range stsdrain.Decide(test.o).Drains {
			got = append(got, d.Message)
		}
		if !slices.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

// A member's volumes are drained together or not at all. If only some of its claims were protected when it
// left, the others are protected first, and none is marked before.
func TestAMemberOfWhichSomeClaimsWereProtectedIsDrainedWhole(t *testing.T) {
	t.Parallel()
	partly := func(changes ...func(*stsdrain.Observed)) *stsdrain.Observed {
		return with(with(at(3), two, scaled(2), gone(2), claim(5, unprotected)), changes...)
	}
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want []string
	}{
		"one was not":                      {partly(), []string{"protect claim log-queue-2"}},
		"the write was denied":             {partly(refused("log-queue-2")), nil},
		"it was, then":                     {partly(claim(5, func(c *claims.Claim) { c.Protected, c.Labelled, c.Finalizer = true, true, true })), []string{"mark claim data-queue-2 as leaving", "mark claim log-queue-2 as leaving", "set claim log-queue-2 aside", "set claim data-queue-2 aside"}},
		"none was":                         {partly(claim(2, unprotected)), []string{"label claim data-queue-2", "label claim log-queue-2"}},
		"it was never bound":               {partly(claim(5, func(c *claims.Claim) { c.Volume = "" })), []string{"mark claim data-queue-2 as leaving", "label claim log-queue-2", "set claim data-queue-2 aside"}},
		"a person has given it up":         {partly(claim(5, request(claims.Skip))), []string{"mark claim data-queue-2 as leaving", "label claim log-queue-2", "set claim data-queue-2 aside"}},
		"the other was drained by a retry": {partly(claim(2, marked)), []string{"label claim log-queue-2", "set claim data-queue-2 aside"}},
		"replicas 0":                       {partly(scaled(0), gone(0)), []string{"label claim log-queue-2"}},
	} {
		p := stsdrain.Decide(test.o)
		var got []string
		for _, a := range p.Actions {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	for what, test := range map[string]struct {
		o   *stsdrain.Observed
		may bool
	}{
		"another claim of the member was": {partly(), true},
		"none was":                        {partly(claim(2, unprotected)), false},
		"the other has left before":       {partly(claim(2, marked)), false},
		"it is being deleted":             {partly(claim(5, deleting)), false},
		"the member is wanted":            {partly(scaled(3)), true},
	} {
		if err := stsdrain.MayProtect(test.o, &test.o.Claims[5]); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A backup brings claims back with their marks, and without finalizers. If their StatefulSetDrain came back, too, its UID is
// another one, and only a person knows whether their data is wanted.
func TestAMarkedClaimThatABackupBroughtBackIsLeftOverUntilAPersonRetries(t *testing.T) {
	t.Parallel()
	back := func(changes ...func(*stsdrain.Observed)) *stsdrain.Observed {
		without := func(c *claims.Claim) {
			marked(c)
			c.Protected, c.Finalizer = false, false
		}
		return with(with(at(3), two, scaled(2), gone(2), claim(2, without), claim(5, without)), changes...)
	}
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want []string
		left int
	}{
		"it came back":          {back(), nil, 2},
		"a person retries one":  {back(claim(5, request(claims.Retry))), []string{"protect claim data-queue-2", "protect claim log-queue-2", "clear the retry of claim log-queue-2", "set claim log-queue-2 aside", "set claim data-queue-2 aside"}, 0},
		"a retry, and a denial": {back(claim(5, request(claims.Retry)), refused("log-queue-2")), []string{"protect claim data-queue-2"}, 0},
		"a retry of none":       {back(scaled(0), gone(0), claim(5, request(claims.Retry))), nil, 2},
		"the member is wanted":  {back(scaled(3)), []string{"take the leaving mark off claim data-queue-2", "take the leaving mark off claim log-queue-2", "protect claim data-queue-2", "protect claim log-queue-2"}, 0},
		"its policy was Retain": {back(claim(2, retained), claim(5, retained)), nil, 0},
		"its policy was Delete": {back(claim(2, removed), claim(5, removed)), nil, 2},
	} {
		p := stsdrain.Decide(test.o)
		var got []string
		for _, a := range p.Actions {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(p.LeftOver) != test.left {
			t.Errorf("%s: left over %v, want %d; -want +got:\n%s", what, p.LeftOver, test.left, diff)
		}
	}
	o := back()
	if err := stsdrain.MayProtect(o, &o.Claims[5]); err != nil {
		t.Errorf("live, too: %v", err)
	}
}

func removed(c *claims.Claim)  { c.Decided, c.Policy = true, claims.Delete }
func retained(c *claims.Claim) { c.Decided, c.Policy = true, claims.Retain }

func TestLiveAMemberThatIsWantedAgainIsNotSetAside(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		o   *stsdrain.Observed
		may bool
	}{
		"departed":     {with(at(3), scaled(2), claim(2, marked), gone(2)), true},
		"wanted again": {with(at(3), claim(2, marked), gone(2)), false},
		"its pod runs": {with(at(3), scaled(2), claim(2, marked)), false},
		"replicas 0":   {with(at(3), scaled(0), claim(2, marked), gone(0)), false},
	} {
		if err := stsdrain.MaySetAside(test.o, "data-queue-2"); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}
