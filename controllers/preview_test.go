package controllers

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/forecast"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/drainer/routing"
)

// Items lie where the library of the spec stores them. A forecast knows only how many each member has; each
// flow has to be the number of items that the library really looks for elsewhere, within a twentieth.
func TestAForecastIsWithinATwentiethOfWhatMoves(t *testing.T) {
	for name, test := range map[string]struct {
		from, to int32
		change   func(*cachev1alpha1.MemcachedSpec)
	}{
		"3 to 2":         {3, 2, func(*cachev1alpha1.MemcachedSpec) {}},
		"2 to 3":         {2, 3, func(*cachev1alpha1.MemcachedSpec) {}},
		"another client": {3, 3, func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "pymemcache" }},
		"modulo, 3 to 2": {3, 2, func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "gomemcache" }},
		"hashed address": {3, 2, func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "spymemcached-ketama" }},
		"another memory": {3, 3, func(s *cachev1alpha1.MemcachedSpec) { s.Memory = ptr.To(resource.MustParse("128Mi")) }},
	} {
		t.Run(name, func(t *testing.T) {
			before := apitest.MakeMemcached("cache").Namespace("shop").Size(test.from).Storage("1Gi").Defaulted().Obj()
			after := before.DeepCopy()
			test.change(&after.Spec)
			if after.Spec.Routing.Client != before.Spec.Routing.Client && test.from != test.to {
				before.Spec.Routing.Client = after.Spec.Routing.Client
			}
			after.Spec.Size = &test.to
			p := &preview{before: before, after: after, holds: map[string]Holds{}}
			was, is := lists(t, before, test.from), lists(t, after, test.to)
			actual := map[[2]int]Holds{}
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 60_000 {
				key := fmt.Appendf(nil, "user:%x:profile", random.Uint64())
				one := Holds{Items: 1, Bytes: int64(100 + i%900)}
				from, to := was.Owner.Owner(key), is.Owner.Owner(key)
				h := p.holds[build.PodName("cache", int32(from))]
				h.Add(one)
				p.holds[build.PodName("cache", int32(from))] = h
				if from != to {
					sum := actual[[2]int{from, to}]
					sum.Add(one)
					actual[[2]int{from, to}] = sum
				}
			}
			p.flows(&forecast.Change{From: build.RingOf(before, test.from), To: build.RingOf(after, test.to), Before: was, After: is})
			if len(p.Flows) != len(actual) {
				t.Errorf("%d flows, want %d: %v", len(p.Flows), len(actual), p.Flows)
			}
			for pair, want := range actual {
				from, to := build.PodName("cache", int32(pair[0])), build.PodName("cache", int32(pair[1]))
				for _, got := range p.Flows {
					if got.From == from && got.To == to && (off(got.Items, want.Items) > 0.05 || off(got.Bytes, want.Bytes) > 0.05) {
						t.Errorf("%s to %s: forecast %+v, moved %+v", from, to, got.Holds, want)
					}
				}
			}
		})
	}
}

func off(got, want int64) float64 { return math.Abs(float64(got-want)) / float64(want) }

// shrinks is the change from size members to the size of the spec.
func shrinks(t *testing.T, m *cachev1alpha1.Memcached, size int32) *forecast.Change {
	t.Helper()
	from, to := build.RingOf(m, size), build.RingOf(m, *m.Spec.Size)
	return &forecast.Change{From: from, To: to, Before: lists(t, m, from.Size), After: lists(t, m, to.Size)}
}

func lists(t *testing.T, c *cachev1alpha1.Memcached, size int32) routing.List {
	t.Helper()
	l, err := forecast.List(t.Context(), c, build.RingOf(c, size), func(_ context.Context, host string) ([]netip.Addr, error) {
		return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, host[len("cache-")]})}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAForecastSaysWhatDoesNotFit(t *testing.T) {
	m := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").Defaulted().Obj()
	full := Holds{Items: 60_000, Bytes: 60 << 20, Limit: 64 << 20}
	p := &preview{before: m, after: m, holds: map[string]Holds{"cache-0": full, "cache-1": full, "cache-2": full}}
	p.flows(shrinks(t, m, 3))
	// 180 MiB into 128 MiB.
	if off(p.Evicted.Bytes, 52<<20) > 0.05 || off(p.Evicted.Items, 52_000) > 0.05 {
		t.Errorf("evicted: %+v", p.Evicted)
	}
	if !p.Loses() {
		t.Error("it loses nothing")
	}
	for policy, part := range map[cachev1alpha1.DrainPolicy]*Holds{cachev1alpha1.PolicyRetain: &p.Retained, cachev1alpha1.PolicyDelete: &p.Lost} {
		m.Spec.Drain.Policy = policy
		p.Forecast = Forecast{}
		if p.flows(shrinks(t, m, 3)); off(part.Items, 60_000) > 0.01 || len(p.Flows) > 0 {
			t.Errorf("%s: %+v", policy, p.Forecast)
		}
	}
}

// A member that can't be asked may have items: a script that goes by the exit code must not take them for none.
func TestAForecastCountsAMemberThatWasNotAskedAsFull(t *testing.T) {
	m := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").Defaulted().Obj()
	for policy, loses := range map[cachev1alpha1.DrainPolicy]bool{cachev1alpha1.PolicyDrain: false, cachev1alpha1.PolicyRetain: false, cachev1alpha1.PolicyDelete: true} {
		m.Spec.Drain.Policy = policy
		p := &preview{before: m, after: m, holds: map[string]Holds{"cache-0": {Items: 1}, "cache-1": {Items: 1}}}
		if p.flows(shrinks(t, m, 3)); p.Loses() != loses || loses && !slices.Equal(p.Uncounted, []string{"cache-2"}) {
			t.Errorf("%s: it loses items: %t, %+v", policy, p.Loses(), p.Forecast)
		}
	}
	plain := apitest.MakeMemcached("cache").Namespace("shop").Size(1).Defaulted().Obj()
	pod := func(name string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
	}
	p := &preview{before: plain, after: plain, holds: map[string]Holds{"cache-b": {}}, State: &observe.State{}}
	p.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}}
	p.Pods = []corev1.Pod{pod("cache-a", corev1.PodRunning), pod("cache-b", corev1.PodRunning), pod("cache-c", corev1.PodPending)}
	if p.plainItems(); p.Loses() {
		t.Errorf("none leaves, and it loses items: %+v", p.Forecast)
	}
	p.Leave = []string{"cache-2"}
	if p.plainItems(); !p.Loses() || !slices.Equal(p.Uncounted, []string{"cache-a"}) {
		t.Errorf("without storage: %+v", p.Forecast)
	}
}
