package status

import (
	"fmt"
	"math"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/routing"
)

// routingStable tells whether a scale-down changes only where the keys of the
// members that leave are looked for: the one that runs, else the next one.
func routingStable(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionRoutingStable
	if in.Cluster.Spec.Storage == nil {
		return condition(kind, true, cachev1alpha1.ReasonNoStorage, "without storage nothing is drained")
	}
	client := string(in.Cluster.Spec.Routing.Client)
	from, to := scaleDown(in, s)
	share := movesOthers(client, from, to)
	if share == 0 {
		return condition(kind, true, cachev1alpha1.ReasonConsistent,
			"clients of %s look elsewhere only for the keys of members that leave", client)
	}
	return condition(kind, false, cachev1alpha1.ReasonOtherKeysMove,
		"from %d to %d members, clients of %s look elsewhere for about %.0f%% of all keys although the members that hold them stay: "+
			"these keys are misses until they are stored anew", from, to, client, math.Max(1, 100*share))
}

// scaleDown returns the numbers of members before and after the scale-down that
// runs, else before and after the next one.
func scaleDown(in *Input, s *cachev1alpha1.MemcachedStatus) (from, to int32) {
	size := *in.Cluster.Spec.Size
	from = max(size, s.Size)
	for _, d := range s.Drains {
		from = max(from, d.Ordinal+1)
	}
	if from > size {
		return from, size
	}
	return size, size - 1
}

// scaling is a scale-down of a client's list of servers.
type scaling struct {
	client   string
	from, to int32
}

// shares remembers what movesOthers computed: a few numbers for each client and
// size there is.
var shares sync.Map // scaling to float64

// movesOthers is the share of keys, from 0 to 1, whose member stays and isn't
// asked for them any more. It is computed for members of any name: their real
// ones change it by less than the sample's error, and never from or to 0.
func movesOthers(client string, from, to int32) float64 {
	if to < 1 {
		return 0 // nobody is left to be asked
	}
	key := scaling{client, from, to}
	if share, ok := shares.Load(key); ok {
		return share.(float64)
	}
	servers := make([]routing.Server, from)
	for i := range servers {
		servers[i] = routing.Server{Host: fmt.Sprintf("cache-%d.cache.default.svc", i), Port: routing.DefaultPort}
	}
	share, err := routing.MovesOthers(client, servers, servers[:to])
	if err != nil {
		return 0 // an unknown client, which the API doesn't take
	}
	shares.Store(key, share)
	return share
}
