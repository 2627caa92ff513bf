package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/claims"
)

func unstarted(j *claims.Job) { j.Unstarted = true }

func outdated(j *claims.Job) { j.Outdated = true }

// A Job's template can't be changed. A Job whose pod can't start is replaced if its template would
// differ now, and if a person asks for a retry.
func TestAJobNoPodOfWhichHasRunIsReplaced(t *testing.T) {
	const apply = "apply the StatefulSet, 2 replicas"
	retry, runs := requested(claims.Retry), []string{"2 Draining"}
	for what, test := range map[string]struct {
		scene *scene
		want  outcome
	}{
		"it may start yet": {at(2).left(2).job(2, 2, unstarted), outcome{Actions: []string{apply}, Drains: runs}},
		"it runs, though its pods would be made in another way": {at(2).left(2).job(2, 2, outdated), outcome{Actions: []string{apply}, Drains: runs}},
		"its pods would be made in another way": {at(2).left(2).job(2, 2, unstarted, outdated),
			outcome{Actions: []string{apply, "delete Job job-data-2: no pod of it has run, and its pods would be made in another way now"}, Drains: []string{"2 Waiting InTurn"}}},
		"a person asks for a retry": {at(2).left(2, retry).job(2, 2, unstarted),
			outcome{Actions: []string{apply, "delete Job job-data-2: a person asked for a retry, and no pod of it has run", "clear the retry of claim data-2"}, Drains: []string{"2 Waiting InTurn"}}},
		"a person asks for a retry of one that runs": {at(2).left(2, retry).job(2, 2), outcome{Actions: []string{apply, "clear the retry of claim data-2"}, Drains: runs}},
		"it is replaced already":                     {at(2).left(2, retry).job(2, 2, unstarted, gone), outcome{Actions: []string{apply}, Drains: []string{"2 Waiting InTurn"}}},
		"of a move": {grown(2, 3).move(1, unstarted, outdated).moved(0), outcome{
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-1: no pod of it has run, and its pods would be made in another way now"},
			Moves:   []string{"1 Waiting InTurn"}}},
		"a retry of a move": {grown(2, 3).move(1, unstarted).moved(0).change(1, asked(claims.Retry)), outcome{
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-1: a person asked for a retry, and no pod of it has run", "clear the move's retry of claim data-1"},
			Moves:   []string{"1 Waiting InTurn"}}},
	} {
		t.Run(what, func(t *testing.T) {
			got := planned(test.scene)
			got.Replicas, got.Blocked = 0, ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func misdirected(j *claims.Job) { j.Replace = "members listen at other ports now" }

// A Job has the members' ports in its template, and would wait in vain for a member that was
// replaced and listens at another port.
func TestAJobWhoseMembersListenElsewhereIsReplaced(t *testing.T) {
	const why = ": members listen at other ports now"
	for what, test := range map[string]struct {
		scene *scene
		want  outcome
	}{
		"a drain that runs": {at(2).left(2).job(2, 2, misdirected), outcome{
			Actions: []string{"apply the StatefulSet, 2 replicas", "delete Job job-data-2" + why}, Drains: []string{"2 Waiting InTurn"}}},
		"it is replaced already": {at(2).left(2).job(2, 2, misdirected, gone), outcome{Actions: []string{"apply the StatefulSet, 2 replicas"}, Drains: []string{"2 Waiting InTurn"}}},
		"a move that runs": {grown(2, 3).move(1, misdirected).moved(0), outcome{
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-1" + why}, Moves: []string{"1 Waiting InTurn"}}},
	} {
		t.Run(what, func(t *testing.T) {
			got := planned(test.scene)
			got.Replicas, got.Blocked = 0, ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
