package invariants

import (
	"slices"
	"testing"
)

// setAtRest is a StatefulSet of two members with a StatefulSetDrain. A third one has left, and its volume is about to be
// drained.
func setAtRest(changes ...func(*State)) *State {
	s := &State{
		Drains:  []SetDrain{{Name: "queue", Set: "queue", Exists: true, Replicas: 2, Shown: []string{"data-queue-2"}}},
		Volumes: []Volume{{Name: "pv-0"}, {Name: "pv-1"}, {Name: "pv-2"}},
	}
	for _, n := range []string{"0", "1", "2"} {
		c := claim(n)
		c.Name, c.Set, c.Member, c.Ordinal, c.Outside = "data-queue-"+n, "queue", c.Ordinal, -1, n == "2"
		s.Claims = append(s.Claims, c)
	}
	s.Claims[2].Leaving, s.Claims[2].Policy = true, "Drain"
	for _, change := range changes {
		change(s)
	}
	return s
}

func TestTheClaimsOfAStatefulSetAreKeptAsAMemcacheds(t *testing.T) {
	emptied := func(s *State) { s.Claims[2].Emptied = true }
	deleting := func(s *State) { s.Claims[2].Deleting = true }
	gone := func(s *State) { s.Drains[0].Exists = false }
	resting := func(s *State) { s.AtRest = true }
	drains := func(n int) func(*State) {
		return func(s *State) {
			s.SetJobs = append(s.SetJobs, SetJob{Name: "job", UID: "job", Claims: []string{s.Claims[n].Name}})
		}
	}
	works := func(claims ...string) func(*State) {
		return func(s *State) {
			s.Pods = append(s.Pods, Pod{Name: "p", UID: "p", Ordinal: -1, MayWrite: true, AtWork: true, Claim: claims[len(claims)-1], Claims: claims})
		}
	}
	type step struct {
		before *State
		change func(*State)
		broken int // number of the invariant; 0 for none
	}
	for name, test := range map[string]step{
		"released after its drain":           {setAtRest(emptied), release, 0},
		"released without one":               {setAtRest(), release, 1},
		"released by a skip":                 {setAtRest(func(s *State) { s.Claims[2].Skip = true }), release, 0},
		"released by its policy":             {setAtRest(func(s *State) { s.Claims[2].Policy = "Retain" }), release, 0},
		"released with the StatefulSetDrain": {setAtRest(func(s *State) { s.Drains[0].Deleting = true }), release, 0},
		"released with the StatefulSet":      {setAtRest(gone, deleting), release, 0},
		"kept by a person, without its set":  {setAtRest(gone), release, 1},
		"deleted":                            {setAtRest(deleting), release, 1},
		"the volume is gone":                 {setAtRest(), func(s *State) { s.Volumes = s.Volumes[:2] }, 1},
		"the volume is gone, with all":       {setAtRest(func(s *State) { s.Drains = nil }), func(s *State) { s.Volumes = s.Volumes[:2] }, 0},
		"one that left is marked":            {setAtRest(func(s *State) { s.Claims[2].Leaving = false }), func(s *State) { s.Claims[2].Leaving = true }, 0},
		"one that stays is marked":           {setAtRest(), func(s *State) { s.Claims[1].Leaving = true }, 7},
		"one that stays is drained":          {setAtRest(), drains(1), 7},
		"one that left is drained":           {setAtRest(), drains(2), 0},
		"status shows what is held":          {setAtRest(resting), nothing, 0},
		"status does not":                    {setAtRest(resting, func(s *State) { s.Drains[0].Shown = nil }), nothing, 9},
		"the StatefulSetDrain is gone":       {setAtRest(resting, func(s *State) { s.Drains = nil }), nothing, 9},
		"a StatefulSetDrain stays deleted":   {setAtRest(resting, func(s *State) { s.Drains[0].Deleting = true }), nothing, 9},
		"a pod of it beside a Memcached": {
			setAtRest(func(s *State) {
				s.Cluster, s.Members = Cluster{Exists: true, Size: 3}, StatefulSet{Exists: true, Replicas: 3}
			}), works("data-queue-2"), 0,
		},
		"two pods share their first volumes": {setAtRest(works("data-queue-2", "wal-queue-2")), works("data-queue-2", "log-queue-2"), 6},
	} {
		t.Run(name, func(t *testing.T) {
			after := *test.before
			after.Claims, after.Drains, after.Pods = slices.Clone(after.Claims), slices.Clone(after.Drains), slices.Clone(after.Pods)
			test.change(&after)
			after.Remember(test.before)
			var numbers []int
			for _, violation := range Check(test.before, &after) {
				numbers = append(numbers, violation.Invariant.Number)
			}
			if test.broken == 0 && len(numbers) > 0 || test.broken > 0 && !slices.Contains(numbers, test.broken) {
				t.Errorf("want %d broken, got %v", test.broken, Check(test.before, &after))
			}
		})
	}
}
