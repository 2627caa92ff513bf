package plan

import (
	"flag"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/test/explore"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

// This file explores every order of the events of a walk (walk_test.go), from one scene, with a bounded number of deeds
// of people, of mishaps, and of deaths of the operator. The operator carries out a plan write by write: any event may
// come between two of them, so each live check sees a newer state than the plan, and the operator may die there. The
// walk has what the model (internal/model) lacks: routers, members that step out, and pods in place of claims as holders
// of the items.

// bounds are how many deeds, mishaps and deaths may still happen.
type bounds struct{ acts, faults, deaths int }

// exploring is a state that was reached.
type exploring struct {
	*walk
	// todo are the writes of the plan that are still to be made.
	todo []action.Action
	bounds
	id int32
}

// next is an event, and the state that it leads to. itself: it happens by itself, sooner or later. may: it may happen
// by itself.
type next struct {
	what        string
	to          *exploring
	itself, may bool
}

func (s *exploring) copy() *exploring {
	c := *s
	c.walk = s.walk.copy()
	c.todo = slices.Clone(s.todo)
	return &c
}

// copy returns a copy that shares nothing that changes.
func (w *walk) copy() *walk {
	c := *w
	c.Claims, c.Jobs, c.Moves, c.Drainers = slices.Clone(w.Claims), slices.Clone(w.Jobs), slices.Clone(w.Moves), slices.Clone(w.Drainers)
	c.Pods, c.Ready, c.Away, c.Cordoned = slices.Clone(w.Pods), slices.Clone(w.Ready), slices.Clone(w.Away), slices.Clone(w.Cordoned)
	c.ClaimsWithDrainerPod, c.ClaimsWithDrainerAtWork = slices.Clone(w.ClaimsWithDrainerPod), slices.Clone(w.ClaimsWithDrainerAtWork)
	c.MemberServices = slices.Clone(w.MemberServices)
	c.volumes, c.holds = maps.Clone(w.volumes), maps.Clone(w.holds)
	c.has, c.empty, c.told = maps.Clone(w.has), maps.Clone(w.empty), maps.Clone(w.told)
	c.aside, c.unready = maps.Clone(w.aside), maps.Clone(w.unready)
	c.story = nil
	return &c
}

// hash is the same for states with the same futures: times count by their age, and UIDs by their order.
func (s *exploring) hash() uint64 {
	age := func(t time.Time) string {
		const old = 2 * time.Hour
		switch d := s.Now.Sub(t); {
		case t.IsZero():
			return "never"
		case d > old:
			return "old"
		default:
			return d.String()
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %+v %d %s %+v %v %v %s\n", s.Cluster, s.StatefulSet, s.ListSize, s.Record, s.bounds, sortedOf(s.Pods), sortedOf(s.Ready), age(s.LastReady))
	for _, a := range s.Away {
		fmt.Fprintf(&b, "away %d %s\n", a.Ordinal, age(a.Since))
	}
	for _, c := range s.Cordoned {
		fmt.Fprintf(&b, "cordoned %d %s %s\n", c.Ordinal, c.Node, age(c.Since))
	}
	for _, c := range s.Claims {
		since, receipt := c.LeavingSince, c.Receipt != nil
		c.LeavingSince, c.Receipt = time.Time{}, nil
		fmt.Fprintf(&b, "claim %+v %s %t\n", c, age(since), receipt)
	}
	for _, j := range slices.Concat(s.Jobs, s.Moves) {
		ended, failed := j.Ended, j.Receipt != nil && j.Receipt.Err != nil
		j.Ended, j.Receipt = time.Time{}, nil
		fmt.Fprintf(&b, "job %+v %s %t\n", j, age(ended), failed)
	}
	fmt.Fprintf(&b, "%+v %v %v\n", s.Drainers, s.ClaimsWithDrainerPod, s.ClaimsWithDrainerAtWork)
	if t := s.Table; t != nil {
		was := *t
		was.Since = time.Time{}
		fmt.Fprintf(&b, "table %+v %s\n", was, age(t.Since))
	}
	fmt.Fprintf(&b, "%v %v %+v\n", s.volumes, s.holds, s.replacing)
	for _, a := range s.todo {
		fmt.Fprintf(&b, "%T%+v\n", a, a)
	}
	return hashOf(b.String())
}

// hashOf hashes the text with its UIDs (walk.newUID) in their order.
func hashOf(text string) uint64 {
	h, seen, from := maphash.Hash{}, map[string]byte{}, 0
	h.SetSeed(hashes)
	digit := func(at int) bool { return at < len(text) && '0' <= text[at] && text[at] <= '9' }
	for at := range len(text) {
		if text[at] != 'u' || !digit(at+1) || at > 0 && ('a' <= text[at-1] && text[at-1] <= 'z' || digit(at-1)) {
			continue
		}
		end := at + 1
		for digit(end) {
			end++
		}
		uid := text[at:end]
		if _, known := seen[uid]; !known {
			seen[uid] = byte(len(seen))
		}
		_, _ = h.WriteString(text[from:at])
		_, _ = h.Write([]byte{'U', seen[uid]})
		from = end
	}
	_, _ = h.WriteString(text[from:])
	return h.Sum64()
}

var hashes = maphash.MakeSeed()

func sortedOf(all []int32) []int32 {
	c := slices.Clone(all)
	slices.Sort(c)
	return c
}

// effective are the writes of the plan that change something now.
func (s *exploring) effective(p *Plan) (todo []action.Action) {
	try := s.walk.copy()
	for _, a := range p.Actions {
		if kind, err := refusedLive(&try.Observed, a); err != nil && kind != "mark" {
			continue // it is decided again
		}
		if try.act(a) {
			todo = append(todo, a)
			try.lookAtVolumes()
		}
	}
	return todo
}

// write makes the next write of the plan, as package apply does. All marks share one live read.
func (s *exploring) write(t *testing.T) (what string) {
	a := s.todo[0]
	s.todo = s.todo[1:]
	s.lookAtVolumes()
	s.lookAtTemplates()
	if _, err := refusedLive(&s.Observed, a); err != nil {
		refused := action.KindOf(a)
		s.todo = slices.DeleteFunc(s.todo, func(other action.Action) bool {
			kind := action.KindOf(other)
			return refused.Class == action.Members && kind.Class == action.Members || kind.Claim != "" && kind.Claim == refused.Claim
		})
		return fmt.Sprintf("REFUSED: %s: %v", a, err)
	}
	read := s.Observed
	read.Claims = slices.Clone(s.Claims)
	s.checkShrink(t, a)
	s.checkStep(t, a)
	s.act(a)
	what = a.String()
	for _, marks := a.(action.MarkLeaving); marks && len(s.todo) > 0; {
		more, is := s.todo[0].(action.MarkLeaving)
		if !is {
			break
		}
		if s.todo = s.todo[1:]; MayMark(&read, more.Claim.Ordinal) == nil {
			s.act(more)
			what += ", " + more.String()
		}
	}
	return what
}

// events returns everything that may happen next.
func (s *exploring) events(t *testing.T, deeds func(*walk) []happens) (all []next, p *Plan) {
	add := func(what string, itself, may bool, do func(*exploring)) {
		to := s.copy()
		do(to)
		all = append(all, next{what, to, itself, may})
	}
	choose := func(what string, of func(*walk) []happens, itself bool, pays func(*exploring)) {
		for i, e := range of(s.walk) {
			if itself && e.what == notTold {
				continue
			}
			add(what+e.what, itself, itself, func(to *exploring) {
				of(to.walk)[i].do()
				to.endClaims()
				pays(to)
			})
		}
	}
	s.lookAtVolumes()
	s.lookAtTemplates()
	s.noteHolders()
	free := func(*exploring) {}
	quiet := false
	if len(s.todo) > 0 {
		add("", true, true, func(to *exploring) {})
		all[0].what = all[0].to.write(t)
		if s.deaths > 0 {
			add("THE OPERATOR DIES", false, false, func(to *exploring) { to.todo, to.deaths = nil, to.deaths-1 })
		}
	} else {
		planned := Next(&s.Observed)
		p = &planned
		if todo := s.effective(p); len(todo) > 0 {
			add("the operator plans", true, true, func(to *exploring) { to.todo = todo })
		} else {
			quiet = true
		}
	}
	choose("", (*walk).kubernetes, true, free)
	switch pending := len(all) > 0; {
	case !quiet || p.Wake.IsZero():
	case !pending:
		add(fmt.Sprintf("time passes: %s", p.Wake.Sub(s.Now)), true, true, func(to *exploring) { to.Now = to.Now.Add(max(time.Second, p.Wake.Sub(to.Now))) })
	case s.faults > 0:
		add(fmt.Sprintf("NOTHING HAPPENS FOR %s", p.Wake.Sub(s.Now)), false, false, func(to *exploring) {
			to.Now, to.faults = to.Now.Add(max(time.Second, p.Wake.Sub(to.Now))), to.faults-1
		})
	}
	if s.faults > 0 {
		choose("", (*walk).mishaps, false, func(to *exploring) { to.faults-- })
	}
	if s.acts > 0 {
		choose("", deeds, false, func(to *exploring) { to.acts-- })
	}
	return all, p
}

// exploration has the scene in which an exploration begins, and the deeds that people may do.
type exploration struct {
	begin func(*testing.T) *walk
	bounds
	deeds func(*walk) []happens
	// tier is 1 or 2, or 3 for make test-model.
	tier int
}

var longWalks = flag.Bool("walk.long", false, "explore more: minutes, gigabytes")

// run explores all states, breadth first.
func (e *exploration) run(t *testing.T) *explore.Graph[string] {
	g := explore.New[string]()
	first := &exploring{walk: e.begin(t), bounds: e.bounds}
	g.Know(first.hash(), explore.Step[string]{From: -1, Move: "the beginning"})
	var at *exploring
	defer func() {
		if t.Failed() && at != nil {
			t.Logf("after this history:\n%s", g.History(g.How(at.id)))
		}
	}()
	for frontier := []*exploring{first}; len(frontier) > 0; {
		at, frontier = frontier[0], frontier[1:]
		events, p := at.events(t, e.deeds)
		resting := true
		for _, n := range events {
			how := explore.Step[string]{From: at.id, Move: n.what}
			id, isNew := g.Know(n.to.hash(), how)
			if n.to.id = id; isNew {
				frontier = append(frontier, n.to)
			}
			if resting = resting && !n.itself; n.may {
				g.Progress(at.id, id)
			}
		}
		if !resting {
			continue
		}
		g.Rest(at.id)
		if p == nil || !at.settled(p) && at.asks(p) == nil && !at.waits(p) {
			g.Break("at rest", "nothing runs, and no step, no time and no person is named:\n"+describe(&at.Observed), g.How(at.id))
		}
	}
	g.CheckProgress()
	return g
}

// waits tells whether status names what a member waits for: a person who skips the move of a pod, or a node that takes
// pods again.
func (s *exploring) waits(p *Plan) bool {
	return p.State == StepAside || slices.ContainsFunc(p.Drains, func(d claims.DrainState) bool { return d.Claim.InPod && d.Message != "" })
}

// sizes are deeds of people who want other numbers of members.
func sizes(all ...int32) func(*walk) []happens {
	return func(w *walk) (deeds []happens) {
		for _, n := range all {
			if n != w.Cluster.Size {
				deeds = append(deeds, happens{fmt.Sprintf("A PERSON wants %d members", n), func() { w.Cluster.Size = n }})
			}
		}
		return deeds
	}
}

// and joins deeds.
func and(all ...func(*walk) []happens) func(*walk) []happens {
	return func(w *walk) (deeds []happens) {
		for _, of := range all {
			deeds = append(deeds, of(w)...)
		}
		return deeds
	}
}

func noDeeds(*walk) []happens { return nil }

func templateChanges(w *walk) []happens {
	return []happens{{"A PERSON changes the template", func() { w.wanted++ }}}
}

func rolloutChanges(w *walk) []happens {
	return []happens{{"A PERSON changes how members are replaced", func() { w.Cluster.Moved = !w.Cluster.Moved }}}
}

func routersGo(w *walk) []happens {
	if !w.Cluster.Routers {
		return nil
	}
	return []happens{{"A PERSON wants no routers", func() { w.Cluster.Routers, w.Cluster.Exclusive, w.Table = false, false, nil }}}
}

func nodesAreDrained(w *walk) (deeds []happens) {
	w.cordons(func(what string, do func()) { deeds = append(deeds, happens{"A PERSON " + what, do}) })
	return deeds
}

// explorations are those of members that step out, and of members without volumes.
func explorations() map[string]*exploration {
	two := func(change func(*walk)) func(*testing.T) *walk {
		return func(t *testing.T) *walk {
			t.Helper()
			w := newWalk(2, "libmemcached-ketama", true)
			w.Cluster.Moved, w.Cluster.Exclusive = true, true
			change(w)
			return w
		}
	}
	rolls := two(func(w *walk) { w.wanted++ })
	drains := two(func(w *walk) { w.Cluster.StepsOutForEvictions = true })
	pods := func(routers bool) func(*testing.T) *walk {
		return func(*testing.T) *walk { return newPodWalk(2, "libmemcached-ketama", routers) }
	}
	return map[string]*exploration{
		"a roll-out, a death":                         {rolls, bounds{deaths: 1}, noDeeds, 1},
		"a node is drained, a death":                  {drains, bounds{acts: 1, deaths: 1}, nodesAreDrained, 1},
		"a roll-out, a mishap":                        {rolls, bounds{faults: 1}, noDeeds, 2},
		"a roll-out, a mishap, a death":               {rolls, bounds{faults: 1, deaths: 1}, noDeeds, 2},
		"a roll-out, a deed, a death":                 {rolls, bounds{acts: 1, deaths: 1}, and(sizes(0, 1, 3), templateChanges, rolloutChanges, routersGo), 3},
		"a roll-out, a size":                          {rolls, bounds{acts: 1}, sizes(0, 1, 3), 2},
		"nodes are drained and not, a death":          {drains, bounds{acts: 2, deaths: 1}, nodesAreDrained, 3},
		"nodes are drained, a mishap":                 {drains, bounds{acts: 1, faults: 1}, nodesAreDrained, 3},
		"a node is drained, and a size or a template": {drains, bounds{acts: 2}, and(nodesAreDrained, sizes(1, 3), templateChanges), 3},
		"pods, a size, a death":                       {pods(false), bounds{acts: 1, deaths: 1}, sizes(0, 1, 3), 1},
		"pods and routers, a size, a death":           {pods(true), bounds{acts: 1, deaths: 1}, sizes(0, 1, 3), 2},
		"pods, a size, a mishap":                      {pods(false), bounds{acts: 1, faults: 1}, sizes(1, 3), 2},
		"pods, two sizes":                             {pods(false), bounds{acts: 2}, sizes(0, 1, 3), 2},
		"pods and routers, two sizes, a mishap":       {pods(true), bounds{acts: 2, faults: 1}, sizes(1, 3), 2},
	}
}

// TestEveryOrderOfAStepsEvents: in any order of events a member that is out returns without its items, no pod goes with the
// only copy of an item, and each history can come to a rest that people want, or are asked to act in.
func TestEveryOrderOfAStepsEvents(t *testing.T) {
	var states, rests atomic.Int64
	t.Cleanup(func() {
		if err := summary.Add("walks, explored: %d states, %d at rest (-walk.long=%v)", states.Load(), rests.Load(), *longWalks); err != nil {
			t.Error(err)
		}
	})
	all := explorations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		if e.tier > 1 && !tier.All() && !*longWalks || e.tier > 2 && !*longWalks {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			g := e.run(t)
			t.Logf("%d states, %d at rest, %.1f s", g.States(), g.Rests(), time.Since(began).Seconds())
			states.Add(int64(g.States()))
			rests.Add(int64(g.Rests()))
			for _, story := range g.Broken {
				t.Error(story)
			}
		})
	}
}
