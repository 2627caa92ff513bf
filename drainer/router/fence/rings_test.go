package fence_test

import (
	"slices"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/routing"
)

type first struct{}

func (first) Owner([]byte) int { return 0 }

func ring(hosts ...string) (r fence.Ring) {
	for _, host := range hosts {
		r.Servers = append(r.Servers, routing.Server{Host: host, Port: 11211})
	}
	r.Owner = first{}
	return r
}

func TestATableIsTakenOnlyAfterAnEarlierOne(t *testing.T) {
	t.Parallel()
	at := func(number int64) *fence.Table { return &fence.Table{Number: number, New: ring("a")} }
	for name, c := range map[string]struct {
		table, before *fence.Table
		want          bool
	}{
		"the first":           {at(0), nil, true},
		"a later one":         {at(2), at(1), true},
		"the same":            {at(1), at(1), false},
		"an earlier one":      {at(1), at(2), false},
		"without servers":     {&fence.Table{Number: 2}, at(1), false},
		"without an old ring": {&fence.Table{Number: 2, New: ring("a"), State: ringchange.Move}, at(1), false},
	} {
		if err := c.table.Follows(c.before); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOldOwnerIsNotAskedAnyMoreInFinish(t *testing.T) {
	t.Parallel()
	table := fence.Table{State: ringchange.Move, Old: ring("a", "b"), New: ring("b", "c")}
	hosts := func(servers []routing.Server) (all []string) {
		for _, s := range servers {
			all = append(all, s.Host)
		}
		return all
	}
	if got := hosts(table.Asked()); !slices.Equal(got, []string{"b", "c", "a"}) {
		t.Errorf("in move it asks %v", got)
	}
	table.State = ringchange.Finish
	if got := hosts(table.Asked()); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("in finish it asks %v", got)
	}
	if got := hosts(table.Servers()); !slices.Equal(got, []string{"b", "c", "a"}) {
		t.Errorf("in finish it knows %v", got)
	}
}

// The operator goes on when all routers have acknowledged, or after its waiting time. The numbers, which are
// times, show which of the two it was.
func TestATableThatCameEarlyWasAcknowledged(t *testing.T) {
	t.Parallel()
	waits := int64(contract.RingWaits / time.Second)
	for number, want := range map[int64]bool{1000 + waits - 1: true, 1000 + waits: false} {
		table := &fence.Table{Number: number, Before: 1000}
		if got := table.AcknowledgedBefore(); got != want || table.CameEarly() != want {
			t.Errorf("table %d: %v", number, got)
		}
	}
	if !(&fence.Table{Number: 5000, Before: 1000, Acknowledged: true}).AcknowledgedBefore() {
		t.Error("it is said that all had acknowledged the table before, and not believed")
	}
	if !(&fence.Table{Number: 1 << 40}).AcknowledgedBefore() {
		t.Error("the first table waits for one before it")
	}
}

func TestATableIsAcknowledgedWhenEarlierRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	var epochs fence.Epochs
	want := func(number int64, waits bool) {
		t.Helper()
		if got, why := epochs.Acknowledged(); got != number || (why != "") != waits {
			t.Errorf("%d is acknowledged, %q; want %d, with a reason: %v", got, why, number, waits)
		}
	}
	epochs.Begin(&fence.Table{Number: 1})
	want(1, false)
	one := epochs.Enter()
	want(1, false)
	epochs.Begin(&fence.Table{Number: 2})
	two := epochs.Enter()
	epochs.Begin(&fence.Table{Number: 3})
	want(1, true)
	one.Leave()
	want(2, true)
	two.Leave()
	want(3, false)
}
