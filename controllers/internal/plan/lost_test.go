package plan

import (
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
)

// without names the ring without member 2.
var without = TargetWithout(target, []int32{2})

// losing is a cluster of three whose third member joined, and has been away since noon.
func losing(wanted int32) *scene {
	return grown(2, 3).wanted(wanted).after(time.Hour).with(func(o *Observed) {
		o.Ready, o.Away = []int32{0, 1}, []Away{{2, noon}}
	})
}

func TestLostMemberCanBeLetGo(t *testing.T) {
	apply := "apply the StatefulSet, 3 replicas"
	place := "move the items of the member of claim data-1, by ring " + without + ", without [2]"
	move0 := "move the items of the member of claim data-0, by ring " + without + ", without [2]"
	waits := []string{"1 Waiting MoveWaits", "0 Waiting MoveWaits"}
	for what, test := range map[string]struct {
		scene   *scene
		actions []string
		places  []string
		wake    time.Time
	}{
		"what others hold of its is discarded": {losing(2), []string{apply, place, move0}, []string{"1 Moving", "0 Moving"}, time.Time{}},
		"not while it is to stay":              {losing(3), []string{apply}, waits, time.Time{}},
		"not when all are to stop":             {losing(0), []string{"apply the StatefulSet, 0 replicas"}, nil, time.Time{}},
		"not at once":                          {losing(2).after(time.Second), []string{apply}, waits, noon.Add(time.Minute)},
		"not when it is there": {losing(2).with(func(o *Observed) { o.Ready = []int32{0, 1, 2} }),
			[]string{apply, "move the items of the member of claim data-1, by ring 5-cafe", "move the items of the member of claim data-0, by ring 5-cafe"}, []string{"1 Moving", "0 Moving"}, time.Time{}},
		"not where two leave, and it holds items of before": {losing(1).with(func(o *Observed) { o.Record.From.Size = 3 }),
			[]string{apply}, append([]string{"2 Waiting MoveWaits"}, waits...), time.Time{}},
		"not where an older volume waits":               {losing(2).aside(2), []string{apply}, waits, time.Time{}},
		"where the older volume is gone":                {losing(2).aside(2, pending), []string{apply, place, move0}, []string{"1 Moving", "0 Moving"}, time.Time{}},
		"the only one, though it holds items of before": {losing(2).with(func(o *Observed) { o.Record.From.Size = 3 }), []string{apply, place, move0}, []string{"1 Moving", "0 Moving"}, time.Time{}},
		"a Job that would fill it ends": {losing(2).move(1), []string{apply, "delete Job move-data-1: the ring has changed, or a member is lost"},
			[]string{"1 Waiting InTurn", "0 Waiting MoveWaits"}, time.Time{}},
		"a Job that gives it nothing goes on": {losing(2).move(1, func(j *claims.Job) { j.Target = losing(2).by(2) }), []string{apply, move0}, []string{"1 Moving", "0 Moving"}, time.Time{}},
		"it goes when the others are moved":   {losing(2).moved(0).moved(1), []string{"mark claim data-2 as leaving", "apply the StatefulSet, 2 replicas"}, nil, time.Time{}},
	} {
		t.Run(what, func(t *testing.T) {
			got := planned(test.scene)
			if diff := cmp.Diff(test.actions, got.Actions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.places, got.Moves); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if p := Next(&test.scene.o); !p.Wake.Equal(test.wake) {
				t.Errorf("it wakes at %v, want %v", p.Wake, test.wake)
			}
		})
	}
}

func TestLiveAMoveIsByTheRingWithoutTheLost(t *testing.T) {
	planned := action.CreateMove{Claim: action.ClaimRef{Name: name(0), UID: uid(0)}, Target: losing(2).by(2), Lost: []int32{2}}
	if err := MayMove(&losing(2).o, planned); err != nil {
		t.Error(err)
	}
	if err := MayMove(&losing(2).move(1).o, planned); err == nil {
		t.Error("it begins beside one that still fills the lost member")
	}
	planned.Lost = nil
	if err := MayMove(&losing(2).o, planned); err == nil {
		t.Error("the ring is another one")
	}
}
