package claims_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// written gives a claim the UID that its marks name.
func written(uid types.UID) change { return func(c *claims.Claim) { c.WrittenFor(uid) } }

func policy(p claims.DrainPolicy) change {
	return func(c *claims.Claim) { c.Decided, c.Policy = true, p }
}

// setAside makes an aside claim of the claim uid-2.
func setAside(c *claims.Claim) {
	c.Name, c.UID, c.Aside, c.First, c.AsideName = "data-2-aside", "uid-2-aside", true, "uid-2", "data-2-next"
}

func TestWhatIsWrittenOnAClaimIsAboutThisClaim(t *testing.T) {
	t.Parallel()
	const held, apart = "Held Held", "Kept "
	first := func() *claims.Claim {
		return left(deleting, where(claims.Reserved), func(c *claims.Claim) { c.AsideName = "data-2-aside" })
	}
	for what, test := range map[string]struct {
		all []*claims.Claim
		// want is the state of the last claim, and the steps.
		want  string
		steps []string
	}{
		"its own":                      {[]*claims.Claim{left(written("uid-2"))}, "Draining ", []string{"drain claim data-2 into 1 survivors"}},
		"another's":                    {[]*claims.Claim{left(written("uid-1"))}, held, []string{"note that claim data-2 was restored"}},
		"of none":                      {[]*claims.Claim{left(written(""))}, held, []string{"note that claim data-2 was restored"}},
		"another's skip":               {[]*claims.Claim{left(requested(claims.Skip), written("uid-1"))}, held, []string{"note that claim data-2 was restored"}},
		"another's retry":              {[]*claims.Claim{left(requested(claims.Retry), written("uid-1"))}, held, []string{"note that claim data-2 was restored"}},
		"another's Delete":             {[]*claims.Claim{left(policy(claims.Delete), written("uid-1"))}, held, []string{"note that claim data-2 was restored"}},
		"another's Retain":             {[]*claims.Claim{left(policy(claims.Retain), written("uid-1"))}, apart, []string{"release claim data-2: Retained"}},
		"another's, without a volume":  {[]*claims.Claim{left(unbound, written("uid-1"))}, held, []string{"note that claim data-2 was restored"}},
		"never bound":                  {[]*claims.Claim{left(unbound, written("uid-2"))}, "Releasing ", []string{"delete claim data-2: NeverBound", "release claim data-2: NeverBound"}},
		"restored, and noted":          {[]*claims.Claim{left(restored, requested(claims.Hold), written("uid-2"))}, held, nil},
		"restored, Delete, no request": {[]*claims.Claim{left(restored, policy(claims.Delete))}, "Draining ", []string{"drain claim data-2 into 1 survivors"}},
		"restored, a person's retry": {[]*claims.Claim{left(restored, unbound, where(claims.NoneYet), requested(claims.Retry))}, "Draining ",
			[]string{"clear the retry of claim data-2", "drain claim data-2 into 1 survivors"}},
		"restored, a person's skip": {[]*claims.Claim{left(restored, requested(claims.Skip))}, "Releasing ", []string{"delete claim data-2: Skipped", "release claim data-2: Skipped"}},
		"restored, deleted before it had a volume": {[]*claims.Claim{left(restored, unbound, deleting, where(claims.NoneYet), requested(claims.Hold))}, "Releasing ",
			[]string{"release claim data-2: NeverBound"}},
		"a hand-over begins": {[]*claims.Claim{first(), left(setAside, written("uid-2"), pending)}, "Waiting SettingAside", []string{"carry the marks of claim data-2 over to claim data-2-aside"}},
		"it is bound, and its marks are not its own": {[]*claims.Claim{first(), left(setAside, written("uid-2"))}, "Waiting SettingAside",
			[]string{"carry the marks of claim data-2 over to claim data-2-aside"}},
		"they are":                                {[]*claims.Claim{first(), left(setAside, written("uid-2-aside"))}, "Waiting SettingAside", []string{"release claim data-2: SetAside"}},
		"a backup, before the first claim goes":   {[]*claims.Claim{first(), left(setAside, written("uid-2-old"))}, "Waiting SettingAside", []string{"release claim data-2: SetAside"}},
		"the first claim is gone":                 {[]*claims.Claim{left(setAside, written("uid-2-aside"))}, "Draining ", []string{"drain claim data-2-aside into 1 survivors"}},
		"it is gone, and the marks are its":       {[]*claims.Claim{left(setAside, written("uid-2"))}, held, []string{"note that claim data-2-aside was restored"}},
		"the first claim is restored, too":        {[]*claims.Claim{left(written("uid-1"), func(c *claims.Claim) { c.UID = "uid-3" }), left(setAside, written("uid-2"))}, held, []string{"note that claim data-2 was restored", "note that claim data-2-aside was restored"}},
		"a backup, before they were carried over": {[]*claims.Claim{left(setAside, written("uid-2-old"))}, held, []string{"note that claim data-2-aside was restored"}},
	} {
		f := &claims.Facts{Now: noon}
		for _, c := range test.all {
			f.Claims = append(f.Claims, *c)
		}
		claims.NoteLost(f.Claims)
		v, w := decide(f, false)
		got := apart
		if n := len(v.Drains); n > 0 {
			got = fmt.Sprintf("%s %s", v.Drains[n-1].Phase, v.Drains[n-1].Reason)
		}
		var steps []string
		for _, a := range w.Actions {
			steps = append(steps, a.String())
		}
		if diff := cmp.Diff(test.steps, steps); got != test.want || diff != "" {
			t.Errorf("%s: %s, want %s; -want +got:\n%s", what, got, test.want, diff)
		}
	}
}

func restored(c *claims.Claim) { c.Restored = true }
func pending(c *claims.Claim)  { c.Pending = true }

// The first claim stays until the marks are another claim's: nothing else tells the two from a backup.
func TestLiveAClaimIsHandedOverWithItsMarks(t *testing.T) {
	t.Parallel()
	first := *left(deleting, where(claims.Reserved))
	other := *left(setAside, written("uid-2-aside"))
	other.UID = "later"
	for what, test := range map[string]struct {
		others []claims.Claim
		may    bool
	}{
		"they are its own":                   {[]claims.Claim{*left(setAside, written("uid-2-aside"))}, true},
		"they are not yet":                   {[]claims.Claim{*left(setAside, written("uid-2"))}, false},
		"another has the volume, and no":     {[]claims.Claim{other, *left(setAside, deleting, written("uid-2"))}, false},
		"another has the volume, and it has": {[]claims.Claim{other, *left(setAside, deleting, written("uid-2-aside"))}, true},
	} {
		f := &claims.Facts{Claims: append([]claims.Claim{first}, test.others...)}
		if err := claims.MayHandOver(f, &first, ""); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
	member := first
	member.Deleting = false
	aside := left(setAside, written("uid-2"))
	for what, test := range map[string]struct {
		all  []claims.Claim
		may  bool
		note bool
	}{
		"it is being deleted": {[]claims.Claim{first, *aside}, true, false},
		"it is not":           {[]claims.Claim{member, *aside}, false, false},
		"it is gone":          {[]claims.Claim{*aside}, false, true},
	} {
		f := &claims.Facts{Claims: test.all}
		if err := claims.MayCarryOver(f, aside); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
		if err := claims.MayNoteRestored(f, aside); (err == nil) != test.note {
			t.Errorf("%s: it is from a backup: %v", what, err)
		}
	}
	drain := action.ClaimRef{Name: "data-2", UID: "uid-2"}
	for _, c := range []*claims.Claim{aside, left(written("another"))} {
		if claims.MayDrain(&claims.Facts{}, c, drain, 1) == nil {
			t.Errorf("claim %s may be drained", c.Name)
		}
	}
}

// A skip of a deleted aside claim that has the volume gives up the volume, which its first claim would wait for.
func TestASkipOfAnAsideClaimIsAboutItsFirstClaimToo(t *testing.T) {
	t.Parallel()
	first := func(changes ...change) *claims.Claim {
		return left(append([]change{deleting, where(claims.Elsewhere)}, changes...)...)
	}
	skip := requested(claims.Skip)
	for what, test := range map[string]struct {
		first, aside *claims.Claim
		steps        []string
	}{
		"a departed member's": {first(), left(setAside, deleting, where(claims.Here), skip), []string{"annotate claim data-2 with skip"}},
		"a member's":          {first(member), left(setAside, deleting, where(claims.Here), skip), []string{"annotate claim data-2 with skip"}},
		"it is said":          {first(skip), left(setAside, deleting, where(claims.Here), skip), []string{"release claim data-2-aside: Skipped"}},
		"it is not deleted":   {first(), left(setAside, where(claims.Here), skip), []string{"release claim data-2: SetAside"}},
	} {
		f := &claims.Facts{Now: noon, Claims: []claims.Claim{*test.first, *test.aside}}
		_, w := decide(f, true)
		var steps []string
		for _, a := range w.Actions {
			steps = append(steps, a.String())
		}
		if diff := cmp.Diff(test.steps, steps); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	for what, test := range map[string]struct {
		aside *claims.Claim
		may   bool
	}{
		"it has the volume": {left(setAside, deleting, skip), true},
		"it waits for it":   {left(setAside, deleting, pending, skip), false},
		"no skip":           {left(setAside, deleting), false},
	} {
		live := &claims.Facts{Claims: []claims.Claim{*first(), *test.aside}}
		if err := claims.MaySkipToo(live, first()); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The receipt is on the claim before anything goes. The Job goes when its pod has ended.
func TestAReleasedClaimsJobGoesWhenItsPodHasEnded(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		job   claims.Job
		claim *claims.Claim
		want  []string
	}{
		"a receipt comes":         {claims.Job{PodEnds: true}, left(), []string{"record the receipt of claim data-2"}},
		"its pod is about to end": {claims.Job{PodEnds: true}, left(receipt("uid-2")), []string{"delete claim data-2: Drained", "release claim data-2: Drained"}},
		"it has ended":            {claims.Job{}, left(receipt("uid-2")), []string{"delete claim data-2: Drained", "release claim data-2: Drained", "delete Job drain: its claim is released: Drained"}},
		"a person gives it up":    {claims.Job{PodEnds: true}, left(requested(claims.Skip)), []string{"delete claim data-2: Skipped", "release claim data-2: Skipped", "delete Job drain: its claim is released: Skipped"}},
	} {
		job := test.job
		job.Name, job.UID, job.ClaimUID, job.State, job.Receipt = "drain", "job", "uid-2", claims.JobComplete, &action.Receipt{Source: "uid-2"}
		f := &claims.Facts{Now: noon, Claims: []claims.Claim{*test.claim}, Jobs: []claims.Job{job}}
		_, w := decide(f, false)
		var steps []string
		for _, a := range w.Actions {
			steps = append(steps, a.String())
		}
		if diff := cmp.Diff(test.want, steps); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}
