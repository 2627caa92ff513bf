//go:build linux

package member

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// So clients that look names up once, when they get the list, find them. The list doesn't wait forever, and
// doesn't wait for names that can be looked up.
func TestAListWaitsForItsNames(t *testing.T) {
	t.Parallel()
	known, added := contract.Node{Host: "cache-0.cache.shop.svc", IP: "10.0.0.1", Port: 11211}, contract.Node{Host: "localhost", IP: "10.0.0.2", Port: 11211}
	unknown := contract.Node{Host: "cache-1.cache.shop.svc", IP: "10.0.0.3", Port: 11211}
	before := &contract.List{Version: 1, Nodes: []contract.Node{known}}
	for name, test := range map[string]struct {
		nodes []contract.Node
		want  bool
	}{
		"fewer":                        {nil, true},
		"one that can be looked up":    {[]contract.Node{known, added}, true},
		"one that can't be looked up":  {[]contract.Node{known, added, unknown}, false},
		"the same, in another order":   {[]contract.Node{added, known}, true},
		"one without a name, as by IP": {[]contract.Node{known, {IP: "10.0.0.9", Port: 11211}}, true},
	} {
		if got := resolves(t.Context(), before, &contract.List{Version: 2, Nodes: test.nodes}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	l := &list{}
	for range 2 {
		if !l.holds(2) {
			t.Error("it isn't held")
		}
	}
	if l.heldSince = time.Now().Add(-namesWithin); l.holds(2) || !l.holds(3) {
		t.Error("it is held for ever, or the next one isn't")
	}
}
