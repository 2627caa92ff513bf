package forecast

import (
	"context"
	"fmt"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/routing"
)

// List is where the clients of a cluster look, by one of its rings.
func List(ctx context.Context, c *cachev1alpha1.Memcached, r ring.Ring, lookup routing.Lookup) (routing.List, error) {
	servers, err := routing.Resolve(ctx, r.Client, build.RingServers(c, r), lookup)
	if err != nil {
		return routing.List{}, err
	}
	owner, err := routing.New(r.Client, servers)
	if err == nil && r.KeyPrefix != "" {
		owner, err = routing.WithoutPrefix(r.Client, owner, r.KeyPrefix)
	}
	return routing.List{Servers: servers, Owner: owner}, err
}

// Change is a change of where clients look. The servers of both lists are the members of both rings, in order.
type Change struct {
	From, To      ring.Ring
	Before, After routing.List
	// MovesOff: members that stay keep items that clients look for elsewhere.
	MovesOff bool
}

// Owners returns a function that finds the members that own a key, before and after.
func (c *Change) Owners() func(key []byte) (was, is int32) {
	before, after := c.From.Members(), c.To.Members()
	return func(key []byte) (was, is int32) {
		return before[c.Before.Owner.Owner(key)], after[c.After.Owner.Owner(key)]
	}
}

// Part is a share of the items of member From, from 0 to 1, that goes to member To, or stays if To is From.
// Both are ordinals.
type Part struct {
	From, To int
	Share    float64
	// Missed: the part stays where clients no longer look.
	Missed bool
}

// How many keys Parts compares at most.
const (
	// Exact is enough for a share to be within a percent: a person waits for a plan.
	Exact = 100_000
	// Rough is for a reconcile, which has other clusters to see to.
	Rough = 16_384
)

// hashesPerKey is how many hashes a key takes at most, on average, if a client hashes each key for each server.
const hashesPerKey = 40

// Parts compares the lists by a sample of keys, at most as many as given, and returns where the items of each member go, in
// order. Items are counted at the members that have them: a share of a member's keys is that share of its items. elsewhere is
// the share of all keys that get another owner. If a client hashes each key for each server, there are fewer keys on more than
// 20 members.
func (c *Change) Parts(keys int) (parts []Part, elsewhere float64) {
	if routing.HashesEachServer(c.From.Client) || routing.HashesEachServer(c.To.Client) {
		keys = min(keys, keys*hashesPerKey/(len(c.Before.Servers)+len(c.After.Servers)))
	}
	counts, of := make([][]int, c.From.Size), make([]int, c.From.Size)
	for i := range counts {
		counts[i] = make([]int, c.To.Size)
	}
	others, owners := 0, c.Owners()
	for i := range keys {
		was, is := owners(fmt.Appendf(nil, "key:%d", i))
		counts[was][is]++
		of[was]++
		if was != is {
			others++
		}
	}
	for was := range counts {
		for is, n := range counts[was] {
			if n == 0 {
				continue
			}
			part := Part{From: was, To: is, Share: float64(n) / float64(of[was])}
			if c.MovesOff && was != is && c.To.Has(int32(was)) {
				part.To, part.Missed = was, true
			}
			parts = append(parts, part)
		}
	}
	return parts, float64(others) / float64(keys)
}
