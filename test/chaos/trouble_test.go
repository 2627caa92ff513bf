package main

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// at returns a time, by its seconds.
func at(seconds int64) time.Time { return time.Unix(1000+seconds, 0) }

func table(number int64, state contract.RingState, old, now int) *contract.RingTable {
	servers := []string{"a", "b", "c", "d"}
	t := &contract.RingTable{Number: number, State: state, New: contract.Ring{Client: "x", Servers: servers[:now]}}
	if old > 0 {
		t.Old = &contract.Ring{Client: "x", Servers: servers[:old]}
	}
	return t
}

func TestASuspicionIsExcusedOnlyByATroubleOfItsTime(t *testing.T) {
	died := func(t *trouble) { t.died(at(100)); t.rested(at(200)) }
	abrupt := func(t *trouble) {
		t.told(table(1, contract.RingStable, 0, 3), at(0))
		t.told(table(2, contract.RingStable, 0, 2), at(100))
		t.rested(at(200))
	}
	states := func(t *trouble) {
		for i, table := range []*contract.RingTable{
			table(1, contract.RingStable, 0, 3), table(2, contract.RingPrepare, 3, 2), table(3, contract.RingSettle, 3, 2),
			table(4, contract.RingMove, 3, 2), table(5, contract.RingFinish, 3, 2), table(6, contract.RingStable, 0, 2),
		} {
			t.told(table, at(120+10*int64(i)))
		}
	}
	both := func(t *trouble) { t.died(at(110)); states(t); t.rested(at(200)) }
	second := func(from int64) span { return span{at(from), at(from + 1)} }
	for name, test := range map[string]struct {
		happened func(*trouble)
		s        suspicion
		want     bool
	}{
		"a miss, and nothing has happened":            {func(*trouble) {}, suspicion{what: missing, write: second(90), request: second(150)}, false},
		"a miss while a member is dead":               {died, suspicion{what: missing, write: second(90), request: second(150)}, true},
		"a miss before it died":                       {died, suspicion{what: missing, write: second(90), request: second(98)}, false},
		"a miss at rest":                              {died, suspicion{what: missing, write: second(150), request: second(201)}, false},
		"a miss in a ring change":                     {states, suspicion{what: missing, write: second(90), request: second(150)}, false},
		"an old value while a member is dead":         {died, suspicion{what: old, write: second(110), request: second(150)}, false},
		"an old value in settle":                      {states, suspicion{what: old, write: second(110), request: second(145)}, false},
		"an old value in settle, a member dead":       {both, suspicion{what: old, write: second(112), request: second(145)}, true},
		"an old value in finish, a member dead":       {both, suspicion{what: old, write: second(112), request: second(162)}, false},
		"back after a delete":                         {states, suspicion{what: old, deleted: true, write: second(112), request: second(150)}, false},
		"back after a delete while a member was dead": {died, suspicion{what: old, deleted: true, write: second(112), request: second(250)}, true},
		"back after a delete before it died":          {died, suspicion{what: old, deleted: true, write: second(90), request: second(150)}, false},
		"an old value after an abrupt change":         {abrupt, suspicion{what: old, write: second(150), request: second(250)}, true},
		"an old value, written right before it":       {abrupt, suspicion{what: old, write: second(90), request: second(101)}, true},
		"an old value that was written at rest again": {abrupt, suspicion{what: old, write: second(210), request: second(250)}, false},
		"a miss after an abrupt change":               {abrupt, suspicion{what: missing, write: second(90), request: second(150)}, true},
		"a miss at rest, of what is older":            {abrupt, suspicion{what: missing, write: second(90), request: second(250)}, false},
		"an old value before an abrupt change":        {abrupt, suspicion{what: old, write: second(80), request: second(90)}, false},
	} {
		var tr trouble
		test.happened(&tr)
		if got := tr.excuse(&test.s); (got != "") != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhichTablesFollowEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		before, next *contract.RingTable
		want         bool
	}{
		"the same again":             {table(1, contract.RingStable, 0, 3), table(2, contract.RingStable, 0, 3), true},
		"another ring at once":       {table(1, contract.RingStable, 0, 3), table(2, contract.RingStable, 0, 2), false},
		"prepare":                    {table(1, contract.RingStable, 0, 3), table(2, contract.RingPrepare, 3, 2), true},
		"prepare of another ring":    {table(1, contract.RingStable, 0, 3), table(2, contract.RingPrepare, 4, 2), false},
		"prepare again":              {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingPrepare, 3, 2), true},
		"prepare for something else": {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingPrepare, 3, 4), false},
		"back from prepare":          {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingStable, 0, 3), true},
		"on from prepare":            {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingStable, 0, 2), false},
		"settle":                     {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingSettle, 3, 2), true},
		"settle at once":             {table(1, contract.RingStable, 0, 3), table(2, contract.RingSettle, 3, 2), false},
		"back from settle":           {table(1, contract.RingSettle, 3, 2), table(2, contract.RingStable, 0, 3), false},
		"move":                       {table(1, contract.RingSettle, 3, 2), table(2, contract.RingMove, 3, 2), true},
		"move too early":             {table(1, contract.RingPrepare, 3, 2), table(2, contract.RingMove, 3, 2), false},
		"the move ends at once":      {table(1, contract.RingMove, 3, 2), table(2, contract.RingStable, 0, 2), false},
		"finish":                     {table(1, contract.RingMove, 3, 2), table(2, contract.RingFinish, 3, 2), true},
		"stable":                     {table(1, contract.RingFinish, 3, 2), table(2, contract.RingStable, 0, 2), true},
		"stable with another ring":   {table(1, contract.RingFinish, 3, 2), table(2, contract.RingStable, 0, 4), false},
	} {
		if got := follows(test.before, test.next); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
