package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/memcached-operator/controllers/internal/claims"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TestAdviceTellsWhichKeysAScaleDownLoses: keys of survivors, which no drain brings.
func TestAdviceTellsWhichKeysAScaleDownLoses(t *testing.T) {
	routedBy := func(client string) func(*Input) {
		return func(in *Input) { in.Cluster.Spec.Routing.Client = cachev1alpha1.Client(client) }
	}
	exclusive := func(in *Input) {
		in.Cluster.Spec.Router, in.Cluster.Spec.Routing.Patience = &cachev1alpha1.RouterSpec{Exclusive: true}, &metav1.Duration{Duration: time.Minute}
	}
	stable := func(in *Input) { in.Cluster.Spec.Routing.Addresses = cachev1alpha1.AddressesStable }
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
	}{
		"the next one, consistent":  {input(10).with(routedBy("dalli")), "", ""},
		"by names and addresses":    {input(3).with(routedBy("evcache")), cachev1alpha1.ReasonAddressesHashed, "evcache"},
		"by those that stay":        {input(3).with(routedBy("evcache")).with(stable), "", ""},
		"spymemcached's ketama":     {input(3).with(routedBy("spymemcached-ketama")), cachev1alpha1.ReasonAddressesHashed, "spymemcached-ketama"},
		"and addresses that stay":   {input(3).with(routedBy("spymemcached-ketama")).with(stable), "", ""},
		"the next one, by modulo":   {input(10).with(routedBy("gomemcache")), cachev1alpha1.ReasonOtherKeysMove, "from 10 to 9 members, clients of gomemcache look elsewhere for about 80%"},
		"the one that runs":         {input(3).with(routedBy("gomemcache")).leaving(3, claims.Draining, "", "").leaving(4, claims.Waiting, "", ""), cachev1alpha1.ReasonOtherKeysMove, "from 5 to 3"},
		"from four to half":         {input(2).with(routedBy("gomemcache")).leaving(2, claims.Draining, "", "").leaving(3, claims.Waiting, "", ""), "", ""},
		"of two, nothing is to mix": {input(2).with(routedBy("gomemcache")), "", ""},
		"of one":                    {input(1).with(routedBy("gomemcache")), "", ""},
		"to none":                   {input(0).with(routedBy("gomemcache")), "", ""},
		"routers find all":          {input(10).with(routedBy("gomemcache")).with(exclusive), "", ""},
		"beside routers":            {input(10).with(routedBy("gomemcache")).with(func(in *Input) { in.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{} }), cachev1alpha1.ReasonOtherKeysMove, "from 10 to 9"},
		"routers, and nothing is moved": {
			input(10).with(routedBy("gomemcache")).with(exclusive).with(func(in *Input) { in.Cluster.Spec.Routing.Moves = cachev1alpha1.MovesOff }), cachev1alpha1.ReasonOtherKeysMove, "stored again",
		},
		"routers, and members leave at once": {
			input(10).with(routedBy("gomemcache")).with(exclusive).with(func(in *Input) { in.Cluster.Spec.Routing.Patience = &metav1.Duration{} }), cachev1alpha1.ReasonOtherKeysMove, "from 10 to 9",
		},
		"a ring that is denser now": {input(25).with(routedBy("twemproxy")), cachev1alpha1.ReasonOtherKeysMove, "about 2%"},
	} {
		t.Run(name, func(t *testing.T) {
			advice := compute(t, test.in).Advice
			for _, reason := range []string{cachev1alpha1.ReasonAddressesHashed, cachev1alpha1.ReasonOtherKeysMove} {
				want := ""
				if reason == test.reason {
					want = test.message
				}
				checkAdvice(t, advice, reason, want)
			}
		})
	}
}
