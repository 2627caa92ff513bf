package ringchange

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/test/tier"
)

var (
	long = flag.Bool("change.long", false, "explore more and larger histories: hours, several gigabytes")
	pick = flag.Int("change.pick", 0, "explore so many of them; 0: all")
	seed = flag.Int64("change.seed", 0, "which ones; 0 takes the clock")
)

// limit bounds a scenario's states, to bound the memory.
const limit = 8_000_000

// changing are the requests that change a key.
var changing = []kind{set, del, incr, cas, add, upsert}

// pair returns a scenario with two writers.
func pair(a, b kind, initial bool) scenario {
	return scenario{kinds: [writes]kind{a, read, b, read}, initial: initial, movers: 1, runs: 1}
}

// accidents returns scenarios with all accidents of one writer.
func accidents(k kind) scenario {
	s := pair(k, read, true)
	s.runs, s.deaths, s.expiries, s.evictions, s.losses = 2, 1, 1, 1, 1
	return s
}

// scenarios returns the steps of two writers, each with a reader and movers. The short ones have found the
// most errors.
func scenarios() (all []scenario) {
	if !*long {
		for _, kinds := range [][2]kind{{set, incr}, {del, incr}, {del, add}, {add, upsert}, {cas, set}} {
			all = append(all, pair(kinds[0], kinds[1], kinds[0] != add))
		}
		for _, k := range changing {
			all = append(all, accidents(k))
		}
		// An update that is late, while two movers move its item.
		late := pair(cas, add, false)
		late.movers, late.runs, late.deaths, late.expiries = 2, 2, 1, 1
		return append(all, late)
	}
	for i, a := range changing {
		for _, b := range changing[i:] {
			for _, initial := range []bool{false, true} {
				s := pair(a, b, initial)
				all = append(all, s)
				s.movers, s.runs = 2, 2
				all = append(all, s)
				s.deaths, s.expiries = 1, 1
				all = append(all, s)
				s.deaths, s.expiries, s.evictions, s.losses = 0, 0, 1, 1
				all = append(all, s)
			}
		}
	}
	for _, a := range changing {
		for _, b := range changing {
			for _, c := range changing {
				all = append(all, scenario{kinds: [writes]kind{a, b, c, read}, initial: true, movers: 1, runs: 1})
			}
		}
	}
	return all
}

// picked returns those that the flags choose.
func picked(t *testing.T, all []scenario) []scenario {
	t.Helper()
	if *pick == 0 || *pick >= len(all) {
		return all
	}
	from := *seed
	if from == 0 {
		from = time.Now().UnixNano() % 1000
	}
	t.Logf("%d of %d scenarios: -change.pick=%d -change.seed=%d", *pick, len(all), *pick, from)
	rand.New(rand.NewPCG(uint64(from), 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:*pick]
}

// This explores all orders of the events of two clients that write, one that reads, two routers that go
// through a ring change, and movers. No value can be read that an answered write had replaced, no key that
// exists is missed except where writes in two states met, no two adds both succeed, and no lease is left
// behind.
func TestARingChangeShowsNoOldValueAndNoMiss(t *testing.T) {
	t.Parallel()
	first := []scenario{pair(set, incr, true), pair(add, upsert, false), accidents(set)}
	for _, s := range picked(t, scenarios()) {
		t.Run(s.String(), func(t *testing.T) {
			if !slices.Contains(first, s) {
				tier.Second(t, "TestARingChangeShowsNoOldValueAndNoMiss")
			}
			wrong, states := explore(s, limit, false)
			for what, history := range wrong {
				t.Errorf("%s:\n  %s", what, strings.Join(history, "\n  "))
			}
			if states >= limit {
				t.Logf("%d states: the bound is reached, there are more", states)
				return
			}
			t.Logf("%d states, all that there are", states)
		})
	}
}

// Without any one of the rules, some history goes wrong.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	of := pair
	three := func(a, b, c kind, initial bool) scenario {
		s := of(a, c, initial)
		s.kinds[1] = b
		return s
	}
	tests := map[string]struct {
		rule Rules
		in   scenario
	}{
		"SecondLook":  {SecondLook, of(set, read, true)},
		"EraseOther":  {EraseOther, of(set, read, true)},
		"EraseBoth":   {EraseBoth, of(del, read, true)},
		"KeepLease":   {KeepLease, of(set, incr, false)},
		"UpdateErase": {UpdateErase, of(set, incr, true)},
		"WaitForSet":  {WaitForSet, three(set, set, incr, true)},
		"LookFirst":   {LookFirst, of(set, incr, true)},
		"Guard":       {Guard, of(del, incr, true)},
		"LeaseUpdate": {LeaseUpdate, of(incr, read, true)},
		"LeaseCreate": {LeaseCreate, of(add, add, false)},
		"LeaseDelete": {LeaseDelete, of(del, add, true)},
		"AskAgain":    {AskAgain, of(set, incr, true)},
		"Undo":        {Undo, of(set, add, false)},
		"MoverLease":  {MoverLease, of(del, read, true)},
		"MoverBack":   {MoverBack, of(del, read, false)},
	}
	hasty, deaf := of(set, read, true), of(incr, read, true)
	hasty.hasty, deaf.deaf, deaf.expiries = true, true, 1
	// The slow rules need histories of millions of states.
	slow := []string{"WaitForSet", "Guard", "KeepLease", "LeaseDelete"}
	tests["to wait for requests under way"] = struct {
		rule Rules
		in   scenario
	}{0, hasty}
	tests["to know how old a lease is"] = struct {
		rule Rules
		in   scenario
	}{0, deaf}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(slow, name) {
				tier.Second(t, "TestARingChangeShowsNoOldValueAndNoMiss")
			}
			s := test.in
			s.without, s.runs = test.rule, 2
			wrong, states := explore(s, limit, true)
			for what, history := range wrong {
				t.Logf("%s:\n  %s", what, strings.Join(history, "\n  "))
			}
			if len(wrong) == 0 {
				t.Errorf("%d states, and nothing is wrong", states)
			}
		})
	}
}
