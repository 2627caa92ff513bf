package plan

import (
	"testing"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

func TestListShrinksAtOnceAndGrowsWhenAllThatItLacksAreReady(t *testing.T) {
	for name, test := range map[string]struct {
		before, target int32
		ready          []int32
		want           int32
	}{
		"at birth, no member ready":         {0, 3, nil, 0},
		"at birth, some ready":              {0, 3, []int32{0, 1}, 0},
		"at birth, all ready":               {0, 3, []int32{0, 1, 2}, 3},
		"as wanted":                         {3, 3, []int32{0, 1, 2}, 3},
		"a listed member restarts":          {3, 3, []int32{0, 2}, 3},
		"all listed members restart":        {3, 3, nil, 3},
		"one leaves":                        {3, 2, []int32{0, 1, 2}, 2},
		"one leaves, those that stay don't": {3, 2, nil, 2},
		"hibernation":                       {3, 0, []int32{0, 1, 2}, 0},
		"two come, one is ready":            {3, 5, []int32{0, 1, 2, 3}, 3},
		"two come, the later one is ready":  {3, 5, []int32{0, 1, 2, 4}, 3},
		"two come, both are ready":          {3, 5, []int32{0, 1, 2, 3, 4}, 5},
		"two come while one restarts":       {3, 5, []int32{0, 2, 3, 4}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{ListSize: test.before, Ready: test.ready}
			if got := nextListSize(&o, test.target); got != test.want {
				t.Errorf("%d servers, want %d", got, test.want)
			}
		})
	}
}

// A plan that makes a ring that moves keys lets no member join.
func TestNoMemberJoinsWhenClientsAreToldOfARingThatMovesKeys(t *testing.T) {
	joined := func(client string) *scene {
		return at(4).wanted(6).with(func(o *Observed) {
			o.Ready = []int32{0, 1, 2, 3}
			o.Cluster.Ring.Client = client
			o.ListSize, o.Record.Ring = 4, ring.Ring{Client: "gomemcache", Port: 11211, Size: 4}
		})
	}
	for client, want := range map[string]struct {
		replicas int32
		blocked  Block
	}{"gomemcache": {6, NotBlocked}, "dalli": {4, BlockedByMove}} {
		p := Next(&joined(client).o)
		if p.Replicas != want.replicas || p.SizeBlocked != want.blocked || p.Record.Ring.Client != client {
			t.Errorf("%s: %d members, blocked by %q, ring %s", client, p.Replicas, p.SizeBlocked, p.Record)
		}
		list := actions[action.WriteList](p)
		if len(list) != 1 || list[0].ListSize != 4 || list[0].Record != p.Record || list[0].From.Ring.Client != "gomemcache" {
			t.Errorf("%s: %+v", client, list)
		}
	}
}

func TestTheListIsCheckedLive(t *testing.T) {
	seen := at(3).wanted(2).change(2, func(c *claims.Claim) { c.PlanMark() })
	p := Next(&seen.o)
	write := actions[action.WriteList](p)[0]
	for what, test := range map[string]struct {
		live *scene
		may  bool
	}{
		"as the plan saw it":       {at(3).wanted(2).change(2, func(c *claims.Claim) { c.PlanMark() }), true},
		"written by now":           {at(3).wanted(2).change(2, func(c *claims.Claim) { c.PlanMark() }).with(func(o *Observed) { o.Record = p.Record }), true},
		"of another ring":          {at(3).wanted(2).change(2, func(c *claims.Claim) { c.PlanMark() }).with(func(o *Observed) { o.Record.Serial = 9 }), false},
		"the member is not marked": {at(3).wanted(2), false},
		"the size is set":          {at(3).wanted(2).with(func(o *Observed) { o.StatefulSet.Replicas = 2 }), true},
	} {
		if err := MayWriteList(&test.live.o, write); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}
