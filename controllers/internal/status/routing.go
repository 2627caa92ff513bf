package status

import (
	"math"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
)

// keysElsewhere: a scale-down, the present or the next one, changes where clients look for keys of
// survivors, too, or the clients hash addresses.
func keysElsewhere(in *Input, s *cachev1alpha1.MemcachedStatus) *cachev1alpha1.Advice {
	client := in.Cluster.Spec.Routing.RingClient()
	from, to := scaleDown(in, s)
	before, after := build.RingOf(in.Cluster, from), build.RingOf(in.Cluster, to)
	share := ring.Share(before, after)
	switch {
	case share == 0 && after.Fragile():
		return advise(cachev1alpha1.ReasonAddressesHashed,
			"clients of %s hash the members' IP addresses, so they look elsewhere for some keys when a member gets a new pod", client)
	case share == 0 || routersFindAll(in.Cluster):
		return nil
	}
	then := "these keys are misses until their items are moved"
	if in.Cluster.Spec.Routing.Moves == cachev1alpha1.MovesOff {
		then = "these keys are misses until they are stored again"
	}
	return advise(cachev1alpha1.ReasonOtherKeysMove,
		"from %d to %d members, clients of %s look elsewhere for about %.0f%% of all keys although the members that have them stay: %s",
		from, to, client, math.Max(1, 100*share), then)
}

// routersFindAll tells whether only routers call the members, and look at the old owner of a key, too,
// until its item is moved.
func routersFindAll(c *cachev1alpha1.Memcached) bool {
	return build.RoutersExclusive(c) && c.Spec.Routing.Moves != cachev1alpha1.MovesOff && build.Patience(c) > 0
}

// scaleDown returns the numbers of members before and after the present scale-down, or else before
// and after the next one.
func scaleDown(in *Input, s *cachev1alpha1.MemcachedStatus) (from, to int32) {
	size := *in.Cluster.Spec.Size
	from = max(size, s.Size)
	for _, d := range s.Drains {
		from = max(from, d.Ordinal+1)
	}
	if from > size {
		return from, size
	}
	return size, max(0, size-1)
}
