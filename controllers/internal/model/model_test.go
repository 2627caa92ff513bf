package model

import (
	"flag"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

var long = flag.Bool("model.long", false, "let more happen in one history: ten minutes, several gigabytes")

// TestMain lets garbage be collected seldom, as long as there is little: collecting takes a fifth of the CPU time of an
// exploration, and the largest ones need gigabytes.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(8 << 30)
	os.Exit(m.Run())
}

// inFirstTier are small explorations, one or more for each policy of claims, for moves and for leaving
// members, with deeds, faults and a cache that lags. The larger explorations, which run in the second tier,
// may reach more states.
var inFirstTier = []string{
	"a cluster that begins", "a deed, a fault, a cache lags", "scalings, a fault, claims are retained",
	"three deeds, claims are retained, one member", "two deeds, a fault, one member", "two deeds, claims are deleted",
	"two deeds, claims go with the cluster", "two scalings, a fault",
	"items are moved, a member leaves, and a claim and its pod are deleted",
	"items are moved, a member joins, and a claim and its pod are deleted",
	"items are moved, a deed, a cache lags, two at once", "items are moved, any deed, a fault",
	"items are moved, any deed, a fault, a cluster begins", "items are moved, two deeds, a cache lags",
	"items are moved, two deeds, a fault", "items are moved, two deeds, one more member",
	"leaving members stay, any deed, a fault", "leaving members stay, two deeds, two members",
}

// explorations returns the explorations of this run by name.
func explorations() map[string]Options {
	all := allExplorations()
	if !tier.All() && !*long {
		maps.DeleteFunc(all, func(name string, _ Options) bool { return !slices.Contains(inFirstTier, name) })
	}
	return all
}

func TestTheFirstTiersExplorationsExist(t *testing.T) {
	all := allExplorations()
	for _, name := range inFirstTier {
		if _, is := all[name]; !is {
			t.Errorf("there is no exploration %q", name)
		}
	}
}

// allExplorations returns all explorations by name; the long version has more and larger ones.
func allExplorations() map[string]Options {
	one := plan.Cluster{Parallelism: 1}
	all := map[string]Options{
		"two deeds":                                    {Cluster: one, Size: 2, Deeds: 2},
		"a deed, a fault, a cache lags":                {Cluster: one, Size: 2, Deeds: 1, Faults: 1, Lags: 1},
		"two scalings, a fault":                        {Cluster: one, Size: 3, Deeds: 2, Faults: 1, OnlyScale: true},
		"two scalings, a cache lags":                   {Cluster: one, Size: 3, Deeds: 2, Lags: 1, OnlyScale: true},
		"a deed, a fault, two drains at once":          {Cluster: plan.Cluster{Parallelism: 2}, Size: 3, Deeds: 1, Faults: 1},
		"two deeds, a fault, one member":               {Cluster: one, Size: 1, Largest: 1, Deeds: 2, Faults: 1},
		"a cluster that begins":                        {Cluster: one, Size: 2, New: true, Deeds: 1, Faults: 1},
		"two deeds, claims are retained":               {Cluster: plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Policy: pvc.Retain}}, Size: 2, Deeds: 2},
		"scalings, a fault, claims are retained":       {Cluster: plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Policy: pvc.Retain}}, Size: 3, Deeds: 2, Faults: 1, OnlyScale: true},
		"scalings, a cache lags, claims are retained":  {Cluster: plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Policy: pvc.Retain}}, Size: 3, Deeds: 2, Lags: 1, OnlyScale: true},
		"three deeds, claims are retained, one member": {Cluster: plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Policy: pvc.Retain}}, Size: 1, Largest: 1, Deeds: 3},
		"three deeds, one member":                      {Cluster: one, Size: 1, Largest: 1, Deeds: 3},
		"two deeds, claims are deleted":                {Cluster: plan.Cluster{Parallelism: 1, Terms: pvc.Terms{Policy: pvc.Delete}}, Size: 2, Deeds: 2},
		"two deeds, claims go with the cluster":        {Cluster: plan.Cluster{Parallelism: 1, DeleteClaims: true}, Size: 2, Deeds: 2},
	}
	if *long {
		all["two deeds"] = Options{Cluster: one, Size: 3, Deeds: 2}
		all["two deeds, a fault, a cache lags, one member"] = Options{Cluster: one, Size: 1, Largest: 1, Deeds: 2, Faults: 1, Lags: 1}
		all["a deed, a cache lags"] = Options{Cluster: one, Size: 3, Deeds: 1, Lags: 1}
		all["a deed, a fault, a cache lags"] = Options{Cluster: one, Size: 3, Deeds: 1, Faults: 1, Lags: 1}
		all["two deeds, a fault"] = Options{Cluster: one, Size: 2, Largest: 2, Deeds: 2, Faults: 1}
		all["two deeds, a cache lags"] = Options{Cluster: one, Size: 2, Largest: 2, Deeds: 2, Lags: 1}
		all["two deeds, two drains at once"] = Options{Cluster: plan.Cluster{Parallelism: 2}, Size: 3, Deeds: 2}
		all["two scalings, a fault, two drains at once"] = Options{Cluster: plan.Cluster{Parallelism: 2}, Size: 3, Deeds: 2, Faults: 1, OnlyScale: true}
		all["three scalings, a fault"] = Options{Cluster: one, Size: 3, Deeds: 3, Faults: 1, OnlyScale: true}
		all["a scaling, two caches lag"] = Options{Cluster: one, Size: 3, Deeds: 1, Lags: 2, OnlyScale: true}
	}
	for name, o := range moves() {
		o.Moving = true
		all["items are moved, "+name] = o
	}
	for name, o := range leavings() {
		o.Moving = true
		all["leaving members stay, "+name] = o
	}
	return all
}

// moves are the explorations in which items have to be moved.
func moves() map[string]Options {
	one, two := plan.Cluster{Parallelism: 1}, plan.Cluster{Parallelism: 2}
	all := map[string]Options{
		"two deeds":                                            {Cluster: one, Size: 3, Deeds: 2, OnlyScale: true},
		"two deeds, one more member":                           {Cluster: one, Size: 2, Deeds: 2, OnlyScale: true},
		"two deeds, a node dies":                               {Cluster: one, Size: 2, Deeds: 2, Deaths: 1, OnlyScale: true},
		"three deeds":                                          {Cluster: one, Size: 2, Largest: 2, Deeds: 3, OnlyScale: true},
		"a deed, two faults":                                   {Cluster: one, Size: 2, Deeds: 1, Faults: 2, OnlyScale: true},
		"two deeds, a fault":                                   {Cluster: one, Size: 2, Largest: 2, Deeds: 2, Faults: 1, OnlyScale: true},
		"a deed, a cache lags":                                 {Cluster: one, Size: 2, Deeds: 1, Lags: 1, OnlyScale: true},
		"two deeds, a cache lags":                              {Cluster: one, Size: 1, Largest: 2, Deeds: 2, Lags: 1, OnlyScale: true},
		"a deed, a cache lags, two at once":                    {Cluster: two, Size: 2, Largest: 2, Deeds: 1, Lags: 1, OnlyScale: true},
		"any deed, a fault":                                    {Cluster: one, Size: 2, Deeds: 1, Faults: 1},
		"any deed, a fault, a cluster begins":                  {Cluster: one, Size: 2, New: true, Deeds: 1, Faults: 1},
		"a member leaves, and a claim and its pod are deleted": {Cluster: one, Size: 2, Largest: 2, Deeds: 2, OnlyScale: true, Deletes: true},
		"a member joins, and a claim and its pod are deleted":  {Cluster: one, Size: 1, Largest: 2, Deeds: 2, OnlyScale: true, Deletes: true},
	}
	if *long {
		all["a size, and a claim and its pod are deleted"] = Options{Cluster: one, Size: 3, Deeds: 2, OnlyScale: true, Deletes: true, Client: shuffling}
		all["two deeds, a fault, from three"] = Options{Cluster: one, Size: 3, Deeds: 2, Faults: 1, OnlyScale: true}
		all["two deeds, a cache lags, from two"] = Options{Cluster: one, Size: 2, Deeds: 2, Lags: 1, OnlyScale: true}
		all["two deeds, two at once"] = Options{Cluster: two, Size: 3, Deeds: 2, OnlyScale: true}
		all["two deeds, a node dies, from three"] = Options{Cluster: one, Size: 3, Deeds: 2, Deaths: 1, OnlyScale: true}
		all["any two deeds"] = Options{Cluster: one, Size: 2, Deeds: 2}
	}
	return all
}

// leavings are the explorations in which leaving members keep running while their items are moved.
func leavings() map[string]Options {
	one := plan.Cluster{Parallelism: 1, Patience: time.Minute}
	all := map[string]Options{
		"two deeds":               {Cluster: one, Size: 3, Deeds: 2, OnlyScale: true},
		"two deeds, two members":  {Cluster: one, Size: 2, Largest: 2, Deeds: 2, OnlyScale: true},
		"a deed, two faults":      {Cluster: one, Size: 2, Deeds: 1, Faults: 2, OnlyScale: true},
		"two deeds, a fault":      {Cluster: one, Size: 2, Largest: 2, Deeds: 2, Faults: 1, OnlyScale: true},
		"two deeds, a node dies":  {Cluster: one, Size: 2, Largest: 2, Deeds: 2, Deaths: 1, OnlyScale: true},
		"a deed, a cache lags":    {Cluster: one, Size: 2, Deeds: 1, Lags: 1, OnlyScale: true},
		"two deeds, a cache lags": {Cluster: one, Size: 2, Largest: 2, Deeds: 2, Lags: 1, OnlyScale: true},
		"any deed, a fault":       {Cluster: one, Size: 2, Deeds: 1, Faults: 1},
		"two leave, then a fault": {Cluster: one, Size: 3, Largest: 1, Deeds: 1, Faults: 1, OnlyScale: true},
	}
	if *long {
		all["any two deeds"] = Options{Cluster: one, Size: 2, Deeds: 2}
		all["two deeds, a fault, from three"] = Options{Cluster: one, Size: 3, Deeds: 2, Faults: 1, OnlyScale: true}
	}
	return all
}

// explored has the explorations. Each one runs once, for all tests.
var explored = sync.OnceValue(func() map[string]func() *exploration {
	all := map[string]func() *exploration{}
	for name, options := range explorations() {
		all[name] = sync.OnceValue(func() *exploration {
			options.Sample = newSample(name)
			return &exploration{Explore(options), options}
		})
	}
	return all
})

// exploration is a result and its options, with the sample of its steps.
type exploration struct {
	Result
	Options
}

// Each invariant holds after each event, in any order of events, and each history comes to a rest
// that people want, or have asked for.
func TestEveryOrderOfEvents(t *testing.T) {
	var states, moves, rests atomic.Int64
	t.Cleanup(func() {
		if err := summary.Add("model of the plan: %d explorations, %d states, %d events, %d states at rest (-model.long=%v)",
			len(explorations()), states.Load(), moves.Load(), rests.Load(), *long); err != nil {
			t.Error(err)
		}
	})
	for name := range explorations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := explored()[name]().Result
			t.Logf("%d states, %d events, %d states at rest", r.States, r.Events, r.Rests)
			states.Add(int64(r.States))
			moves.Add(int64(r.Events))
			rests.Add(int64(r.Rests))
			for _, story := range r.Broken {
				t.Error(story)
			}
		})
	}
}
