package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// after sets the time since the failed Jobs ended.
func (s *scene) after(d time.Duration) *scene {
	return s.with(func(o *Observed) { o.Now = noon.Add(d) })
}

// failing is a Job that failed at noon with this exit code.
func failing(exitCode int, reason string) func(*claims.Job) {
	return func(j *claims.Job) {
		j.State, j.Ended = claims.JobFailed, noon
		j.Receipt = ReceiptOf(&contract.Receipt{Version: 1, Source: string(j.ClaimUID), Reason: reason, Message: "so it was", ExitCode: exitCode})
	}
}

func lost(j *claims.Job)          { outOfTime(j); j.Ended = noon }
func withoutWord(j *claims.Job)   { withoutReceipt(j); j.Ended = noon }
func isGoing(j *claims.Job)       { j.Deleting = true }
func unreachable(j *claims.Job)   { failing(contract.ExitUnreachable, "SurvivorUnreachable")(j) }
func unreadableNow(j *claims.Job) { failing(contract.ExitUnrecoverable, "SourceCorrupt")(j) }

func failedBefore(n int32, last types.UID) func(*claims.Claim) {
	return func(c *claims.Claim) { c.Attempts = action.Attempts{Failed: n, Last: last} }
}

// A failure that a retry can fix is tried again by itself; any other failure waits for a person.
// expect checks the plan's actions, drains, moves and Wake.
func (s *scene) expect(t *testing.T, want outcome, wake time.Time) {
	t.Helper()
	got := planned(s)
	want.Replicas, want.Blocked = got.Replicas, got.Blocked
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p := Next(&s.o); !p.Wake.Equal(wake) {
		t.Errorf("it wakes at %v, want %v", p.Wake, wake)
	}
}

func TestFailedDrainIsTriedAgainByItself(t *testing.T) {
	drain := func(changes ...func(*claims.Claim)) *scene { return at(2).left(2, changes...) }
	retries := []string{"apply the StatefulSet, 2 replicas", "count failure 1 of claim data-2", "delete Job job-data-2: it failed, and is tried again"}
	nothing := []string{"apply the StatefulSet, 2 replicas"}
	const job = types.UID("job-uid-2")
	for what, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  string
		wake    time.Time
	}{
		"not at once":              {drain().job(2, 2, unreachable).after(time.Second), nothing, "2 Failed SurvivorUnreachable", noon.Add(time.Minute)},
		"after a minute":           {drain().job(2, 2, unreachable).after(time.Minute), retries, "2 Waiting Retrying", time.Time{}},
		"lost with its node":       {drain().job(2, 2, lost).after(time.Minute), retries, "2 Waiting Retrying", time.Time{}},
		"its receipt was lost":     {drain().job(2, 2, withoutWord).after(time.Minute), retries, "2 Waiting Retrying", time.Time{}},
		"survivors refuse items":   {drain().job(2, 2, failing(contract.ExitRejected, "ItemsRejected")).after(time.Minute), retries, "2 Waiting Retrying", time.Time{}},
		"interrupted":              {drain().job(2, 2, failing(contract.ExitFailed, "Interrupted")).after(time.Minute), retries, "2 Waiting Retrying", time.Time{}},
		"the volume is unreadable": {drain().job(2, 2, unreadableNow).after(time.Hour), nothing, "2 Failed SourceCorrupt", time.Time{}},
		"the arguments are wrong":  {drain().job(2, 2, failing(contract.ExitUsage, "BadArguments")).after(time.Hour), nothing, "2 Failed BadArguments", time.Time{}},
		"the second takes longer":  {drain(failedBefore(1, "an earlier one")).job(2, 2, unreachable).after(time.Minute), nothing, "2 Failed SurvivorUnreachable", noon.Add(2 * time.Minute)},
		"but never more than half an hour": {drain(failedBefore(1000, "an earlier one")).job(2, 2, unreachable).after(29 * time.Minute), nothing,
			"2 Failed SurvivorUnreachable", noon.Add(30 * time.Minute)},
		"and never ends": {drain(failedBefore(1000, "an earlier one")).job(2, 2, unreachable).after(30 * time.Minute),
			[]string{nothing[0], "count failure 1001 of claim data-2", retries[2]}, "2 Waiting Retrying", time.Time{}},
		"whatever is on the claim": {drain(failedBefore(math.MaxInt32, "an earlier one")).job(2, 2, unreachable).after(time.Second), nothing,
			"2 Failed SurvivorUnreachable", noon.Add(30 * time.Minute)},
		"counted once, should the operator die": {drain(failedBefore(1, job)).job(2, 2, unreachable).after(time.Second),
			[]string{nothing[0], retries[2]}, "2 Waiting Retrying", time.Time{}},
		"the failed Job is on its way out": {drain(failedBefore(1, job)).job(2, 2, unreachable, isGoing).after(time.Hour), nothing, "2 Waiting InTurn", time.Time{}},
		"it is gone":                       {drain(failedBefore(1, job)).after(time.Hour), []string{nothing[0], "drain claim data-2 into 2 survivors"}, "2 Draining", time.Time{}},
		"a person asks, at once": {drain(requested(claims.Retry)).job(2, 2, unreachable).after(time.Second),
			[]string{nothing[0], "delete Job job-data-2: a person asked for a retry", "clear the retry of claim data-2"}, "2 Waiting InTurn", time.Time{}},
		"a person holds it":       {drain(requested(claims.Hold)).job(2, 2, unreachable).after(time.Hour), nothing, "2 Held Held", time.Time{}},
		"a person gives it up":    {drain(requested(claims.Skip)).job(2, 2, unreachable).after(time.Second), []string{nothing[0], "delete claim data-2: Skipped", "release claim data-2: Skipped", "delete Job job-data-2: its claim is released: Skipped"}, "2 Releasing Skipped", time.Time{}},
		"its member is to return": {drain(where(claims.Here)).wanted(3).job(2, 2, unreachable).after(time.Second), []string{nothing[0], "set claim data-2 aside"}, "2 Waiting SettingAside", noon.Add(time.Minute)},
	} {
		t.Run(what, func(t *testing.T) {
			test.scene.expect(t, outcome{Actions: test.actions, Drains: []string{test.drains}}, test.wake)
		})
	}
}

func TestStatusKnowsWhenTheNextAttemptIs(t *testing.T) {
	s := at(2).left(2).job(2, 2, unreachable).after(time.Second)
	got := Next(&s.o).Drains[0]
	const message = "so it was; failed attempts: 1, the next one is at 2026-05-01T12:01:00Z; " +
		"the claim is kept: see the drainer's log, then annotate the claim with cache.example.com/drain=retry, or =skip to give its items up"
	if got.Message != message || !got.RetryAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("got %q at %v", got.Message, got.RetryAt)
	}
}

func TestFailedMoveIsTriedAgainByItself(t *testing.T) {
	stillStored := failing(contract.ExitFailed, "StillStored")
	apply := "apply the StatefulSet, 3 replicas"
	for what, test := range map[string]struct {
		scene   *scene
		actions []string
		places  string
		wake    time.Time
	}{
		"not at once": {grown(1, 3).move(0, stillStored).after(time.Second), []string{apply}, "0 Failed StillStored", noon.Add(time.Minute)},
		"after a minute": {grown(1, 3).move(0, stillStored).after(time.Minute),
			[]string{apply, "count failure 1 of claim data-0", "delete Job move-data-0: it failed, and is tried again"}, "0 Waiting Retrying", time.Time{}},
		"it can't come right": {grown(1, 3).move(0, failing(contract.ExitUsage, "BadArguments")).after(time.Hour), []string{apply}, "0 Failed BadArguments", time.Time{}},
	} {
		t.Run(what, func(t *testing.T) {
			test.scene.expect(t, outcome{Actions: test.actions, Moves: []string{test.places}}, test.wake)
		})
	}
}

// A member that left later has newer values, so its drain comes before another attempt to drain a
// member that left earlier.
func TestNewerVolumesAreDrainedFirst(t *testing.T) {
	later := func(c *claims.Claim) { c.LeavingSince, c.Left = time.Unix(500, 0), 2 } // written by a clock that is behind
	for what, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"it comes":                 {at(1).left(1, later).left(2).pod(1), []string{"2 Waiting InTurn", "1 Waiting PodPresent"}},
		"it is drained":            {at(1).left(1, later).left(2).job(1, 1), []string{"2 Waiting InTurn", "1 Draining"}},
		"it is tried again":        {at(1).left(1, later).left(2).job(1, 1, unreachable).after(time.Second), []string{"2 Waiting InTurn", "1 Failed SurvivorUnreachable"}},
		"it waits for a person":    {at(1).left(1, later).left(2).job(1, 1, unreadableNow).after(time.Second), []string{"2 Draining", "1 Failed SourceCorrupt"}},
		"a person holds it":        {at(1).left(1, later, requested(claims.Hold)).left(2), []string{"2 Draining", "1 Held Held"}},
		"it left at the same time": {at(1).left(1).left(2).pod(1), []string{"2 Draining", "1 Waiting PodPresent"}},
	} {
		if diff := cmp.Diff(test.want, planned(test.scene).Drains); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
		err := MayDrain(&test.scene.o, action.CreateDrain{Claim: action.ClaimRef{Name: name(2), UID: uid(2), Ordinal: 2}, Survivors: action.Range{Count: 1}})
		if test.want[0] == "2 Waiting InTurn" && err == nil {
			t.Errorf("%s: live, nothing stands against it", what)
		}
	}
}

// A failed Job of an aside claim may have been created for another size.
func TestSizeIsNotThatOfAFailedJobThatGoes(t *testing.T) {
	s := at(2).aside(2).job(2, 3, unreachable, isGoing)
	s.o.Jobs[0].ClaimUID += "-aside"
	if p := Next(&s.o); p.Replicas != 2 {
		t.Errorf("%d replicas", p.Replicas)
	}
}

// When its pod ends, the Job would continue, although a person holds the claim.
func TestAHeldClaimsJobWhosePodIsKeptIsDeleted(t *testing.T) {
	for what, test := range map[string]struct {
		scene   *scene
		deletes bool
	}{
		"its pod is kept":     {at(2).left(2, requested(claims.Hold)).job(2, 2, failing(4, "Unreachable"), podKept), true},
		"its pod has ended":   {at(2).left(2, requested(claims.Hold)).job(2, 2, failing(4, "Unreachable")), false},
		"no retry can fix it": {at(2).left(2, requested(claims.Hold)).job(2, 2, unreadable, podKept), false},
	} {
		t.Run(what, func(t *testing.T) {
			actions := planned(test.scene.after(time.Second)).Actions
			deletes := slices.ContainsFunc(actions, func(a string) bool { return strings.HasPrefix(a, "delete Job") })
			if deletes != test.deletes {
				t.Errorf("%v", actions)
			}
		})
	}
}
