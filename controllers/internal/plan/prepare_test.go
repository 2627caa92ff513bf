package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// preparing is a cluster of three that was told to shrink to two a second ago: member 2
// has the mark, and clients are still told of all three.
func preparing() *scene {
	return at(3).wanted(2).change(2, marks(now.Add(-time.Second))).with(func(o *Observed) {
		o.Now, o.Ready, o.Cluster.Patience = now, []int32{0, 1, 2}, 90*time.Second
	})
}

// prepares adds the Job of member 2's mover, for the ring of two.
func (s *scene) prepares(changes ...func(*claims.Job)) *scene {
	return s.move(2, append([]func(*claims.Job){func(j *claims.Job) { j.Target, j.Waits = s.next(2), true }}, changes...)...)
}

// next names the ring of size members.
func (s *scene) next(size int32) string {
	return s.o.Record.Next(s.o.Cluster.Ring.Of(size)).Target()
}

// starts adds the pod of the mover's Job.
func (s *scene) starts(prepared bool) *scene {
	s.o.Drainers = append(s.o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: uid(2), Target: s.next(2), Waits: true, Running: prepared, Prepared: prepared})
	return s
}

func TestTheListWaitsForPreparedMovers(t *testing.T) {
	const (
		list3, list2 = "list 3 members for clients", "list 2 members for clients"
		prepare      = "prepare to move the items of the member of claim data-2, by ring " + target
		begin        = "begin to move the items of the member of claim data-2, by ring " + target
		shrink       = "apply the StatefulSet, 2 replicas"
		place        = "move the items of the member of claim data-2, by ring " + target
		end          = "delete Job move-data-2: its member leaves now"
	)
	late := marks(now.Add(-preparesWithin))
	for what, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"no mover yet":                {preparing(), []string{list3, prepare}},
		"its pod is not there yet":    {preparing().prepares(), []string{list3}},
		"its pod has not started yet": {preparing().prepares().starts(false), []string{list3}},
		"it runs, and still connects": {preparing().prepares().starts(false).with(func(o *Observed) { o.Drainers[0].Running = true }), []string{list3}},
		"it is prepared":              {preparing().prepares().starts(true), []string{list2, begin}},
		"it has not started in time":  {preparing().change(2, late).prepares().starts(false), []string{list2, begin}},
		"no pod in time":              {preparing().change(2, late).prepares(), []string{list2}},
		"no mover in time":            {preparing().change(2, late), []string{list2, place}},
		"it has failed":               {preparing().prepares(moverFailed), []string{list2, shrink}},
		"it is being deleted":         {preparing().prepares(gone), []string{list2, shrink}},

		"a person wants it again":         {preparing().prepares().starts(true).wanted(3), []string{list2, shrink, end}},
		"a person holds its drain":        {preparing().prepares().change(2, requested(claims.Hold)), []string{list2, shrink, end}},
		"the routing changes":             {preparing().prepares().with(func(o *Observed) { o.Cluster.Ring.Client = "gomemcache" }), []string{list2, shrink, end}},
		"patience is 0":                   {preparing().with(func(o *Observed) { o.Cluster.Patience = 0 }), []string{list2, shrink}},
		"a survivor is not ready":         {preparing().prepares().with(func(o *Observed) { o.Ready = []int32{0, 2} }), []string{list2}},
		"it is not ready":                 {preparing().prepares().with(func(o *Observed) { o.Ready = []int32{0, 1} }), []string{list2, shrink, end}},
		"an earlier member's volume left": {preparing().left(3), []string{list2, place}},
		"the list was lost":               {preparing().with(func(o *Observed) { o.Record.Ring.Client = "" }), []string{list2, place, "move the items of the member of claim data-1, by ring " + target, "move the items of the member of claim data-0, by ring " + target}},
		"all stop":                        {preparing().prepares().wanted(0), []string{"list 0 members for clients", "apply the StatefulSet, 0 replicas", end}},
	} {
		t.Run(what, func(t *testing.T) {
			p := planned(test.scene)
			p.Actions = slices.DeleteFunc(p.Actions, func(a string) bool { return a == "apply the StatefulSet, 3 replicas" })
			for _, a := range Next(&test.scene.o).Actions {
				if _, is := a.(action.WriteList); is {
					p.Actions = slices.Insert(p.Actions, 0, a.String())
				}
			}
			if diff := cmp.Diff(test.want, p.Actions); diff != "" {
				t.Errorf("actions: -want +got:\n%s", diff)
			}
		})
	}
}

// With a client that reshuffles keys, the members that stay have items for each other. Their movers
// are prepared, too.
func TestMoversOfMembersThatStayArePreparedToo(t *testing.T) {
	s := preparing().with(func(o *Observed) {
		o.Cluster.Ring.Client, o.Record.Ring.Client = "gomemcache", "gomemcache"
	})
	p := Next(&s.o)
	if created := actions[action.CreateMove](p); !p.Prepares || len(created) != 3 || slices.ContainsFunc(created, func(a action.CreateMove) bool { return !a.Prepared }) {
		t.Errorf("prepares %v, %v", p.Prepares, created)
	}
	s.prepares().starts(true)
	if p := Next(&s.o); !p.Prepares {
		t.Error("it waits for one mover only")
	}
	for i := range int32(2) {
		s.move(i, func(j *claims.Job) { j.Target, j.Waits = s.next(2), true })
		s.o.Drainers = append(s.o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: uid(i), Target: s.next(2), Waits: true, Running: true, Prepared: true})
	}
	if p := Next(&s.o); p.Prepares || len(actions[action.BeginMove](p)) != 3 {
		t.Errorf("prepares %v, %v", p.Prepares, p.Actions)
	}
}

// joining is a cluster of two whose third member became ready a second ago.
func joining() *scene {
	return at(3).with(func(o *Observed) {
		o.ListSize, o.Record.Ring, o.Record.From = 2, o.Cluster.Ring.Of(2), o.Cluster.Ring.Of(2)
		o.Now, o.LastReady, o.Ready = now, now.Add(-time.Second), []int32{0, 1, 2}
	})
}

// grows adds the Job and the pod of a mover, for the ring of three.
func (s *scene) grows(ordinal int32, prepared bool) *scene {
	s.move(ordinal, func(j *claims.Job) { j.Target, j.Waits = s.next(3), true })
	s.o.Drainers = append(s.o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: uid(ordinal), Target: s.next(3), Waits: true, Running: prepared, Prepared: prepared})
	return s
}

func TestAJoiningMemberIsListedWhenMoversArePrepared(t *testing.T) {
	const (
		prepare0 = "prepare to move the items of the member of claim data-0, by ring " + target
		prepare1 = "prepare to move the items of the member of claim data-1, by ring " + target
		move0    = "move the items of the member of claim data-0, by ring " + target
		move1    = "move the items of the member of claim data-1, by ring " + target
		begin0   = "begin to move the items of the member of claim data-0, by ring " + target
		begin1   = "begin to move the items of the member of claim data-1, by ring " + target
	)
	late := func(o *Observed) { o.LastReady = now.Add(-preparesWithin) }
	for what, test := range map[string]struct {
		scene *scene
		lists int32
		want  []string
	}{
		"no mover yet":              {joining(), 2, []string{prepare1, prepare0}},
		"they have not started yet": {joining().grows(0, false).grows(1, false), 2, nil},
		"one is prepared":           {joining().grows(0, true).grows(1, false), 2, nil},
		"both are":                  {joining().grows(0, true).grows(1, true), 3, []string{begin1, begin0}},
		"not in time":               {joining().grows(0, true).grows(1, false).with(late), 3, []string{begin1, begin0}},
		"no mover in time":          {joining().with(late), 3, []string{move1, move0}},
		"a clock is wrong":          {joining().with(func(o *Observed) { o.LastReady = now.Add(time.Hour) }), 3, []string{move1, move0}},
		"a person skips one":        {joining().change(0, asked(claims.Skip)).grows(1, true), 3, []string{begin1, "record that the items of the member of claim data-0 are moved by ring " + target}},
		"a member is not ready":     {joining().with(func(o *Observed) { o.Ready = []int32{0, 2} }), 3, nil},
		"move is Off":               {joining().with(func(o *Observed) { o.Cluster.MovesOff = true }), 3, nil},
		"it is to leave again":      {joining().grows(0, true).grows(1, false).wanted(2), 2, []string{"mark claim data-2 as leaving", "delete Job move-data-0: its member has nothing to move", "delete Job move-data-1: its member has nothing to move"}},
	} {
		t.Run(what, func(t *testing.T) {
			got := planned(test.scene).Actions
			got = slices.DeleteFunc(got, func(a string) bool { return strings.HasPrefix(a, "apply the StatefulSet") })
			if p := Next(&test.scene.o); p.ListSize != test.lists {
				t.Errorf("the list has %d members, want %d", p.ListSize, test.lists)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("actions: -want +got:\n%s", diff)
			}
			for _, a := range actions[action.CreateMove](Next(&test.scene.o)) {
				if err := MayMove(&test.scene.o, a); a.Prepared && err != nil {
					t.Errorf("%s: %v", a, err)
				}
			}
		})
	}
}

func TestTheEndOfThePreparationBringsAPlan(t *testing.T) {
	s := preparing().prepares()
	if p, want := Next(&s.o), now.Add(preparesWithin-time.Second); !p.Wake.Equal(want) {
		t.Errorf("the next plan is at %s, want %s", p.Wake, want)
	}
}

// At most mostMovers movers are prepared, so the list waits for at most mostMovers.
func TestTheListWaitsForAsManyMoversAsThereAre(t *testing.T) {
	s := at(mostMovers + 3).wanted(1).with(func(o *Observed) { o.Now, o.Cluster.Patience = now, time.Minute })
	for i := range int32(mostMovers + 3) {
		s.o.Ready = append(s.o.Ready, i)
		if i == 0 {
			continue
		}
		s.change(i, marks(now.Add(-time.Second)))
		if i <= 2 {
			continue
		}
		s.move(i, func(j *claims.Job) { j.Target, j.Waits = s.next(1), true })
		s.o.Drainers = append(s.o.Drainers, claims.Drainer{ClaimUID: uid(i), Target: s.next(1), Waits: true, Running: true, Prepared: i > 3})
	}
	if p := Next(&s.o); !p.Prepares {
		t.Error("it doesn't wait for the last of them")
	}
	s.o.Drainers[0].Prepared = true
	if p := Next(&s.o); p.Prepares {
		t.Error("it waits although they are prepared")
	}
}

// A mover begins only when clients are told of its ring.
func TestAMoverBeginsByTheRingOfTheList(t *testing.T) {
	a := action.BeginMove{Claim: action.ClaimRef{UID: uid(2)}, Target: preparing().next(2)}
	announced := func() *scene {
		return preparing().prepares().starts(true).with(func(o *Observed) { o.ListSize, o.Record = 2, o.Record.Next(o.Cluster.Ring.Of(2)) })
	}
	if err := MayBegin(&announced().o, a); err != nil {
		t.Error(err)
	}
	for what, s := range map[string]*scene{
		"clients are told of three":           preparing().prepares().starts(true),
		"clients are told of no member":       announced().with(func(o *Observed) { o.ListSize = 0 }),
		"clients are told of a ring after it": announced().with(func(o *Observed) { o.Record.Serial++ }),
		"clients use another library":         announced().with(func(o *Observed) { o.Record.Ring.Client = "gomemcache" }),
		"its Job is gone":                     announced().with(func(o *Observed) { o.Moves = nil }),
		"its Job is being deleted":            announced().with(func(o *Observed) { o.Moves[0].Deleting = true }),
		"a drain runs":                        announced().job(3, 2),
		"another one moves items":             announced().with(func(o *Observed) { o.Drainers = append(o.Drainers, claims.Drainer{ClaimUID: uid(1), Target: "9-x"}) }),
		"a person wants it again":             announced().wanted(3),
	} {
		if err := MayBegin(&s.o, a); err == nil {
			t.Errorf("%s: it begins", what)
		}
	}
}
