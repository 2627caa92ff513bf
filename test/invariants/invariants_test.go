package invariants

import (
	"slices"
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

// rest is a cluster of two members. A third one has left, and its volume is about to be drained.
func rest() *State {
	s := &State{
		Cluster: Cluster{Exists: true, Finalizer: true, Size: 2, KeepsItems: true, Shown: []string{"data-cache-2"}},
		Members: StatefulSet{Exists: true, Replicas: 2},
		Volumes: []Volume{{Name: "pv-0"}, {Name: "pv-1"}, {Name: "pv-2"}},
		Pods:    []Pod{member("0"), member("1")},
		Claims:  []Claim{claim("0"), claim("1"), claim("2")},
	}
	s.Claims[2].Leaving = true
	s.DepartedVolumes = []string{"pv-2"}
	return s
}

func claim(n string) Claim {
	return Claim{Name: "data-cache-" + n, UID: "claim-" + n, Ordinal: int32(n[0] - '0'), Volume: "pv-" + n, HasFinalizer: true, Smallest: 2}
}

func member(n string) Pod {
	return Pod{Name: "cache-" + n, UID: "pod-" + n, Ordinal: int32(n[0] - '0'), Claim: "data-cache-" + n, AtWork: true}
}

func drainer() Pod {
	return Pod{
		Name: "drainer", UID: "drainer", Ordinal: -1, Claim: "data-cache-2", ReadOnly: true, AtWork: true,
		DrainsClaim: "claim-2", Survivors: 2,
	}
}

func job() Job {
	return Job{
		Name: "job", UID: "job", Claim: "data-cache-2", ClaimUID: "claim-2", Survivors: 2, Unfinished: true,
		Servers: []string{"cache-0.cache.ns.svc:11211", "cache-1.cache.ns.svc:11211"},
	}
}

func receipt() *contract.Receipt {
	return &contract.Receipt{Version: 1, Source: "claim-2", Complete: true, Found: 3, Outcomes: contract.Outcomes{Added: 2, Expired: 1}}
}

// drained records the receipt on the claim.
func drained(s *State) {
	s.Claims[2].Receipt = receipt()
}

// said lets the claim's drainer leave the receipt.
func said(s *State) { s.Claims[2].ReceiptsLeft = []*contract.Receipt{receipt()} }

// unreadable lets the claim's drainer end with this exit code.
func unreadable(exitCode int) func(*State) {
	return func(s *State) {
		s.Claims[2].ReceiptsLeft = []*contract.Receipt{{Version: 1, Source: "claim-2", ExitCode: exitCode}}
	}
}

func release(s *State) { s.Claims[2].HasFinalizer = false }

// then returns the states before and after the changes.
func then(before *State, changes ...func(*State)) (*State, *State) {
	after := rest()
	after.Claims, after.Pods = slices.Clone(before.Claims), slices.Clone(before.Pods)
	after.Jobs, after.Volumes = slices.Clone(before.Jobs), slices.Clone(before.Volumes)
	after.Cluster, after.Members, after.Items = before.Cluster, before.Members, before.Items
	after.AtRest, after.Versions, after.Told = before.AtRest, before.Versions, before.Told
	for _, change := range changes {
		change(after)
	}
	after.Remember(before)
	return before, after
}

func given(changes ...func(*State)) *State {
	s := rest()
	for _, change := range changes {
		change(s)
	}
	return s
}

func nothing(*State) {}

// TestEachInvariantIsBrokenByWhatBreaksIt also has, for each way to break an invariant, a similar step that
// breaks none.
func TestEachInvariantIsBrokenByWhatBreaksIt(t *testing.T) {
	runs := func(s *State) { s.Jobs = append(s.Jobs, job()) }
	works := func(s *State) { s.Pods = append(s.Pods, drainer()) }
	moves := func(s *State) {
		j := job()
		j.Name, j.UID, j.Claim, j.ClaimUID, j.Moves = "move", "move", "", "claim-0", true
		s.Jobs = append(s.Jobs, j)
	}
	resized := func(n int32) func(*State) { return func(s *State) { s.Members.Replicas = n } }
	deleting := func(s *State) { s.Claims[2].Deleting = true }
	aside := func(s *State) {
		s.Claims = append(s.Claims, Claim{Name: "aside", UID: "aside", Ordinal: -1, Volume: "pv-2", HasFinalizer: true, Leaving: true})
		s.Volumes[2].Claim = "aside"
		s.DepartedVolumes = []string{"pv-2"}
	}
	items := func(stored int64, found map[string]int64) func(*State) {
		return func(s *State) { s.Items = []Item{{Key: "k", Owner: "a", Stored: stored, Found: found}} }
	}
	resting := func(s *State) { s.AtRest = true }
	waits := func(s *State) {
		s.Pods = append(s.Pods, Pod{Name: "mover", UID: "mover", Ordinal: -1, Moves: true, Waits: true, AtWork: true, Survivors: 2, Job: "move"})
	}
	prepared := func(s *State) { s.Jobs[len(s.Jobs)-1].Prepared = true }
	begins := func(s *State) { s.Pods[len(s.Pods)-1].Waits = false }
	told := func(n int32) func(*State) { return func(s *State) { s.Told = n } }
	type step struct {
		before *State
		change func(*State)
		broken int // number of the invariant; 0 for none
	}
	for name, test := range map[string]step{
		"a move begins":                          {given(), moves, 0},
		"a mover begins by the clients' ring":    {given(waits, told(2)), begins, 0},
		"a mover begins by another ring":         {given(waits, told(3)), begins, 10},
		"among members that are not there":       {given(resized(1)), moves, 5},
		"a member leaves under a move":           {given(moves), resized(1), 5},
		"a member leaves, movers were told":      {given(moves, prepared, waits, begins), resized(1), 5},
		"a member leaves, movers wait":           {given(moves, prepared, waits), resized(1), 0},
		"a member leaves, movers have no pod":    {given(moves, prepared), resized(1), 0},
		"all stop under a move":                  {given(moves), resized(0), 0},
		"a member leaves after a move":           {given(moves, func(s *State) { s.Jobs[0].Unfinished = false }), resized(1), 0},
		"a drain begins beside a move":           {given(moves), runs, 5},
		"a move begins beside a drain":           {given(runs), moves, 5},
		"a move of a member that left":           {given(), func(s *State) { moves(s); s.Jobs[0].ClaimUID = "claim-2" }, 7},
		"released with a receipt":                {given(said, drained), release, 0},
		"released without one":                   {given(), release, 1},
		"released by a receipt of another claim": {given(said, drained, func(s *State) { s.Claims[2].Receipt.Source = "x" }), release, 1},
		"released by a skip":                     {given(func(s *State) { s.Claims[2].Skip = true }), release, 0},
		"released by a policy":                   {given(func(s *State) { s.Cluster.KeepsItems = false }), release, 0},
		"released by the policy of its time":     {given(func(s *State) { s.Claims[2].Policy = "Retain" }), release, 0},
		"released by a later policy": {
			given(func(s *State) { s.Cluster.KeepsItems, s.Claims[2].Policy = false, "Drain" }), release, 1,
		},
		"released as it can't be read, by a later spec": {
			given(unreadable(contract.ExitUnrecoverable), func(s *State) { s.Cluster.ReleasesUnreadable, s.Claims[2].Policy = true, "Drain" }), release, 1,
		},
		"a member's claim, released by a policy": {given(func(s *State) { s.Cluster.KeepsItems, s.Claims[2].Leaving = false, false }), release, 1},
		"released with the cluster":              {given(func(s *State) { s.Cluster.Deleting = true }), release, 0},
		"released before it was bound":           {given(func(s *State) { s.Claims[2].Volume = "" }), release, 0},
		"released as it can't be read":           {given(unreadable(contract.ExitUnrecoverable), func(s *State) { s.Cluster.ReleasesUnreadable = true }), release, 0},
		"released as items were rejected":        {given(unreadable(contract.ExitRejected), func(s *State) { s.Cluster.ReleasesUnreadable = true }), release, 1},
		"kept, and released as it can't be read": {given(unreadable(contract.ExitUnrecoverable)), release, 1},
		"gone with its finalizer":                {given(), func(s *State) { s.Claims = s.Claims[:2] }, 1},
		"deleted, and its volume is retained":    {given(deleting, func(s *State) { s.Volumes[2].Retained = true }), release, 1},
		"deleted":                                {given(deleting), release, 1},
		"deleted, another claim has the volume":  {given(deleting, aside), release, 0},
		"one that is not held":                   {given(deleting, aside, func(s *State) { s.Claims[3].HasFinalizer = false }), release, 1},
		"one that is not bound":                  {given(deleting, aside, func(s *State) { s.Volumes[2].Claim = "" }), release, 1},
		"a reclaim policy is changed":            {given(), func(s *State) { s.Volumes[2].Retained = true }, 9},
		"a member gets a volume set aside": {
			given(aside), func(s *State) { resized(3)(s); s.Pods = append(s.Pods, member("2")) }, 11,
		},
		"the volume is gone": {given(), func(s *State) { s.Volumes = s.Volumes[:2] }, 1},
		"one that no claim was bound to": {
			given(func(s *State) { s.Volumes = append(s.Volumes, Volume{Name: "pv-3", Claim: "claim-3"}) }),
			func(s *State) { s.Volumes = s.Volumes[:3] }, 0,
		},
		"one that a claim was bound to before": {
			given(func(s *State) { s.Claims, s.Bound = s.Claims[:2], []string{"pv-2"} }), func(s *State) { s.Volumes = s.Volumes[:2] }, 1,
		},
		"the volume is gone after a skip": {given(func(s *State) { s.GivenUp = []string{"pv-2"} }), func(s *State) { s.Volumes = s.Volumes[:2] }, 0},

		"a receipt is recorded":             {given(said), drained, 0},
		"one that no drainer left":          {given(), func(s *State) { s.Claims[2].Receipt = receipt() }, 2},
		"an item too many":                  {given(), spoilt(func(r *contract.Receipt) { r.Found++ }), 2},
		"an item rejected":                  {given(), spoilt(func(r *contract.Receipt) { r.Rejected++ }), 2},
		"not read to its end":               {given(), spoilt(func(r *contract.Receipt) { r.Complete = false }), 2},
		"a drainer reads":                   {given(), works, 0},
		"a drainer may write":               {given(), func(s *State) { works(s); s.Pods[2].ReadOnly = false }, 3},
		"a drain begins":                    {given(), runs, 0},
		"one into too many":                 {given(), func(s *State) { runs(s); s.Jobs[0].Survivors = 3 }, 5},
		"one of a member that stays":        {given(), func(s *State) { runs(s); s.Jobs[0].ClaimUID, s.Claims[1].Leaving = "claim-1", true }, 5},
		"the size changes under a drain":    {given(runs), resized(1), 5},
		"the size changes after a drain":    {given(runs), func(s *State) { resized(1)(s); s.Jobs[0].Unfinished = false }, 0},
		"the size changes under a drainer":  {given(works), resized(1), 5},
		"a second drainer":                  {given(works), func(s *State) { works(s); s.Pods[3].UID = "another" }, 6},
		"a second one after the first":      {given(works), func(s *State) { s.Pods[2].AtWork = false; works(s); s.Pods[3].UID = "another" }, 0},
		"a drainer beside its member":       {given(func(s *State) { s.DepartedVolumes = nil }), func(s *State) { works(s); s.Pods = append(s.Pods, member("2")) }, 6},
		"a member that stays is drained":    {given(), func(s *State) { runs(s); s.Claims[2].Leaving = false }, 7},
		"one is marked":                     {given(), func(s *State) { s.Claims[1].Leaving = true }, 7},
		"one that left is marked":           {given(func(s *State) { s.Claims[2].Leaving = false }), func(s *State) { s.Claims[2].Leaving = true }, 0},
		"nothing is written at rest":        {given(resting, version("1")), nothing, 0},
		"something is written at rest":      {given(resting, version("1")), version("2"), 8},
		"status shows what is held":         {given(resting), nothing, 0},
		"status does not":                   {given(resting, func(s *State) { s.Cluster.Shown = nil }), nothing, 9},
		"a claim held without a cluster":    {given(resting, func(s *State) { s.Cluster = Cluster{} }), nothing, 9},
		"a cluster that stays deleted":      {given(resting, func(s *State) { s.Cluster.Deleting = true }), nothing, 9},
		"a member returns on a volume left": {given(), func(s *State) { resized(3)(s); s.Pods = append(s.Pods, member("2")) }, 11},
		"a member that is not gone returns": {given(func(s *State) { s.Pods = append(s.Pods, member("2")) }), resized(3), 11},
		"a member takes its time to go":     {given(), func(s *State) { s.Pods = append(s.Pods, member("2")) }, 0},
		"a member returns on another":       {given(), func(s *State) { resized(3)(s); s.Claims[2].Volume = "pv-3"; s.Pods = append(s.Pods, member("2")) }, 0},
		"a ring in another order":           {given(), func(s *State) { runs(s); slices.Reverse(s.Jobs[0].Servers) }, 10},
		"routers settle when prepared":      {given(routed("prepare")), routed("settle"), 0},
		"routers settle unprepared":         {given(routed("stable")), routed("settle"), 11},
		"routers go back when settled":      {given(routed("settle")), routed("stable"), 11},
		"routers' table is made again":      {given(routed("")), routed("move"), 0},
		"an item on its owner":              {given(resting, items(2, map[string]int64{"a": 2, "b": 1})), nothing, 0},
		"an item on another server":         {given(resting, items(2, map[string]int64{"b": 2})), nothing, 10},
		"an item of long ago":               {given(resting, items(2, map[string]int64{"a": 1})), nothing, 11},
		"a value is overwritten":            {given(items(2, map[string]int64{"a": 2})), items(2, map[string]int64{"a": 1}), 4},
		"a value is replaced by a newer":    {given(items(2, map[string]int64{"a": 2})), items(3, map[string]int64{"a": 3}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := then(test.before, test.change)
			var numbers []int
			for _, violation := range Check(before, after) {
				numbers = append(numbers, violation.Invariant.Number)
			}
			if test.broken == 0 && len(numbers) > 0 || test.broken > 0 && !slices.Contains(numbers, test.broken) {
				t.Errorf("want %d broken, got %v", test.broken, Check(before, after))
			}
		})
	}
}

// spoilt records a wrong receipt, just as the drainer left it.
func spoilt(spoil func(*contract.Receipt)) func(*State) {
	return func(s *State) {
		r := receipt()
		spoil(r)
		works := drainer()
		works.AtWork, works.Receipt = false, r
		s.Pods = append(s.Pods, works)
		s.Claims[2].Receipt = r
	}
}

func routed(state string) func(*State) { return func(s *State) { s.Routed = state } }

func version(v string) func(*State) {
	return func(s *State) { s.Versions = map[string]string{"StatefulSet cache": v} }
}

// TestLeavingIsWhatTheSpecSays also shows that the values on a volume count as old only then.
func TestLeavingIsWhatTheSpecSays(t *testing.T) {
	at := func(size, replicas int32) *State {
		s := rest()
		s.Cluster.Size, s.Members.Replicas, s.DepartedVolumes = size, replicas, nil
		return s
	}
	for name, test := range map[string]struct {
		history []*State
		left    []string
	}{
		"a scale-down":                      {[]*State{at(3, 3), at(2, 3), at(2, 2)}, []string{"pv-2"}},
		"a scale-down that was taken back":  {[]*State{at(3, 3), at(2, 3), at(3, 3)}, nil},
		"and is carried out all the same":   {[]*State{at(3, 3), at(2, 3), at(3, 3), at(3, 2)}, []string{"pv-2"}},
		"a hibernation":                     {[]*State{at(3, 3), at(0, 3), at(0, 0), at(3, 0), at(3, 3)}, nil},
		"a hibernation that ends with less": {[]*State{at(3, 3), at(0, 3), at(0, 0), at(2, 0), at(2, 2)}, []string{"pv-2"}},
		"a StatefulSet scaled by hand":      {[]*State{at(3, 3), at(3, 1), at(3, 3)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var before *State
			for _, s := range test.history {
				s.Remember(before)
				before = s
			}
			if !slices.Equal(before.DepartedVolumes, test.left) {
				t.Errorf("left are %v, want %v", before.DepartedVolumes, test.left)
			}
		})
	}
}
