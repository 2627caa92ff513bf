package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/test/tier"
)

// The plan of a change of warmFrom says what happens, in order. It knows no sizes.
func TestThePlanSaysHowAClusterIsFilled(t *testing.T) {
	tier.Second(t, "TestThePlanThatIsShownIsWhatHappens")
	limit := int64(500)
	discovery := &cachev1alpha1.WarmSource{Discovery: "endpoint:11211", Routing: &cachev1alpha1.WarmRouting{Client: "dalli"}}
	volumes := &cachev1alpha1.WarmSource{Volumes: &cachev1alpha1.WarmVolumes{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"backup": "monday"}}}}
	with := func(from *cachev1alpha1.WarmSource, change func(*cachev1alpha1.WarmSource)) *cachev1alpha1.WarmSource {
		from = from.DeepCopy()
		change(from)
		return from
	}
	for name, test := range map[string]struct {
		before, after *cachev1alpha1.WarmSource
		claims        []string
		listed        int
		warming       plan.WarmState
		copied        bool
		// want has a word of each sentence, in order.
		want []string
	}{
		"no source": {},
		"no change": {before: discovery, after: discovery},
		"a source":  {after: discovery, want: []string{"clients use the members", "asks it for its servers, and lists", "until a pass brings less", "after 24h0m0s without it"}},
		"a new cluster": {after: with(discovery, func(s *cachev1alpha1.WarmSource) { s.Until, s.Patience = cachev1alpha1.WarmReady, &metav1.Duration{} }),
			want: []string{"told of no member", "ListingRefused", "until a pass", "a kubectl mc skip"}},
		"a cluster with clients": {after: with(discovery, func(s *cachev1alpha1.WarmSource) { s.Until = cachev1alpha1.WarmReady }), listed: 2,
			want: []string{"changes nothing for them", "lists", "until a pass", "Ready"}},
		"slowly, and by routers": {after: with(discovery, func(s *cachev1alpha1.WarmSource) {
			s.OnMiss, s.OnShortage, s.RateLimit = true, cachev1alpha1.ShortageProceed, &cachev1alpha1.RateLimit{ItemsPerSecond: &limit}
		}), want: []string{"clients use", "only the routers ask it; if the members have too little memory for that, the most recently used", "at most 500 items a second", "Ready", "routers restart: they ask it for what members miss"}},
		"claims":    {after: volumes, claims: []string{"monday-0", "monday-1"}, want: []string{"clients use", "a Job for each of 2 claims counts what it has (monday-0, monday-1); if", "claim by claim", "Ready"}},
		"one claim": {after: volumes, claims: []string{"monday-0"}, want: []string{"clients use", "a Job reads monday-0; if", "claim by claim", "Ready"}},
		"as many as fit": {after: with(volumes, func(s *cachev1alpha1.WarmSource) { s.OnShortage = cachev1alpha1.ShortageProceed }), claims: []string{"monday-0", "monday-1"},
			want: []string{"clients use", "a Job reads monday-0, monday-1; if", "claim by claim", "Ready"}},
		"it waits": {after: volumes, warming: plan.WarmState{Phase: plan.WarmWaits, Message: "selects no claim"}, want: []string{"waits: selects no claim", "clients use", "a Job reads", "claim by claim", "Ready"}},
		"copied already": {before: discovery, after: with(discovery, func(s *cachev1alpha1.WarmSource) { s.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: &limit} }), copied: true,
			want: []string{"nothing is copied: of endpoint:11211 the cluster is Warm, and kubectl mc warm cache copies again"}},
		"no source any more": {before: with(discovery, func(s *cachev1alpha1.WarmSource) { s.OnMiss = true }), want: []string{"what was copied from endpoint:11211 stays", "ask it no more"}},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(from *cachev1alpha1.WarmSource) *cachev1alpha1.Memcached {
				if from = from.DeepCopy(); from != nil && from.Patience == nil {
					from.Patience = &metav1.Duration{Duration: 24 * time.Hour}
				}
				c := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) { s.WarmFrom = from }).Defaulted().Obj()
				c.UID, c.Status.Servers = "uid", make([]string, test.listed)
				if test.copied {
					r := action.WarmRecord{UID: "uid", Source: build.WarmSource(c), Result: action.WarmCopied}
					c.Annotations = map[string]string{cachev1alpha1.AnnotationWarmed: r.String()}
				}
				return c
			}
			state := &observe.State{}
			state.Warm = &observe.Warm{}
			for _, claim := range test.claims {
				state.Warm.Claims = append(state.Warm.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}})
			}
			p := &preview{before: of(test.before), after: of(test.after), State: state, plan: plan.Plan{Warming: test.warming}}
			p.fill()
			fits := len(p.Fill) == len(test.want)
			for i := range min(len(p.Fill), len(test.want)) {
				fits = fits && strings.Contains(p.Fill[i], test.want[i])
			}
			if !fits {
				t.Errorf("it says\n%s\nwant\n%s", strings.Join(p.Fill, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
