package model

import (
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

// inFirstTier are small explorations, one for each kind of deeds, faults, races and ends.
var inFirstTier = []string{
	"a deed, a fault", "two scalings, a race, one stays", "two claims, a scaling, a fault", "two claims, a deed", "Kubernetes deletes two claims, a scaling",
	"claims are retained, and Kubernetes deletes them, a deed", "claims go with the StatefulSet, a deed", "no right to volumes, a deed", "an image that does not exist, a deed",
	"a new StatefulSetDrain, a deed", "claims come back from a backup, two deeds",
}

// explorations are all explorations by name.
func explorations() map[string]Options {
	one, two := []string{"data"}, []string{"data", "log"}
	const retain, remove = cachev1alpha1.PolicyRetain, cachev1alpha1.PolicyDelete
	return map[string]Options{
		"a deed, a fault":                                          {templates: one, budget: budget{deeds: 1, faults: 1}},
		"a scaling, a race":                                        {templates: one, onlyScale: true, budget: budget{deeds: 1, races: 1}},
		"two claims, a scaling, a fault":                           {templates: two, least: 1, onlyScale: true, budget: budget{deeds: 1, faults: 1}},
		"two claims, a deed":                                       {templates: two, budget: budget{deeds: 1}},
		"Kubernetes deletes two claims, a deed":                    {templates: two, whenScaled: true, budget: budget{deeds: 1}},
		"Kubernetes deletes two claims, a scaling":                 {templates: two, whenScaled: true, onlyScale: true, budget: budget{deeds: 1}},
		"claims are retained, and Kubernetes deletes them, a deed": {templates: one, whenScaled: true, policy: retain, budget: budget{deeds: 1}},
		"claims go with the StatefulSet, a deed":                   {templates: one, whenDeleted: true, budget: budget{deeds: 1}},
		"no right to volumes, a deed":                              {templates: one, noVolumes: true, budget: budget{deeds: 1}},
		"an image that does not exist, a deed":                     {templates: one, image: noImage, badTemplates: true, budget: budget{deeds: 1}},
		"a new StatefulSetDrain, a deed":                           {templates: one, unprotected: true, budget: budget{deeds: 1}},
		"claims come back from a backup, two deeds":                {templates: one, least: 1, onlyBack: true, budget: budget{deeds: 2}},

		"two deeds":                                                   {templates: one, budget: budget{deeds: 2}},
		"two scalings, a race, one stays":                             {templates: one, least: 1, onlyScale: true, budget: budget{deeds: 2, races: 1}},
		"four scalings, one stays":                                    {templates: one, least: 1, onlyScale: true, budget: budget{deeds: 4}},
		"a StatefulSetDrain is made again, four deeds":                {templates: one, least: 1, onlyRemakes: true, budget: budget{deeds: 4}},
		"claims come back from a backup, four deeds":                  {templates: one, least: 1, onlyBack: true, budget: budget{deeds: 4}},
		"two claims come back from a backup, three deeds":             {templates: two, least: 1, onlyBack: true, budget: budget{deeds: 3}},
		"claims come back from a backup, three deeds, a fault":        {templates: one, least: 1, onlyBack: true, budget: budget{deeds: 3, faults: 1}},
		"claims come back from a backup, with requests, two deeds":    {templates: one, least: 1, onlyBack: true, skips: true, budget: budget{deeds: 2}},
		"two deeds, policies change":                                  {templates: one, policies: true, budget: budget{deeds: 2}},
		"two scalings, a fault":                                       {templates: one, onlyScale: true, budget: budget{deeds: 2, faults: 1}},
		"two scalings, a race":                                        {templates: one, onlyScale: true, budget: budget{deeds: 2, races: 1}},
		"two deeds, a fault":                                          {templates: one, least: 1, budget: budget{deeds: 2, faults: 1}},
		"two deeds, a race":                                           {templates: one, least: 1, budget: budget{deeds: 2, races: 1}},
		"three scalings":                                              {templates: one, onlyScale: true, budget: budget{deeds: 3}},
		"two claims, two deeds":                                       {templates: two, least: 1, budget: budget{deeds: 2}},
		"two claims, a deed, a fault":                                 {templates: two, least: 1, budget: budget{deeds: 1, faults: 1}},
		"two claims, a deed, a race":                                  {templates: two, least: 1, budget: budget{deeds: 1, races: 1}},
		"two claims, two scalings, a fault":                           {templates: two, least: 1, onlyScale: true, budget: budget{deeds: 2, faults: 1}},
		"two claims, two scalings, a race":                            {templates: two, least: 1, onlyScale: true, budget: budget{deeds: 2, races: 1}},
		"Kubernetes deletes claims, two deeds":                        {templates: one, least: 1, whenScaled: true, budget: budget{deeds: 2}},
		"Kubernetes deletes claims, a fault":                          {templates: one, least: 1, whenScaled: true, budget: budget{deeds: 1, faults: 1}},
		"Kubernetes deletes claims, two scalings, a race":             {templates: one, least: 1, whenScaled: true, onlyScale: true, budget: budget{deeds: 2, races: 1}},
		"Kubernetes deletes two claims, two scalings":                 {templates: two, least: 1, whenScaled: true, onlyScale: true, budget: budget{deeds: 2}},
		"claims go with the StatefulSet, two deeds":                   {templates: one, whenDeleted: true, budget: budget{deeds: 2}},
		"claims are retained, two deeds":                              {templates: one, policy: retain, budget: budget{deeds: 2}},
		"two claims are retained, two deeds":                          {templates: two, policy: retain, budget: budget{deeds: 2}},
		"claims are retained, a deed, a fault":                        {templates: one, policy: retain, budget: budget{deeds: 1, faults: 1}},
		"claims are retained, and Kubernetes deletes them, two deeds": {templates: one, least: 1, whenScaled: true, policy: retain, budget: budget{deeds: 2}},
		"claims are deleted, two deeds":                               {templates: one, policy: remove, budget: budget{deeds: 2}},
		"claims are deleted, a deed, a fault":                         {templates: two, least: 1, policy: remove, budget: budget{deeds: 1, faults: 1}},
		"one member after the other, two deeds":                       {templates: one, ordered: true, budget: budget{deeds: 2}},
		"a new StatefulSetDrain, two deeds":                           {templates: one, unprotected: true, budget: budget{deeds: 2}},
		"a new StatefulSetDrain, a deed, a fault":                     {templates: two, least: 1, unprotected: true, budget: budget{deeds: 1, faults: 1}},
		"no right to volumes, two deeds":                              {templates: one, noVolumes: true, budget: budget{deeds: 2}},
		"no right to volumes, a deed, a fault":                        {templates: one, noVolumes: true, budget: budget{deeds: 1, faults: 1}},
		"no right to volumes, two claims, two scalings":               {templates: two, noVolumes: true, onlyScale: true, budget: budget{deeds: 2}},
		"no right to volumes, three scalings, one stays":              {templates: one, least: 1, noVolumes: true, onlyScale: true, budget: budget{deeds: 3}},
		"an image that does not exist, two deeds":                     {templates: one, image: noImage, badTemplates: true, budget: budget{deeds: 2}},
	}
}

// TestMain lets garbage be collected seldom: collecting takes a fifth of the CPU time of an exploration.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

func TestTheFirstTiersExplorationsExist(t *testing.T) {
	all := explorations()
	for _, name := range inFirstTier {
		if _, is := all[name]; !is {
			t.Errorf("there is no exploration %q", name)
		}
	}
}

// In any order of events: no claim is released and no volume is lost without a drain or a person's word, no
// two pods use a volume, no member returns to a volume in mid-drain, a member's volumes are drained together;
// and each history comes to a rest without writes, in which all wanted members run, or status names the
// person or the program that has to act.
func TestEveryOrderOfEventsOfAStatefulSet(t *testing.T) {
	all := explorations()
	if !tier.All() {
		maps.DeleteFunc(all, func(name string, _ Options) bool { return !slices.Contains(inFirstTier, name) })
	}
	var states, events, rests atomic.Int64
	t.Cleanup(func() {
		if err := summary.Add("model of a StatefulSetDrain: %d explorations, %d states, %d events, %d states at rest", len(all), states.Load(), events.Load(), rests.Load()); err != nil {
			t.Error(err)
		}
	})
	for name, options := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Explore(options)
			t.Logf("%d states, %d events, %d states at rest", r.states, r.events, r.rests)
			states.Add(int64(r.states))
			events.Add(int64(r.events))
			rests.Add(int64(r.rests))
			for _, story := range r.broken {
				t.Error(story)
			}
		})
	}
}
