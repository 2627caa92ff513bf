package claims_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

var noon = time.Unix(1_000_000, 0)

// pick is one of these values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// anyClaim is a random claim of this ordinal and claim template.
func anyClaim(r *rand.Rand, ordinal int32, template string, aside bool) claims.Claim {
	name := fmt.Sprintf("%s-%d", template, ordinal)
	c := claims.Claim{
		Name: name, UID: types.UID("uid-" + name), Ordinal: ordinal, Template: template, Volume: "pv-" + name, AsideName: name + "-aside",
		Finalizer: r.IntN(5) > 0, Protected: r.IntN(5) > 0, Labelled: r.IntN(5) > 0, Deleting: r.IntN(2) > 0, InUse: r.IntN(3) == 0, OwnedByPod: r.IntN(5) == 0,
		Where:   pick(r, claims.Here, claims.Here, claims.Reserved, claims.Promised, claims.Elsewhere, claims.Gone, claims.Forbidden, claims.NotLookedAt),
		Request: pick(r, claims.NoRequest, claims.NoRequest, claims.Skip, claims.Retry, claims.Hold),
		Decided: true, Policy: pick(r, claims.Drain, claims.Drain, claims.Retain, claims.Delete),
	}
	if r.IntN(5) > 0 || aside {
		c.LeavingSince, c.Left = time.Unix(1000, 0), 7
	}
	if aside {
		c.First, c.Fresh = c.UID, r.IntN(3) == 0
		c.Name, c.UID, c.AsideName, c.Aside, c.Pending = c.AsideName, c.UID+"-aside", name+"-next", true, r.IntN(2) > 0
	}
	if r.IntN(6) == 0 && !c.Fresh {
		c.Restored, c.Unnoted = true, r.IntN(2) == 0
		if c.Unnoted {
			c.Request = claims.Hold
		}
	}
	if r.IntN(4) == 0 {
		c.Receipt = &action.Receipt{Source: string(c.UID)}
	}
	return c
}

// anyFacts are those of members with one claim each.
func anyFacts(r *rand.Rand) *claims.Facts {
	f := &claims.Facts{Now: noon}
	for ordinal := range int32(3) {
		own := anyClaim(r, ordinal, "data", false)
		f.Claims = append(f.Claims, own)
		if r.IntN(2) > 0 {
			f.Claims = append(f.Claims, anyClaim(r, ordinal, "data", true))
		}
		if r.IntN(4) == 0 {
			f.Pods = append(f.Pods, ordinal)
		}
	}
	for i := range f.Claims {
		c := &f.Claims[i]
		if r.IntN(3) > 0 {
			continue
		}
		j := claims.Job{
			Name: "job-" + c.Name, UID: "job-" + c.UID, ClaimUID: c.UID, Survivors: action.Range{Count: 1}, State: pick(r, claims.JobActive, claims.JobComplete, claims.JobFailed),
			Deleting: r.IntN(4) == 0, Replace: pick(r, "", "", "others stay"), Ended: noon.Add(-pick(r, time.Second, time.Hour)), Message: "it failed",
			ReceiptErr: errors.New("its pod is gone"),
		}
		if j.State == claims.JobComplete {
			j.Receipt, j.ReceiptErr = &action.Receipt{Source: string(c.UID)}, nil
		}
		f.Jobs = append(f.Jobs, j)
		if r.IntN(2) > 0 {
			f.ClaimsWithDrainerPod = append(f.ClaimsWithDrainerPod, c.UID)
			f.ClaimsWithDrainerAtWork = append(f.ClaimsWithDrainerAtWork, c.UID)
		}
	}
	return f
}

func decide(f *claims.Facts, asideFirst bool) (claims.Volumes, claims.Work) {
	return f.Decide(&claims.Given{
		Terms: &claims.Terms{}, Parallelism: 2, Wanted: action.Range{Count: 1}, Survivors: action.Range{Count: 1}, AsideFirst: asideFirst,
		Leaves: func(*claims.Claim) (phase claims.DrainPhase, reason, message string) { return "", "", "" },
		Waits: func(c *claims.Claim) (reason, message string) {
			if reason, message = f.Unmounted(c); reason == "" && c.Pending {
				return claims.SettingAside, "it is not bound yet"
			}
			return reason, message
		},
	})
}

// seeds are those of a random test: each that fails names its own.
const seeds = 3000

func TestAUnitOfOneClaimIsThatClaim(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		all := anyFacts(rand.New(rand.NewPCG(seed, 1))).Claims
		all = append(all, claims.Claim{Name: "never-bound-1", UID: "unbound", Ordinal: 1, LeavingSince: time.Unix(1000, 0), Left: 7})
		units, of := claims.Together(all)
		if diff := cmp.Diff(all, units); diff != "" || len(of) != 0 {
			t.Fatalf("seed %d: %v; -claims +units:\n%s", seed, of, diff)
		}
	}
}

// twice gives each member a second claim, in the same state as the first.
func twice(f *claims.Facts) *claims.Facts {
	both := *f
	both.Claims, both.Jobs = nil, slices.Clone(f.Jobs)
	other := func(s string) string { return strings.ReplaceAll(s, "data", "logs") }
	receipt := func(r *action.Receipt) *action.Receipt {
		if r == nil {
			return nil
		}
		return &action.Receipt{Source: r.Source + "," + other(r.Source), Err: r.Err}
	}
	for _, c := range f.Claims {
		c.Receipt = receipt(c.Receipt)
		both.Claims = append(both.Claims, c)
		c.Name, c.UID, c.Template, c.Volume, c.AsideName, c.Receipt = other(c.Name), types.UID(other(string(c.UID))), "logs", other(c.Volume), other(c.AsideName), nil
		c.First = types.UID(other(string(c.First)))
		both.Claims = append(both.Claims, c)
	}
	for i := range both.Jobs {
		both.Jobs[i].Receipt = receipt(both.Jobs[i].Receipt)
	}
	both.Claims, both.Units = claims.Together(both.Claims)
	return &both
}

// ofUnit are the steps about a unit of two claims, if these are the steps about one.
func ofUnit(actions []action.Action) (steps []string) {
	for _, a := range actions {
		steps = append(steps, a.String())
		switch a := a.(type) {
		case action.CreateDrain, action.RecordReceipt, action.CountFailure, action.DeleteJob:
		default:
			steps = append(steps, strings.ReplaceAll(a.String(), "data", "logs"))
		}
	}
	slices.Sort(steps)
	return steps
}

func TestEachStepAboutAUnitIsAStepAboutEachOfItsClaims(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		one, asideFirst := anyFacts(r), r.IntN(2) > 0
		both := twice(one)
		volumes, work := decide(one, asideFirst)
		ofBoth, workOfBoth := decide(both, asideFirst)
		var got []string
		for _, a := range workOfBoth.Actions {
			got = append(got, a.String())
			kinds[fmt.Sprintf("%T", a)]++
		}
		slices.Sort(got)
		if diff := cmp.Diff(ofUnit(work.Actions), got); diff != "" {
			t.Fatalf("seed %d: -one claim's, twice +the unit's:\n%s", seed, diff)
		}
		states := func(v claims.Volumes) (out []string) {
			for _, d := range v.Drains {
				out = append(out, fmt.Sprintf("%d %s %s %s", d.Claim.Ordinal, d.Phase, d.Reason, d.Why))
			}
			return out
		}
		if diff := cmp.Diff(states(volumes), states(ofBoth)); diff != "" {
			t.Fatalf("seed %d: -one claim's +the unit's:\n%s", seed, diff)
		}
		leadsLast(t, seed, workOfBoth.Actions)
	}
	for _, kind := range []any{
		action.SetAside{}, action.ReserveVolume{}, action.CreateAside{}, action.SkipToo{}, action.ReturnVolume{}, action.CreateDrain{}, action.RecordReceipt{},
		action.CountFailure{}, action.ClearRetry{}, action.DeleteClaim{}, action.ReleaseClaim{}, action.DeleteJob{}, action.AddClaimFinalizer{},
		action.CarryOver{}, action.NoteRestored{},
	} {
		if kinds[fmt.Sprintf("%T", kind)] == 0 {
			t.Errorf("no seed plans a %T: the test proves nothing about it", kind)
		}
	}
}

// leadsLast checks that the leading claim, which has the receipt, is deleted and released after the
// other one, that a failure about one stops the steps about both, and that a drain names both.
func leadsLast(t *testing.T, seed uint64, actions []action.Action) {
	t.Helper()
	done := map[string]bool{}
	for _, a := range actions {
		var ref action.ClaimRef
		switch a := a.(type) {
		case action.DeleteClaim:
			ref = a.Claim
		case action.ReleaseClaim:
			ref = a.Claim
		case action.CreateDrain:
			if len(a.With) != 1 || a.With[0].Unit != a.Claim.UID || a.Claim.Unit != "" {
				t.Fatalf("seed %d: a drain of %v with %v", seed, a.Claim, a.With)
			}
			continue
		default:
			continue
		}
		verb := strings.Fields(a.String())[0]
		done[verb+string(ref.UID)] = true
		if other := strings.ReplaceAll(string(ref.UID), "data", "logs"); ref.Unit == "" && !done[verb+other] {
			t.Fatalf("seed %d: %s, before the other claim", seed, a)
		}
		if led := strings.ReplaceAll(string(ref.UID), "logs", "data"); action.KindOf(a).Claim != types.UID(led) {
			t.Fatalf("seed %d: a failure of %s stops the steps of %s", seed, a, action.KindOf(a).Claim)
		}
	}
}

// A step that is allowed for a unit is allowed for each of its claims, in any state.
func TestAStepOfAUnitIsAllowedForEachOfItsClaims(t *testing.T) {
	t.Parallel()
	allowed := map[string]int{}
	for seed := range uint64(20 * seeds) {
		r := rand.New(rand.NewPCG(seed, 3))
		parts := []claims.Claim{anyClaim(r, 2, "data", false), anyClaim(r, 2, "logs", false), anyClaim(r, 2, "more", false)}
		for i := range parts {
			parts[i].LeavingSince, parts[i].Left, parts[i].Receipt = parts[0].LeavingSince, parts[0].Left, nil
			parts[i].Restored = parts[0].Restored
			parts[i].Unnoted = parts[i].Unnoted && parts[i].Restored
		}
		parts[0].Receipt = &action.Receipt{Source: "uid-data-2,uid-logs-2" + pick(r, "", ",uid-more-2")}
		units, of := claims.Together(parts)
		if len(units) != 1 || len(of[parts[0].UID]) != 3 {
			t.Fatalf("seed %d: %v", seed, units)
		}
		f := &claims.Facts{Claims: units, Units: of}
		checks := map[string]func(c *claims.Claim) error{
			"MaySetAside": func(c *claims.Claim) error { return claims.MaySetAside(f, c) },
			"MayReserve":  claims.MayReserve,
			"MayUnmark":   func(c *claims.Claim) error { return claims.MayUnmark(f, c) },
		}
		for _, why := range []action.Release{action.ByReceipt, action.BySkip} {
			checks[string(why)] = func(c *claims.Claim) error {
				own := *c
				own.Receipt = parts[0].Receipt // the leading claim's
				return claims.ReleasableBy(&claims.Terms{}, &own, why)
			}
		}
		for what, check := range checks {
			if check(&units[0]) != nil {
				continue
			}
			allowed[what]++
			for i := range parts {
				c := parts[i]
				if what == "MayReserve" && !c.Deleting {
					continue // its turn comes when it is set aside
				}
				if err := check(&c); err != nil {
					t.Fatalf("seed %d: the unit may, by %s, and %v", seed, what, err)
				}
			}
		}
	}
	if len(allowed) != 5 {
		t.Errorf("allowed: %v", allowed)
	}
}

// A receipt releases only drained claims: a claim that comes to a unit later is not in it.
func TestAReceiptCoversTheClaimsThatItNames(t *testing.T) {
	t.Parallel()
	data, logs := *left(receipt("a,b")), *left()
	data.UID, data.Template, logs.UID, logs.Template, logs.Volume = "a", "data", "b", "logs", "pv-b"
	more := logs
	more.UID, more.Template = "c", "more"
	for what, test := range map[string]struct {
		unit []claims.Claim
		may  bool
	}{
		"both":                   {[]claims.Claim{logs, data}, true},
		"one is released":        {[]claims.Claim{data}, true},
		"one has come meanwhile": {[]claims.Claim{more, data, logs}, false},
		"another leads":          {[]claims.Claim{logs}, false},
	} {
		units, _ := claims.Together(test.unit)
		if err := claims.ReleasableBy(&claims.Terms{}, &units[0], action.ByReceipt); len(units) != 1 || (err == nil) != test.may {
			t.Errorf("%s: %d units, %v", what, len(units), err)
		}
	}
}

func TestUnitsAreOfOneDeparture(t *testing.T) {
	t.Parallel()
	at := func(template string, number int64, more ...change) claims.Claim {
		c := *left(more...)
		c.Name, c.UID, c.Template, c.Left = template+"-2", types.UID(fmt.Sprintf("%s-%d", template, number)), template, number
		if c.Volume != "" {
			c.Volume = "pv-" + string(c.UID)
		}
		return c
	}
	aside := func(c *claims.Claim) { c.Aside = true }
	for what, test := range map[string]struct {
		all  []claims.Claim
		want []string
	}{
		"of one member":             {[]claims.Claim{at("logs", 7), at("data", 7)}, []string{"data-7,logs-7"}},
		"set aside at another time": {[]claims.Claim{at("data", 7, aside), at("logs", 7, aside), at("data", 8, aside)}, []string{"data-7,logs-7", "data-8"}},
		"returned, and left again":  {[]claims.Claim{at("data", 0, member), at("logs", 7)}, []string{"data-0", "logs-7"}},
		"never bound":               {[]claims.Claim{at("data", 7), at("logs", 7, unbound)}, []string{"data-7", "logs-7"}},
		"two of one template":       {[]claims.Claim{at("data", 7), at("logs", 7), {Name: "x", UID: "x", Ordinal: 2, Template: "data", Volume: "pv-x", LeavingSince: time.Unix(1, 0), Left: 7}}, []string{"data-7", "logs-7", "x"}},
	} {
		units, of := claims.Together(test.all)
		var got []string
		f := &claims.Facts{Claims: units, Units: of}
		for i := range units {
			got = append(got, units[i].Sources())
			for _, c := range f.Unit(units[i].UID) {
				if unit := f.Unit(c.UID); unit[0].UID != units[i].UID {
					t.Errorf("%s: claim %s is of unit %s", what, c.UID, unit[0].UID)
				}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

func TestAMarkHasTheNumberOfItsUnit(t *testing.T) {
	t.Parallel()
	protected := func(c *claims.Claim) { c.Protected = true }
	marked := func(more ...change) claims.Claim {
		c := *left(append(more, protected)...)
		c.UID, c.Template, c.Left = "marked", "data", 7
		return c
	}
	new := func(more ...change) *claims.Claim {
		c := left(append(more, member)...)
		c.UID, c.Template = "new", "logs"
		return c
	}
	for what, test := range map[string]struct {
		all  []claims.Claim
		c    *claims.Claim
		want int64
	}{
		"the first":                       {nil, new(protected), 1},
		"the other one has it":            {[]claims.Claim{marked()}, new(protected), 7},
		"it was left over":                {[]claims.Claim{marked()}, new(), 8},
		"an earlier member's is deleted":  {[]claims.Claim{marked(deleting)}, new(protected), 8},
		"both are deleted":                {[]claims.Claim{marked(deleting)}, new(protected, deleting), 7},
		"it was set aside":                {[]claims.Claim{marked(func(c *claims.Claim) { c.Aside = true })}, new(protected), 8},
		"another member's":                {[]claims.Claim{marked(func(c *claims.Claim) { c.Ordinal = 3 })}, new(protected), 8},
		"an earlier one of this template": {[]claims.Claim{marked()}, func() *claims.Claim { c := new(protected); c.Template = "data"; return c }(), 8},
	} {
		if got := claims.NumberFor(test.all, test.c); got != test.want {
			t.Errorf("%s: %d, want %d", what, got, test.want)
		}
	}
}

func TestAUnitIsHandedOverWhenAllItsVolumesAreBound(t *testing.T) {
	t.Parallel()
	for what, pendingLogs := range map[string]bool{"all are bound": false, "one is not bound yet": true} {
		f := &claims.Facts{Now: noon}
		for _, template := range []string{"data", "logs"} {
			c := *left(deleting, where(claims.Reserved))
			c.Template, c.Name, c.UID, c.Volume, c.AsideName = template, template, types.UID(template), "pv-"+template, template+"-aside"
			a := c
			a.Name, a.UID, a.Aside, a.Deleting, a.Pending = c.AsideName, c.UID+"-aside", true, false, template == "logs" && pendingLogs
			f.Claims = append(f.Claims, c, a)
		}
		f.Claims, f.Units = claims.Together(f.Claims)
		if _, w := decide(f, true); (len(w.Actions) == 2) == pendingLogs || len(w.Actions)%2 != 0 {
			t.Errorf("%s: %v", what, w.Actions)
		}
	}
}

func TestLiveAMemberThatUsesItsClaimAgainKeepsIt(t *testing.T) {
	t.Parallel()
	const back = "member 2 uses claim data-2 again"
	for what, test := range map[string]struct {
		claim *claims.Claim
		why   action.Release
		want  string
	}{
		"drained":          {left(receipt("uid-2")), action.ByReceipt, back},
		"skipped":          {left(requested(claims.Skip)), action.BySkip, back},
		"deleted already":  {left(receipt("uid-2"), deleting), action.ByReceipt, ""},
		"set aside before": {left(receipt("uid-2"), func(c *claims.Claim) { c.Aside = true }), action.ByReceipt, ""},
	} {
		refusals(t, func(c *claims.Claim) error { return claims.MayRelease(&claims.Terms{}, c, test.why, true) }, map[*claims.Claim]string{test.claim: test.want})
		if err := claims.MayRelease(&claims.Terms{}, test.claim, test.why, false); err != nil {
			t.Errorf("%s, and it does not return: %v", what, err)
		}
	}
}

func TestLiveAMarkStaysWhileADrainMayUseTheVolume(t *testing.T) {
	t.Parallel()
	job := func(state claims.JobState) *claims.Facts {
		return &claims.Facts{Jobs: []claims.Job{{Name: "job", ClaimUID: "uid-2", State: state}}}
	}
	for what, test := range map[string]struct {
		live  *claims.Facts
		claim *claims.Claim
		may   bool
	}{
		"nothing uses it":    {&claims.Facts{}, left(), true},
		"a Job runs":         {job(claims.JobActive), left(), false},
		"a Job has failed":   {job(claims.JobFailed), left(), true},
		"a drainer's pod":    {&claims.Facts{ClaimsWithDrainerPod: []types.UID{"uid-2"}}, left(), false},
		"the claim goes":     {&claims.Facts{}, left(deleting), false},
		"it was set aside":   {&claims.Facts{}, left(func(c *claims.Claim) { c.Aside = true }), false},
		"another claim's is": {&claims.Facts{ClaimsWithDrainerPod: []types.UID{"uid-3"}}, left(), true},
	} {
		if err := claims.MayUnmark(test.live, test.claim); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestARangeHasItsOrdinals(t *testing.T) {
	t.Parallel()
	for ordinal, want := range map[int32]bool{4: false, 5: true, 6: true, 7: false} {
		if (action.Range{Start: 5, Count: 2}).Has(ordinal) != want {
			t.Errorf("%d: %t", ordinal, !want)
		}
	}
	if (action.Range{}).Has(0) || !(action.Range{Start: 1<<31 - 2, Count: 5}).Has(1<<31-1) {
		t.Error("an empty range has 0, or one at the end overflows")
	}
}
