package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// refusals compares a check's error about each scene; "" if the check allows the step.
func refusals(t *testing.T, check func(*Observed) error, scenes map[*scene]string) {
	t.Helper()
	for s, want := range scenes {
		got := ""
		if err := check(&s.o); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLiveTheSizeIsSetOnlyWhereNothingStandsAgainstIt(t *testing.T) {
	toTwo := func(o *Observed) error { return MaySetReplicas(o, 2) }
	refusals(t, toTwo, map[*scene]string{
		at(3).left(2):                     "claim data-2 has no leaving mark yet",
		at(2):                             "",
		at(2).left(2):                     "",
		at(1).left(1):                     "claim data-1 was left by its member, and is still there",
		at(2).left(2).job(2, 2):           "",
		at(2).left(2).job(2, 1):           "Job job-data-2 drains into 1 members",
		at(2).left(2).job(2, 1, gone):     "Job job-data-2 drains into 1 members",
		at(2).left(2).job(2, 1, complete): "",
	})
	aside := func(j *claims.Job) { j.ClaimUID = uid(1) + "-aside" }
	refusals(t, toTwo, map[*scene]string{
		marked(at(3), 2): "",
		// The cache had no Job when the mark was written.
		marked(at(3), 2).aside(1).job(1, 3, aside): "Job job-data-1 drains into 3 members",
		marked(grown(2, 3), 2):                     "items have to be moved among 3 members",
	})
	toNone := func(o *Observed) error { return MaySetReplicas(o, 0) }
	refusals(t, toNone, map[*scene]string{at(3): ""})
}

func TestLiveADrainBeginsOnlyWhereNothingStandsAgainstIt(t *testing.T) {
	left := func(changes ...func(*claims.Claim)) *scene { return at(2).left(2, changes...) }
	drain := func(o *Observed) error {
		return MayDrain(o, action.CreateDrain{Claim: action.ClaimRef{Name: name(2), UID: uid(2), Ordinal: 2}, Survivors: action.Range{Count: 2}})
	}
	refusals(t, drain, map[*scene]string{
		left():                           "",
		at(2):                            "claim data-2 is being deleted",
		left(deleting):                   "claim data-2 is being deleted",
		at(3):                            "claim data-2 is a member's",
		left(unheld):                     "claim data-2 lacks the finalizer",
		left().job(1, 2):                 "1 drains run already",
		left().job(1, 2, gone, complete): "1 drains run already",
		left().job(1, 2, complete):       "",
		left().pod(2):                    "member 2 is still shutting down",
		left().with(func(o *Observed) { o.StatefulSet.Replicas = 3 }):                   "the StatefulSet is not at 2 members yet",
		left().with(func(o *Observed) { o.StatefulSet = StatefulSet{} }):                "the StatefulSet is gone",
		left().with(func(o *Observed) { o.ClaimsWithDrainerPod = []types.UID{uid(2)} }): "the pod of an earlier drain of this claim is still there",
	})
}

func TestLiveTheClusterGoesOnlyWhenNothingIsHeld(t *testing.T) {
	refusals(t, func(o *Observed) error { return claims.MayRemoveOwnerFinalizer(&o.Facts) }, map[*scene]string{
		at(1):                 "claim data-0 still has the finalizer",
		at(0).left(0, unheld): "",
	})
}

func TestLiveAVolumeIsGivenUpOnlyWhereADrainerSaidSo(t *testing.T) {
	giveUp := func(o *Observed) error {
		c := o.Claim(uid(2))
		if err := claims.MayRelease(&o.Cluster.Terms, c, action.ByUnrecoverable, false); err != nil {
			return err
		}
		return claims.MayReleaseUnreadable(&o.Facts, c)
	}
	release := func(o *Observed) { o.Cluster.ReleaseUnreadable = true }
	refusals(t, giveUp, map[*scene]string{
		at(2).left(2).job(2, 2, unreadable).with(release):                         "",
		at(2).left(2).job(2, 2, unreadable):                                       "the Memcached keeps volumes that can't be read",
		at(2).left(2).job(2, 2, complete).with(release):                           "no drainer found that claim data-2 can't be read",
		at(2).left(2).with(release):                                               "no drainer found that claim data-2 can't be read",
		at(2).left(2, requested(claims.Hold)).job(2, 2, unreadable).with(release): "no drainer found that claim data-2 can't be read",
		at(3).job(2, 2, unreadable).with(release):                                 "claim data-2 is a member's",
	})
}
