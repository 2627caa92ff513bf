package eventloop_test

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/router/eventloop"
)

func TestTwoMembersAtOnePlaceAreNotAskedUntilNamesHaveChanged(t *testing.T) {
	t.Parallel()
	const a, b, first, second = "a:11211", "b:11211", "10.0.0.1:11211", "10.0.0.2:11211"
	now := time.Now()
	after := now.Add
	type take struct {
		address, remote string
		at              time.Duration
		refused         bool
		twin            string
	}
	for name, takes := range map[string][]take{
		"places of their own":         {{a, first, 0, false, ""}, {b, second, 0, false, ""}, {a, first, 1, false, ""}},
		"the later name changes":      {{a, first, 0, false, ""}, {b, first, 1, true, a}, {a, first, 2, true, b}, {b, second, 3, false, ""}, {a, first, 4, false, ""}},
		"the earlier name changes":    {{a, first, 0, false, ""}, {b, first, 1, true, a}, {a, second, 2, false, ""}, {b, first, 3, false, ""}},
		"neither changes":             {{a, first, 0, false, ""}, {b, first, 1, true, a}, {a, first, 59 * time.Second, true, b}, {a, first, 2 * time.Minute, false, ""}, {b, first, 2 * time.Minute, true, ""}},
		"the one that was there left": {{a, first, 0, false, ""}, {a, "", 0, false, ""}, {b, first, 1, false, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &eventloop.Places{}
			holders := map[string]*eventloop.Holder{a: {Address: a}, b: {Address: b}}
			for i, want := range takes {
				if want.remote == "" {
					p.Leave(holders[want.address])
					continue
				}
				twin, why := p.Take(holders[want.address], want.remote, after(want.at))
				if (why != "") != want.refused || twin != want.twin {
					t.Errorf("%d: %s at %s: %q, and %q", i, want.address, want.remote, why, twin)
				}
			}
		})
	}
}
