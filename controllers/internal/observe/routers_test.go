package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// A state waits for routers that may have an older table, also for a starting router, because the
// table is mounted before its pod runs.
func TestRoutersThatStartHoldAStateUp(t *testing.T) {
	const number = 1000
	written := contract.NumberTime(number)
	now := written.Add(10 * time.Second)
	pod := func(phase corev1.PodPhase, change func(p *corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "router", UID: "uid", CreationTimestamp: metav1.NewTime(written.Add(-time.Hour))}}
		p.Status.Phase, p.Spec.NodeName = phase, "node"
		change(&p)
		return p
	}
	same := func(*corev1.Pod) {}
	runs := func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }
	deletedAt := func(at time.Time) func(p *corev1.Pod) {
		return func(p *corev1.Pod) { d := metav1.NewTime(at); p.DeletionTimestamp = &d }
	}
	for name, test := range map[string]struct {
		state contract.RingState
		pod   corev1.Pod
		since time.Time // zero: the router is not behind
	}{
		"it starts":                     {contract.RingPrepare, pod(corev1.PodPending, same), written},
		"it starts, in a later state":   {contract.RingFinish, pod(corev1.PodPending, same), written},
		"it runs, and has no address":   {contract.RingMove, pod(corev1.PodRunning, same), written},
		"it came after the table":       {contract.RingPrepare, pod(corev1.PodPending, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }), now},
		"nothing changes":               {contract.RingStable, pod(corev1.PodPending, same), time.Time{}},
		"it has no node":                {contract.RingPrepare, pod(corev1.PodPending, func(p *corev1.Pod) { p.Spec.NodeName = "" }), time.Time{}},
		"it has ended":                  {contract.RingPrepare, pod(corev1.PodFailed, same), time.Time{}},
		"its time is over":              {contract.RingPrepare, pod(corev1.PodPending, deletedAt(now.Add(-time.Second))), written},
		"it starts, and is to end":      {contract.RingPrepare, pod(corev1.PodPending, deletedAt(now.Add(time.Second))), written},
		"it runs, and is asked":         {contract.RingPrepare, pod(corev1.PodRunning, runs), written},
		"it runs, and nothing changes":  {contract.RingStable, pod(corev1.PodRunning, runs), written},
		"its node doesn't say it ended": {contract.RingPrepare, pod(corev1.PodRunning, deletedAt(now.Add(-time.Hour))), written},
	} {
		t.Run(name, func(t *testing.T) {
			o := &State{Cluster: testCluster(), Now: now}
			o.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{}
			stable := build.RouterTable(o.Cluster, nil, contract.RingStable, 2, 0, nil, 1)
			table := stable
			for s := contract.RingStable; s <= test.state; s++ {
				table = build.RouterTable(o.Cluster, nil, s, 3, 0, table, number)
			}
			o.Routers.Told = table
			o.Routers.Pods = []corev1.Pod{test.pod}
			r := &Reader{Rings: ask.NewRouters(func(context.Context, string, *ask.SignedTable) (contract.RingAcknowledged, error) {
				return contract.RingAcknowledged{}, errors.New("no answer")
			}, func(types.NamespacedName) {})}
			r.observeRings(client.ObjectKeyFromObject(o.Cluster), o)
			behind, want := len(o.Routers.Behind) > 0, !test.since.IsZero()
			if behind != want || o.Routers.Acknowledged == want {
				t.Fatalf("behind are %+v, acknowledged=%t", o.Routers.Behind, o.Routers.Acknowledged)
			}
			asked := strings.HasPrefix(name, "it runs, and is") || strings.HasPrefix(name, "it runs, and nothing")
			if serves := want || name == "nothing changes"; o.Routers.Silent != (serves && !asked) {
				t.Errorf("silent=%t", o.Routers.Silent)
			}
			if want && !asked && !o.Routers.Behind[0].Since.Equal(test.since) {
				t.Errorf("it is behind since %v, want %v", o.Routers.Behind[0].Since, test.since)
			}
			if want && o.Routers.Behind[0].Pod != "router" {
				t.Error(fmt.Sprint(o.Routers.Behind))
			}
		})
	}
}

// A table whose number is ahead of the clock counts from when the operator first saw it, so no step
// waits until the clock reaches the number.
func TestATableFromTheFutureIsAsOldAsItIsKnown(t *testing.T) {
	now := time.Now()
	o := &State{Cluster: testCluster(), Now: now}
	o.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{}
	o.Routers.Told = build.RouterTable(o.Cluster, nil, contract.RingStable, 2, 0, nil, contract.NumberAt(now.Add(time.Hour)))
	r := &Reader{Rings: ask.NewRouters(func(context.Context, string, *ask.SignedTable) (contract.RingAcknowledged, error) {
		return contract.RingAcknowledged{}, nil
	}, func(types.NamespacedName) {})}
	r.observeRings(client.ObjectKeyFromObject(o.Cluster), o)
	if !o.Routers.Since.Equal(now) {
		t.Errorf("first it is of %v, want %v", o.Routers.Since, now)
	}
	o.Now = now.Add(time.Minute)
	r.observeRings(client.ObjectKeyFromObject(o.Cluster), o)
	if age := o.Now.Sub(o.Routers.Since); age < 50*time.Second || age > time.Minute {
		t.Errorf("then it is %v old", age)
	}
	o.Routers.Told.Number = contract.NumberAt(now.Add(-time.Hour))
	r.observeRings(client.ObjectKeyFromObject(o.Cluster), o)
	if want := contract.NumberTime(o.Routers.Told.Number); !o.Routers.Since.Equal(want) {
		t.Errorf("one of the past is of %v, want %v", o.Routers.Since, want)
	}
}
