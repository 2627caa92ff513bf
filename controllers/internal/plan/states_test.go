package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// TestEachStateOfAMarkedClaimHasOneNextStep follows the claim of the third member from its mark to
// its end, in a cluster of two.
func TestEachStateOfAMarkedClaimHasOneNextStep(t *testing.T) {
	apply := "apply the StatefulSet, 2 replicas"
	for name, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  []string
		lost    []string
	}{
		"the size was lowered: marked first, then the StatefulSet is made smaller": {
			at(3).wanted(2), []string{"mark claim data-2 as leaving", apply}, []string{"2 Waiting PodPresent"}, nil,
		},
		"marked, but the StatefulSet is not smaller yet": {
			at(2).left(2).with(func(o *Observed) { o.StatefulSet.Replicas = 3 }), []string{apply}, []string{"2 Waiting PodPresent"}, nil,
		},
		"the pod shuts down": {
			at(2).left(2).pod(2), []string{apply}, []string{"2 Waiting PodPresent"}, nil,
		},
		"the pod is gone": {
			at(2).left(2), []string{apply, "drain claim data-2 into 2 survivors"}, []string{"2 Draining"}, nil,
		},
		"a drainer of an earlier Job is not gone": {
			at(2).left(2).with(func(o *Observed) { o.ClaimsWithDrainerPod = []types.UID{uid(2)} }), []string{apply}, []string{"2 Waiting InTurn"}, nil,
		},
		"the Job runs": {
			at(2).left(2).job(2, 2), []string{apply}, []string{"2 Draining"}, nil,
		},
		"the Job is being deleted": {
			at(2).left(2).job(2, 2, gone), []string{apply}, []string{"2 Waiting InTurn"}, nil,
		},
		"the Job is complete": {
			at(2).left(2).job(2, 2, complete), []string{apply, "record the receipt of claim data-2"}, []string{"2 Releasing Drained"}, nil,
		},
		"the Job is complete, and a person asks for a retry: there is none to make": {
			at(2).left(2, requested(claims.Retry)).job(2, 2, complete),
			[]string{apply, "record the receipt of claim data-2"}, []string{"2 Releasing Drained"}, nil,
		},
		"the receipt is recorded": {
			at(2).left(2, drained).job(2, 2, complete),
			[]string{apply, "delete claim data-2: Drained", "release claim data-2: Drained", "delete Job job-data-2: its claim is released: Drained"},
			[]string{"2 Releasing Drained"}, nil,
		},
		"the receipt is recorded, the claim gone but for its pods' sake": {
			at(2).left(2, drained, deleting, unheld).job(2, 2, complete),
			[]string{apply, "delete Job job-data-2: its claim is released: Drained"}, []string{"2 Releasing Drained"}, nil,
		},
		"the receipt is recorded, the Job gone, the claim deleted": {
			at(2).left(2, drained, deleting), []string{apply, "release claim data-2: Drained"}, []string{"2 Releasing Drained"}, nil,
		},
		"the receipt is recorded, the finalizer gone, the claim not yet": {
			at(2).left(2, drained, deleting, unheld), []string{apply}, []string{"2 Releasing Drained"}, nil,
		},
		"the Job failed with a receipt": {
			at(2).left(2).job(2, 2, unreadable), []string{apply}, []string{"2 Failed SourceCorrupt"}, nil,
		},
		"the Job failed without one": {
			at(2).left(2).job(2, 2, outOfTime), []string{apply}, []string{"2 Failed JobFailed"}, nil,
		},
		"the Job is complete without a receipt": {
			at(2).left(2).job(2, 2, withoutReceipt), []string{apply}, []string{"2 Failed ReceiptInvalid"}, nil,
		},
		"a failed drain is retried: the Job goes, and the request with it": {
			at(2).left(2, requested(claims.Retry)).job(2, 2, unreadable),
			[]string{apply, "delete Job job-data-2: a person asked for a retry", "clear the retry of claim data-2"},
			[]string{"2 Waiting InTurn"}, nil,
		},
		"the operator died between the two": {
			at(2).left(2, requested(claims.Retry)),
			[]string{apply, "clear the retry of claim data-2", "drain claim data-2 into 2 survivors"}, []string{"2 Draining"}, nil,
		},
		"a retry of a drain that runs": {
			at(2).left(2, requested(claims.Retry)).job(2, 2), []string{apply, "clear the retry of claim data-2"}, []string{"2 Draining"}, nil,
		},
		"held": {
			at(2).left(2, requested(claims.Hold)), []string{apply}, []string{"2 Held Held"}, nil,
		},
		"held too late": {
			at(2).left(2, requested(claims.Hold)).job(2, 2), []string{apply}, []string{"2 Draining"}, nil,
		},
		"skipped": {
			at(2).left(2, requested(claims.Skip)),
			[]string{apply, "delete claim data-2: Skipped", "release claim data-2: Skipped"}, []string{"2 Releasing Skipped"}, nil,
		},
		"skipped while the pod shuts down: a volume in use goes nowhere": {
			at(2).left(2, requested(claims.Skip)).pod(2), []string{apply}, []string{"2 Waiting PodPresent"}, nil,
		},
		"skipped while the Job runs": {
			at(2).left(2, requested(claims.Skip)).job(2, 2),
			[]string{apply, "delete claim data-2: Skipped", "release claim data-2: Skipped", "delete Job job-data-2: its claim is released: Skipped"},
			[]string{"2 Releasing Skipped"}, nil,
		},
		"an unknown request is none": {
			at(2).left(2, requested("maybe")), []string{apply, "drain claim data-2 into 2 survivors"}, []string{"2 Draining"}, nil,
		},
		"never bound": {
			at(2).left(2, unbound), []string{apply, "delete claim data-2: NeverBound", "release claim data-2: NeverBound"},
			[]string{"2 Releasing NeverBound"}, nil,
		},
		"deleted by a person, and given up": {
			at(2).left(2, deleting, requested(claims.Skip)), []string{apply, "release claim data-2: Skipped"}, []string{"2 Releasing Skipped"}, nil,
		},
		"not held: it is, before anything else": {
			at(2).left(2, unheld), []string{"add the finalizer to claim data-2", apply, "drain claim data-2 into 2 survivors"}, []string{"2 Draining"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := outcome{Replicas: 2, Actions: test.actions, Drains: test.drains, Lost: test.lost}
			got := planned(test.scene)
			got.Blocked = "" // TestTheSizeWaitsForDrainsAndVolumes
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestVolumeThatCannotBeReadIsGivenUpWhereTheSpecSaysSo(t *testing.T) {
	apply := "apply the StatefulSet, 2 replicas"
	givenUp := []string{apply, "release claim data-2: Unrecoverable", "delete Job job-data-2: its claim is released: Unrecoverable"}
	rejected := func(j *claims.Job) { unreadable(j); j.Receipt = failedWith(j.ClaimUID, contract.ExitRejected) }
	stranger := func(j *claims.Job) { unreadable(j); j.Receipt.Source = "another claim" }
	for name, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  []string
	}{
		"its Job says so, and stays until status has it": {at(2).left(2).job(2, 2, unreadable), []string{apply, "delete claim data-2: Unrecoverable"}, []string{"2 Releasing Unrecoverable"}},
		"the claim is deleted": {
			at(2).left(2, deleting).job(2, 2, unreadable), givenUp, []string{"2 Releasing Unrecoverable"},
		},
		"it failed for another reason": {at(2).left(2).job(2, 2, rejected), []string{apply}, []string{"2 Failed SourceCorrupt"}},
		"it failed without a word":     {at(2).left(2).job(2, 2, outOfTime), []string{apply}, []string{"2 Failed JobFailed"}},
		"another claim can't be read":  {at(2).left(2).job(2, 2, stranger), []string{apply}, []string{"2 Failed SourceCorrupt"}},
		"a person wants it tried again": {
			at(2).left(2, requested(claims.Retry)).job(2, 2, unreadable),
			[]string{apply, "delete Job job-data-2: a person asked for a retry", "clear the retry of claim data-2"}, []string{"2 Waiting InTurn"},
		},
		"a person holds it": {at(2).left(2, requested(claims.Hold)).job(2, 2, unreadable), []string{apply}, []string{"2 Failed SourceCorrupt"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.scene.o.Cluster.ReleaseUnreadable = true
			want := outcome{Replicas: 2, Actions: test.actions, Drains: test.drains}
			if diff := cmp.Diff(want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPolicyDecidesAboutDepartedClaims(t *testing.T) {
	apply := "apply the StatefulSet, 2 replicas"
	for name, test := range map[string]struct {
		policy  claims.DrainPolicy
		scene   *scene
		actions []string
		drains  []string
	}{
		"Delete lets the claim go": {
			claims.Delete, at(2).left(2), []string{apply, "delete claim data-2: Deleted", "release claim data-2: Deleted"}, []string{"2 Releasing Deleted"},
		},
		"Delete waits for the pod": {claims.Delete, at(2).left(2).pod(2), []string{apply}, []string{"2 Waiting PodPresent"}},
		"Retain keeps the claim, and its finalizer goes": {
			claims.Retain, at(2).left(2), []string{apply, "release claim data-2: Retained"}, nil,
		},
		"Retain leaves a retained claim alone": {claims.Retain, at(2).left(2, unheld), []string{apply}, nil},
		"Retain ends a drain that runs": {
			claims.Retain, at(2).left(2).job(2, 2),
			[]string{apply, "release claim data-2: Retained", "delete Job job-data-2: its claim is released: Retained"}, nil,
		},
		"a recorded receipt goes before Retain": {
			claims.Retain, at(2).left(2, drained), []string{apply, "delete claim data-2: Drained", "release claim data-2: Drained"}, []string{"2 Releasing Drained"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.scene.o.Cluster.Policy = test.policy
			want := outcome{Replicas: 2, Actions: test.actions, Drains: test.drains}
			if diff := cmp.Diff(want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTheSizeWaitsForDrainsAndVolumes(t *testing.T) {
	for name, test := range map[string]struct {
		scene    *scene
		replicas int32
		blocked  Block
	}{
		"up while a drain runs":                     {at(2).wanted(3).left(2).job(2, 2), 2, BlockedByDrain},
		"up while a Job is being deleted":           {at(2).wanted(3).left(2).job(2, 2, gone), 2, BlockedByDrain},
		"down further while a drain runs":           {at(2).wanted(1).left(2).job(2, 2), 2, BlockedByDrain},
		"to zero while a drain runs":                {at(2).wanted(0).left(2).job(2, 2), 2, BlockedByDrain},
		"up while a drain waits for the pod":        {at(2).wanted(3).left(2).pod(2), 2, BlockedByVolume},
		"up past a drain that failed":               {at(2).wanted(4).left(2).job(2, 2, unreadable), 2, BlockedByVolume},
		"up past a drain that is held":              {at(2).wanted(3).left(2, requested(claims.Hold)), 2, BlockedByVolume},
		"up past a volume that was retained":        {at(2).wanted(3).left(2, unheld).with(func(o *Observed) { o.Cluster.Policy = claims.Retain }), 2, BlockedByVolume},
		"up past a claim whose receipt is recorded": {at(2).wanted(3).left(2, drained), 2, BlockedByVolume},
		"up below a failed drain: nothing is in the way": {
			at(2).wanted(3).left(5).job(5, 5, unreadable), 3, NotBlocked,
		},
		"down further while a drain waits for the pod":            {at(2).wanted(1).left(2).pod(2), 2, BlockedByDrain},
		"down further, past a gap, while a drain waits":           {at(2).wanted(1).left(3).pod(3), 2, BlockedByDrain},
		"as far as members left already":                          {at(1).left(1).left(2).pod(2), 1, NotBlocked},
		"down further beside a failed Job whose pod is kept":      {at(2).wanted(1).left(2).job(2, 2, outOfTime, podKept), 2, BlockedByDrain},
		"up beside one that goes on when its pod ends":            {at(2).wanted(3).left(5).job(5, 2, outOfTime, podKept), 2, BlockedByDrain},
		"down further beside one that is not tried again":         {at(2).wanted(1).left(2).job(2, 2, unreadable, podKept), 1, NotBlocked},
		"a member with the mark stays under a drain":              {marked(at(3), 2).wanted(2).aside(1).job(7, 3), 3, BlockedByDrain},
		"a member with the mark stays until all are moved":        {marked(grown(2, 3), 2).wanted(2), 3, BlockedByMove},
		"all but those with the mark stay, whatever is to happen": {marked(at(3), 2).wanted(3), 2, BlockedByVolume},
		"never back to a volume, whatever a Job says":             {at(1).wanted(3).left(1).left(2).job(2, 2), 1, BlockedByVolume},
		"down further after a drain failed":                       {at(2).wanted(1).left(2).job(2, 2, unreadable), 1, NotBlocked},
		"the StatefulSet was deleted while a drain runs": {
			at(2).left(2).job(2, 2).with(func(o *Observed) { o.StatefulSet = StatefulSet{} }), 2, NotBlocked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(test.scene)
			if got.Replicas != test.replicas || got.Blocked != test.blocked {
				t.Errorf("got %d replicas, blocked %q; want %d, %q", got.Replicas, got.Blocked, test.replicas, test.blocked)
			}
		})
	}
}

// The Job drains into one member. The cache is stale: the second member has just come.
func TestAJobOfLongAgoMarksNoMemberThatCameSince(t *testing.T) {
	got := planned(at(2).left(2).job(2, 1))
	want := outcome{Replicas: 1, Blocked: BlockedByDrain, Actions: []string{"apply the StatefulSet, 1 replicas"}, Drains: []string{"2 Draining"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	behind := at(2).left(2).job(2, 1, complete)
	if err := MaySetReplicas(&behind.o, 1); err == nil {
		t.Error("a member that was not told to leave may be taken away")
	}
}

func TestSeveralDrainHighestFirst(t *testing.T) {
	three := func(parallelism int32) *scene {
		return at(1).left(1).left(3).left(2).with(func(o *Observed) { o.Cluster.Parallelism = parallelism })
	}
	apply := "apply the StatefulSet, 1 replicas"
	for name, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  []string
	}{
		"one at a time": {
			three(1), []string{apply, "drain claim data-3 into 1 survivors"},
			[]string{"3 Draining", "2 Waiting InTurn", "1 Waiting InTurn"},
		},
		"two at a time": {
			three(2), []string{apply, "drain claim data-3 into 1 survivors", "drain claim data-2 into 1 survivors"},
			[]string{"3 Draining", "2 Draining", "1 Waiting InTurn"},
		},
		"the next one when one runs": {
			three(2).job(3, 1), []string{apply, "drain claim data-2 into 1 survivors"},
			[]string{"3 Draining", "2 Draining", "1 Waiting InTurn"},
		},
		"a failed one blocks no member": {
			three(1).job(3, 1, unreadable), []string{apply, "drain claim data-2 into 1 survivors"},
			[]string{"3 Failed SourceCorrupt", "2 Draining", "1 Waiting InTurn"},
		},
		"one whose member is slow to end is overtaken": {
			three(1).pod(3), []string{apply, "drain claim data-2 into 1 survivors"},
			[]string{"3 Waiting PodPresent", "2 Draining", "1 Waiting InTurn"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := outcome{Replicas: 1, Actions: test.actions, Drains: test.drains}
			if diff := cmp.Diff(want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAtSizeZeroNothingIsMarkedOrDrained(t *testing.T) {
	asleep := func() *scene {
		return at(3).with(func(o *Observed) { o.StatefulSet.Replicas, o.Pods = 0, nil })
	}
	for name, test := range map[string]struct {
		scene *scene
		want  outcome
	}{
		"3 to 0 marks and drains nothing": {at(3).wanted(0), outcome{Actions: []string{"apply the StatefulSet, 0 replicas"}}},
		"0 to 3 brings the members back to their volumes": {
			asleep(), outcome{Replicas: 3, Actions: []string{"apply the StatefulSet, 3 replicas"}},
		},
		"0 to 2 drains the third, once two are there to take its items": {
			asleep().wanted(2),
			outcome{
				Replicas: 2, Actions: []string{"mark claim data-2 as leaving", "apply the StatefulSet, 2 replicas"},
				Drains: []string{"2 Waiting PodPresent"},
			},
		},
		"to 0 with a drain that has not begun: it waits for members": {
			at(2).wanted(0).left(2),
			outcome{Actions: []string{"apply the StatefulSet, 0 replicas"}, Drains: []string{"2 Waiting Hibernating"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDeletionLetsEverythingGo(t *testing.T) {
	deleted := func(claimsToo bool, s *scene) *scene {
		s.o.Cluster.Deleting, s.o.Cluster.DeleteClaims = true, claimsToo
		return s
	}
	noMembers := func(s *scene) *scene {
		s.o.StatefulSet = StatefulSet{}
		return s
	}
	for name, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"first the drains stop and the StatefulSet goes: it could make claims": {
			deleted(true, at(1).left(1).job(1, 1)),
			[]string{"delete Job job-data-1: the Memcached is deleted", "delete the StatefulSet"},
		},
		"members that are to stay without it do": {
			deleted(true, at(2).left(2).job(2, 2).with(func(o *Observed) { o.Cluster.Orphan = true })),
			[]string{
				"delete Job job-data-2: the Memcached is deleted", "release claim data-2: ClusterDeleted",
				"release claim data-1: ClusterDeleted", "release claim data-0: ClusterDeleted", "remove the cluster's finalizer",
			},
		},
		"a StatefulSet on its way out is waited for": {
			deleted(false, at(1).with(func(o *Observed) { o.StatefulSet.Deleting = true })), nil,
		},
		"Retain takes the finalizers off": {
			deleted(false, noMembers(at(1).left(1))),
			[]string{"release claim data-1: ClusterDeleted", "release claim data-0: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"Retain lets a claim go whose items have moved": {
			deleted(false, noMembers(at(0).left(1, drained))),
			[]string{"delete claim data-1: ClusterDeleted", "release claim data-1: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"Delete deletes the claims": {
			deleted(true, noMembers(at(1))),
			[]string{"delete claim data-0: ClusterDeleted", "release claim data-0: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"a held claim, too": {
			deleted(false, noMembers(at(0).left(1, requested(claims.Hold)))),
			[]string{"release claim data-1: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"a terminating namespace lets all finalizers go at once": {
			at(1).left(1).job(1, 1).with(func(o *Observed) { o.Cluster.NamespaceTerminating = true }),
			[]string{"release claim data-1: NamespaceTerminating", "release claim data-0: NamespaceTerminating", "remove the cluster's finalizer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, planned(test.scene).Actions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A Job whose claim is gone runs until it is deleted; steps that wait for its end come later.
func TestJobsWhoseClaimIsGoneAreSweptBeforeItemsAreMoved(t *testing.T) {
	got := planned(grown(1, 2).job(7, 2))
	want := []string{"delete Job job-data-7: its claim is gone", "apply the StatefulSet, 2 replicas"}
	if diff := cmp.Diff(want, got.Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := []string{"0 Waiting MoveWaits"}; !slices.Equal(got.Moves, want) {
		t.Errorf("moves are %v", got.Moves)
	}
}

func TestJobsWhoseClaimIsGoneAreSwept(t *testing.T) {
	const swept = "delete Job job-data-2: its claim is gone"
	for name, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"one that has ended":         {at(2).job(2, 2, complete), []string{swept, "apply the StatefulSet, 2 replicas"}},
		"one that failed":            {at(2).job(2, 2, unreadable), []string{swept, "apply the StatefulSet, 2 replicas"}},
		"one that runs":              {at(2).job(2, 2), []string{swept, "apply the StatefulSet, 2 replicas"}},
		"one that is being deleted":  {at(2).job(2, 2, gone), []string{"apply the StatefulSet, 2 replicas"}},
		"not one whose claim is not": {at(2).left(2).job(2, 2), []string{"apply the StatefulSet, 2 replicas"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, planned(test.scene).Actions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPlanChangesNothingOfWhatItSees(t *testing.T) {
	s := at(3).wanted(1).left(5, unheld)
	before := at(3).wanted(1).left(5, unheld)
	Next(&s.o)
	if diff := cmp.Diff(before.o, s.o, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}
