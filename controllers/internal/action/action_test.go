package action_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// A failed step about a claim stops the later steps about the same claim and its Job, and no
// others.
func TestStepsDependOnThoseOfTheirClaim(t *testing.T) {
	ref := action.ClaimRef{Name: "data-2", UID: "uid-2", Ordinal: 2}
	for _, step := range []action.Action{
		action.AddClaimFinalizer{Claim: ref}, action.MarkLeaving{Claim: ref}, action.CreateDrain{Claim: ref}, action.RecordReceipt{Claim: ref},
		action.CountFailure{Claim: ref}, action.ClearRetry{Claim: ref}, action.CreateMove{Claim: ref}, action.BeginMove{Claim: ref},
		action.RecordMoved{Claim: ref}, action.ClearMoveRetry{Claim: ref}, action.DeleteJob{ClaimUID: "uid-2"}, action.DeleteClaim{Claim: ref},
		action.SetAside{Claim: ref}, action.ReserveVolume{Claim: ref}, action.CreateAside{Claim: ref}, action.ReturnVolume{Claim: ref},
		action.SkipToo{Claim: ref}, action.CarryOver{From: ref}, action.NoteRestored{Claim: ref}, action.GrowClaim{Claim: ref}, action.ReleaseClaim{Claim: ref},
	} {
		if got := action.KindOf(step).Claim; got != types.UID("uid-2") {
			t.Errorf("%T is about claim %q", step, got)
		}
	}
	for _, step := range []action.Action{action.WriteList{}, action.ApplyStatefulSet{}, action.AddOwnerFinalizer{}, action.ApplyBudget{}} {
		if got := action.KindOf(step).Claim; got != "" {
			t.Errorf("%T is about claim %q", step, got)
		}
	}
}
