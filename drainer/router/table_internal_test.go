package router

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
)

// A router that is behind refuses keys that may have moved before it refuses all.
func TestARouterThatIsBehindRefusesMovedKeysFirst(t *testing.T) {
	const bound = time.Second
	for _, c := range []struct {
		name       string
		state      ringchange.State
		behind     time.Duration
		mustLook   bool
		moved, all bool
	}{
		{"not yet", ringchange.Move, bound - 1, false, false, false},
		{"some keys have moved", ringchange.Move, bound, false, true, false},
		{"the next ring change may have begun", ringchange.Move, 2 * bound, false, true, true},
		{"any key may have moved since", ringchange.Stable, bound, false, true, true},
		{"it was paused", ringchange.Settle, 0, true, true, false},
		{"it was paused before the ring change", ringchange.Stable, 0, true, true, true},
	} {
		if moved, all := refuses(c.state, c.behind, bound, c.mustLook); moved != c.moved || all != c.all {
			t.Errorf("%s: moved %t, all %t", c.name, moved, all)
		}
	}
}
