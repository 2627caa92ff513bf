package routing

import (
	"os/exec"
	"strconv"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
)

// When a member is back with its items, a client that has stored keys of it elsewhere finds older values.
// docs/clients.md says what keeps a client from that.
func TestKeysOfAMemberThatIsAwayAreStoredNowhereElse(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // Debian's, which has Debian's packages
	tier.Needs(t, "python3-pymemcache, python3-memcache", exec.CommandContext(t.Context(), python, "-c", "import pymemcache, memcache").Run())
	away := "127.0.0.1:" + strconv.Itoa(memcachedtest.FreePort(t))
	for _, library := range []string{"pymemcache", "python-memcached"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			here := memcachedtest.Start(t).Address()
			if out, err := exec.CommandContext(t.Context(), python, "testdata/away.py", library, here, away).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
