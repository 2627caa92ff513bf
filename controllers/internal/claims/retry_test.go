package claims

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// While no Job is made, because several have vanished, a person can give the volume up, a member can return, and a
// Job that runs can end.
func TestAPauseAfterVanishedJobsHoldsUpNoOtherStep(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const uid types.UID = "claim"
	vanished := Obstruction{Why: "its last Jobs were deleted", Vanished: true, Until: now.Add(longestRetry)}
	denied := Obstruction{Why: "denied", Until: now.Add(time.Second)}
	drain, release := action.CreateDrain{}, action.ReleaseClaim{}
	for name, test := range map[string]struct {
		why       Obstruction
		claim     Claim
		job       bool
		actions   []action.Action
		withdrawn string
		steps     bool // may other steps about the claim be taken?
		waits     bool // does it count as waiting for a person?
	}{
		"a drain":                      {vanished, Claim{}, false, []action.Action{drain}, JobVanished, true, true},
		"a move":                       {vanished, Claim{}, false, []action.Action{action.CreateMove{}}, JobVanished, true, true},
		"a person gives it up":         {vanished, Claim{Request: Skip}, false, []action.Action{release}, "", true, true},
		"a person asks for a drain":    {vanished, Claim{Request: Retry}, false, []action.Action{action.ClearRetry{}, drain}, "", true, true},
		"a person asks for a move":     {vanished, Claim{MoveRequest: Retry}, false, []action.Action{action.CreateMove{}}, "", true, true},
		"a receipt of a Job that runs": {vanished, Claim{}, true, []action.Action{action.RecordReceipt{}}, "", true, false},
		"a drain that is denied":       {denied, Claim{}, false, []action.Action{drain}, Refused, false, true},
		"a release that is denied":     {denied, Claim{Request: Skip}, false, []action.Action{release}, Refused, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.claim.UID = uid
			f := &Facts{Now: now, Claims: []Claim{test.claim}, Obstructed: map[types.UID]Obstruction{uid: test.why}}
			if test.job {
				f.Jobs = []Job{{ClaimUID: uid}}
			}
			w := Work{Actions: test.actions}
			o, is := w.Withdraw(f, &test.claim)
			if is != (test.withdrawn != "") || o.Reason != test.withdrawn || is != (len(w.Actions) == 0) {
				t.Errorf("withdrawn %t, because of %q, %d actions are left", is, o.Reason, len(w.Actions))
			}
			if _, refused := f.RefusedNow(&test.claim); refused == test.steps {
				t.Errorf("other steps are refused: %t", refused)
			}
			if waits := f.IsObstructed(&test.claim); waits != test.waits {
				t.Errorf("it waits for a person: %t", waits)
			}
		})
	}
}
