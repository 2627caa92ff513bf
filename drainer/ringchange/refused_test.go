package ringchange

import (
	"slices"
	"testing"
)

// A step that an owner has refused is not carried out later, so its lease is not needed any more. A step
// without an answer may be carried out later.
func TestARefusedRequestGivesItsLeaseBack(t *testing.T) {
	const lease = 7
	giveBack := Step{EraseIf, New, lease}
	tests := map[string]struct {
		class   Class
		state   State
		results []Result
		failing Action
	}{
		"an add in prepare":     {Create, Prepare, []Result{{Code: Absent}, {Code: Leased, CAS: lease}}, Make},
		"an add looks":          {Create, Settle, []Result{{Code: Absent}, {Code: Leased, CAS: lease}}, Look},
		"an add in settle":      {Create, Settle, []Result{{Code: Absent}, {Code: Leased, CAS: lease}, {Code: Absent}}, Fill},
		"an upsert in settle":   {Upsert, Settle, []Result{{Code: Absent}, {Code: Leased, CAS: lease}, {Code: Absent}}, Fill},
		"an upsert in prepare":  {Upsert, Prepare, []Result{{Code: Absent}, {Code: Absent}, {Code: Leased, CAS: lease}}, Make},
		"an update in settle":   {Update, Settle, []Result{{Code: Absent}, {Code: Leased, CAS: lease}}, AskUpdate},
		"an update that looks":  {Update, Settle, nil, Look},
		"a create without ones": {Create, Finish, []Result{{Code: Absent}}, Make},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, said := range []bool{true, false} {
				op := NewOp(test.class, test.state, 0)
				step := op.Start()
				for _, r := range test.results {
					step = op.Next(r)
				}
				if step.Action != test.failing {
					t.Fatalf("the step is %+v", step)
				}
				step = op.Next(Result{Code: Failed, Said: said})
				if said && op.Holds() {
					if step != giveBack {
						t.Errorf("after a refusal: %+v, want %+v", step, giveBack)
					}
					step = op.Next(Result{Code: Absent})
				}
				if step.Action != Done || op.Outcome() != Unknown {
					t.Errorf("at the end: %+v, %v", step, op.Outcome())
				}
			}
		})
	}
	m := NewMover(0)
	m.Start()
	m.Next(Result{Code: Leased, CAS: lease})
	m.Next(Result{Code: Found, CAS: 3})
	if step := m.Next(Result{Code: Failed, Said: true}); step != giveBack {
		t.Errorf("a mover whose copy is refused: %+v", step)
	}
}

// The item at the old owner was changed without the lease. A mover that has looked at the new owner may delete that item at
// any time, so the copy has to stay, and what has changed replaces it.
func TestAMoverKeepsItsCopyOfAnItemThatWasChangedLate(t *testing.T) {
	type then struct {
		result Result
		step   Step
	}
	copied := []then{
		{Result{Code: Leased, CAS: 7}, Step{Fetch, Old, 0}},
		{Result{Code: Found, CAS: 3}, Step{Copy, New, 7}},
		{Result{Code: Found, CAS: 8}, Step{EraseIf, Old, 3}},
		{Result{Code: Changed}, Step{Fetch, Old, 0}},
	}
	done := Step{Action: Done}
	for name, rest := range map[string][]then{
		"it is copied again":              {{Result{Code: Found, CAS: 4}, Step{Copy, New, 8}}, {Result{Code: Found, CAS: 9}, Step{EraseIf, Old, 4}}, {Result{Code: Found}, done}},
		"it is gone":                      {{Result{Code: Absent}, done}},
		"it is not read":                  {{Result{Code: Failed, Said: true}, done}},
		"the copy is a client's item now": {{Result{Code: Found, CAS: 4}, Step{Copy, New, 8}}, {Result{Code: Changed}, done}},
		"it changes again and again": {{Result{Code: Found, CAS: 4}, Step{Copy, New, 8}}, {Result{Code: Found, CAS: 9}, Step{EraseIf, Old, 4}}, {Result{Code: Changed}, Step{Fetch, Old, 0}},
			{Result{Code: Found, CAS: 5}, Step{Copy, New, 9}}, {Result{Code: Found, CAS: 10}, Step{EraseIf, Old, 5}}, {Result{Code: Changed}, Step{Fetch, Old, 0}},
			{Result{Code: Found, CAS: 6}, Step{Copy, New, 10}}, {Result{Code: Found, CAS: 11}, Step{EraseIf, Old, 6}}, {Result{Code: Changed}, done}},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMover(0)
			m.Start()
			for i, want := range slices.Concat(copied, rest) {
				if step := m.Next(want.result); step != want.step {
					t.Fatalf("step %d is %+v, want %+v", i+1, step, want.step)
				}
			}
		})
	}
}

// What is at the old owner is outdated only while there is an item at the new one: a request that finds none there may
// have changed the old one.
func TestAMoverDeletesWhatIsOutdatedAfterASecondLook(t *testing.T) {
	for name, test := range map[string]struct {
		second Code
		want   Step
	}{"the item is there": {Found, Step{EraseIf, Old, 4}}, "it is gone": {Absent, Step{Action: Done}}, "a lease is there": {Leased, Step{Action: Done}}} {
		t.Run(name, func(t *testing.T) {
			m := NewMover(0)
			m.Start()
			var step Step
			for _, r := range []Result{{Code: Refused}, {Code: Found, CAS: 8}, {Code: Found, CAS: 4}, {Code: test.second, CAS: 8}} {
				step = m.Next(r)
			}
			if step != test.want {
				t.Errorf("%+v, want %+v", step, test.want)
			}
		})
	}
}
