package ringchange

import (
	"strings"
	"testing"

	"example.com/memcached-operator/test/tier"
)

// A new owner without memory for a lease blocks neither a delete nor a touch: both are carried out at the old
// owner, and then at the new one, if an item has come there meanwhile.
func TestAFullOwnerHoldsUpNoDeleteAndNoTouch(t *testing.T) {
	full := Result{Code: Failed, Said: true}
	tests := map[string]struct {
		class      Class
		repeatable bool
		results    []Result
		want       []Step
		outcome    Outcome
	}{
		"a delete": {Delete, false, []Result{{Code: Absent}, full, {Code: Found}, {Code: Absent}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {Ask, Old, 0}, {Look, New, 0}, {Action: Done}}, Deleted},
		"a delete of nothing": {Delete, false, []Result{{Code: Absent}, full, {Code: Absent}, {Code: Absent}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {Ask, Old, 0}, {Look, New, 0}, {Action: Done}}, Missed},
		"a delete of what is moved": {Delete, false, []Result{{Code: Absent}, full, {Code: Found}, {Code: Leased}, {Code: Absent}, {Code: Found, CAS: 5}, {Code: Found}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {Ask, Old, 0}, {Look, New, 0}, {Wait, New, 0}, {Look, New, 0}, {EraseIf, New, 5}, {Action: Done}}, Deleted},
		"a touch": {Update, true, []Result{{Code: Absent}, full, {Code: Found}, {Code: Absent}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {AskUpdate, Old, 0}, {Look, New, 0}, {Action: Done}}, Answered},
		"a touch of nothing": {Update, true, []Result{{Code: Absent}, full, {Code: Absent}, {Code: Absent}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {AskUpdate, Old, 0}, {Look, New, 0}, {Action: Done}}, Missed},
		"a touch of what is moved": {Update, true, []Result{{Code: Absent}, full, {Code: Found}, {Code: Leased}, {Code: Found, CAS: 5}, {Code: Absent}, {Code: Found}},
			[]Step{{Look, New, 0}, {Lease, New, 0}, {AskUpdate, Old, 0}, {Look, New, 0}, {Look, New, 0}, {Look, Old, 0}, {Guarded, New, 5}, {Action: Done}}, Answered},
		"an incr":                      {Update, false, []Result{{Code: Absent}, full}, []Step{{Look, New, 0}, {Lease, New, 0}, {Action: Done}}, Unknown},
		"a lease whose answer is lost": {Delete, false, []Result{{Code: Absent}, {Code: Failed}}, []Step{{Look, New, 0}, {Lease, New, 0}, {Action: Done}}, Unknown},
		// These find an item, so they need no memory for a lease.
		"a delete of what is there": {Delete, false, []Result{{Code: Found, CAS: 5}, {Code: Absent}, {Code: Found}},
			[]Step{{Look, New, 0}, {Ask, Old, 0}, {EraseIf, New, 5}, {Action: Done}}, Deleted},
		"an add of what is there": {Create, false, []Result{{Code: Found, CAS: 5}}, []Step{{Look, New, 0}, {Action: Done}}, Exists},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			op := NewOp(test.class, Settle, 0)
			op.Repeatable = test.repeatable
			step := op.Start()
			for i, want := range test.want {
				if step != want {
					t.Fatalf("step %d is %+v, want %+v", i, step, want)
				}
				if i < len(test.results) {
					step = op.Next(test.results[i])
				}
			}
			if op.Outcome() != test.outcome {
				t.Errorf("the outcome is %v, want %v", op.Outcome(), test.outcome)
			}
		})
	}
}

// fullOwners returns scenarios with two writers and a new owner that, once, has no memory for a step.
func fullOwners() (all []scenario) {
	for _, kinds := range [][2]kind{{del, set}, {del, add}, {del, incr}, {del, upsert}, {del, del}, {touch, set}, {touch, del}, {touch, incr}, {add, upsert}, {set, incr}, {cas, set}} {
		for _, initial := range []bool{true, false} {
			s := pair(kinds[0], kinds[1], initial)
			s.refusals = 1
			all = append(all, s)
		}
	}
	return all
}

// This explores all orders, with a new owner that refuses leases, adds, and moved items. Adds and moved items that it
// refuses delete what is there, so such keys may be missed.
func TestAFullOwnerShowsNoOldValueAndNoMiss(t *testing.T) {
	t.Parallel()
	for _, s := range fullOwners() {
		t.Run(s.String(), func(t *testing.T) {
			if s != fullOwners()[1] {
				tier.Second(t, "TestAFullOwnerShowsNoOldValueAndNoMiss")
			}
			wrong, states := explore(s, limit, false)
			for what, history := range wrong {
				t.Errorf("%s:\n  %s", what, strings.Join(history, "\n  "))
			}
			t.Logf("%d states, at most %d", states, limit)
		})
	}
}
