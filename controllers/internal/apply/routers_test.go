package apply

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/drainer/contract"
)

// A table says that all routers had acknowledged the table before only if they were asked about
// exactly that table, and only if all routers that may serve have answered. A table names the operator that wrote
// it.
func TestATableSaysWhetherTheOneBeforeWasAcknowledged(t *testing.T) {
	now := contract.NumberTime(10_000)
	cluster := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }).Obj()
	config := func(number int64) *corev1.ConfigMap {
		text := build.RouterTableText(build.RouterTable(cluster, nil, contract.RingStable, 2, 0, nil, number))
		return &corev1.ConfigMap{Data: map[string]string{build.RouterTableKey: text}}
	}
	first, _ := (&run{cluster: cluster, present: &observe.Objects{Routers: observe.Routers{Acknowledged: true}}, now: now}).tableOf(action.WriteTable{State: contract.RingStable, ListSize: 2}, nil)
	if first.Acknowledged {
		t.Errorf("the first table: %+v", first)
	}
	for name, test := range map[string]struct {
		asked                int64 // the number of the table that the cache has
		acknowledged, silent bool
		want                 bool
	}{
		"acknowledged":                       {1000, true, false, true},
		"not acknowledged":                   {1000, false, false, false},
		"a router is silent":                 {1000, true, true, false},
		"the API server has a newer table":   {900, true, false, false},
		"the cache has no table that counts": {0, true, false, false},
	} {
		present := &observe.Objects{}
		present.Routers.Signer = "this operator"
		present.Routers.Acknowledged, present.Routers.Silent = test.acknowledged, test.silent
		if test.asked > 0 {
			present.Routers.Told = build.RouterTableIn(cluster, config(test.asked))
		}
		r := &run{cluster: cluster, present: present, now: now}
		got, differs := r.tableOf(action.WriteTable{State: contract.RingPrepare, ListSize: 3}, config(1000))
		if !differs || got.Before != 1000 || got.Acknowledged != test.want || got.Signer != "this operator" {
			t.Errorf("%s: %+v, differs=%t", name, got, differs)
		}
		// The text stays the same, even if another operator asks later.
		present.Routers.Signer = "another operator"
		written := &corev1.ConfigMap{Data: map[string]string{build.RouterTableKey: build.RouterTableText(got)}}
		present.Routers.Acknowledged, r.now = !test.acknowledged, now.Add(time.Minute)
		if again, differs := r.tableOf(action.WriteTable{State: contract.RingPrepare, ListSize: 3}, written); differs || again.Acknowledged != test.want || again.Signer != got.Signer {
			t.Errorf("%s: then %+v, differs=%t", name, again, differs)
		}
	}
}

// A table that another client has signed is written again in any state, with the operator's
// signature.
func TestATableThatAStrangerHasSignedIsWrittenAnew(t *testing.T) {
	now := contract.NumberTime(10_000)
	cluster := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }).Obj()
	stable := build.RouterTable(cluster, nil, contract.RingStable, 3, 0, nil, 999)
	present := &observe.Objects{}
	present.Routers.Signer = "this operator"
	r := &run{cluster: cluster, present: present, now: now}
	for _, state := range []contract.RingState{contract.RingStable, contract.RingPrepare} {
		written := build.RouterTable(cluster, nil, state, 2, 0, stable, 1000)
		written.Signer = "stranger"
		config := &corev1.ConfigMap{Data: map[string]string{build.RouterTableKey: build.RouterTableText(written)}}
		for _, byOther := range []bool{false, true} {
			present.Routers.SignedByOther = byOther
			got, differs := r.tableOf(action.WriteTable{State: state, ListSize: 2}, config)
			if differs != byOther || differs && (got.Number <= 1000 || got.Before != 1000 || got.Signer != "this operator" || got.State != state) {
				t.Errorf("%s, byOther=%t: %+v, differs=%t", state, byOther, got, differs)
			}
		}
	}
}

// A table that another client wrote is not used, but the numbers continue from it, because routers
// may have read it.
func TestATableOfOtherServersIsWrittenAnew(t *testing.T) {
	now := contract.NumberTime(10_000)
	cluster := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }).Obj()
	told := build.RouterTable(cluster, nil, contract.RingStable, 3, 0, nil, 9000)
	prepare := build.RouterTable(cluster, nil, contract.RingPrepare, 2, 0, told, 9001)
	forged := *prepare
	forged.Number, forged.State, forged.New = 20_000, contract.RingSettle, contract.Ring{Servers: []string{"stranger:11211"}}
	present := &observe.Objects{}
	present.Routers.Told = prepare
	r := &run{cluster: cluster, present: present, now: now}
	got, differs := r.tableOf(action.WriteTable{State: contract.RingPrepare, ListSize: 2}, &corev1.ConfigMap{Data: map[string]string{build.RouterTableKey: build.RouterTableText(&forged)}})
	want := *prepare
	want.Number, want.Before = 20_001, 9001
	if diff := cmp.Diff(&want, got); !differs || diff != "" {
		t.Errorf("differs=%t, -want +got:\n%s", differs, diff)
	}
}
