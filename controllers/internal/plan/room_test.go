package plan

import (
	"testing"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

func TestScaleDownWaitsForRoomWhereTheSpecSaysSo(t *testing.T) {
	short, enough := &Room{Leaving: 11, Evicted: 1}, &Room{Leaving: 10}
	for name, test := range map[string]struct {
		scene    *scene
		room     *Room
		replicas int32
		blocked  Block
	}{
		"too little room":                {at(3).wanted(2), short, 3, BlockedByShortage},
		"asked a moment ago":             {at(3).wanted(2), &Room{Leaving: 11, Evicted: 1, Pending: true}, 3, BlockedByMemoryCheck},
		"asked, to zero":                 {at(3).wanted(0), &Room{Pending: true}, 0, NotBlocked},
		"asked, up":                      {at(3).wanted(4), &Room{Pending: true}, 4, NotBlocked},
		"just enough":                    {at(3).wanted(2), enough, 2, NotBlocked},
		"no member can tell":             {at(3).wanted(2), &Room{Leaving: 11, Evicted: 1, Unknown: "no answer"}, 2, NotBlocked},
		"no member was asked":            {at(3).wanted(2), nil, 2, NotBlocked},
		"it was told to proceed":         {at(3).wanted(2).with(func(o *Observed) { o.Cluster.WaitForRoom = false }), short, 2, NotBlocked},
		"to zero: nothing is drained":    {at(3).wanted(0), short, 0, NotBlocked},
		"up":                             {at(3).wanted(4), short, 4, NotBlocked},
		"the members were told to leave": {at(2).left(2).with(func(o *Observed) { o.StatefulSet.Replicas = 3 }), short, 2, NotBlocked},
		"items are given up by policy":   {at(3).wanted(2).with(func(o *Observed) { o.Cluster.Policy = claims.Delete }), short, 2, NotBlocked},
		"a drain runs, and has its word": {at(3).wanted(2).left(3).job(3, 3), short, 3, BlockedByDrain},
	} {
		test.scene.o.Room = test.room
		if name != "it was told to proceed" {
			test.scene.o.Cluster.WaitForRoom = true
		}
		p := Next(&test.scene.o)
		if p.Replicas != test.replicas || p.SizeBlocked != test.blocked {
			t.Errorf("%s: got %d replicas, blocked %q; want %d, %q", name, p.Replicas, p.SizeBlocked, test.replicas, test.blocked)
		}
		if (test.blocked == BlockedByShortage || test.blocked == BlockedByMemoryCheck) && len(actions[action.MarkLeaving](p)) > 0 {
			t.Errorf("%s: a member is told to leave: %v", name, p.Actions)
		}
	}
}

// The operator knows if the items fit before the first member is told to leave, for each policy
// about a shortage.
func TestScaleDownWaitsForItsMembersAnswers(t *testing.T) {
	s := at(3).wanted(2)
	s.o.Room = &Room{Pending: true}
	if p := Next(&s.o); p.Replicas != 3 || p.SizeBlocked != BlockedByMemoryCheck || len(actions[action.MarkLeaving](p)) > 0 {
		t.Errorf("got %d replicas, blocked %q, %v", p.Replicas, p.SizeBlocked, p.Actions)
	}
}
