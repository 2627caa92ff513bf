package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// Two drains within minutes have events of the same reason. A recorder of client-go would count these as one.
func TestEachDrainHasItsEventsInOrderAndOnce(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, player.Succeed(3))
	w.scale(1)
	w.settled(1)
	w.quiet()
	one := []string{"DrainStarted", "Drained", "Released"}
	want := map[string][]string{claimName(2): one, claimName(1): one}
	w.eventually("the events of two drains", func() error {
		events := w.events()
		// The order is that of their names, as in kubectl describe.
		slices.SortFunc(events, func(a, b eventsv1.Event) int { return strings.Compare(a.Name, b.Name) })
		got := map[string][]string{}
		for _, e := range events {
			if e.Related == nil {
				continue // the event is not about a claim
			}
			if e.Series != nil || !strings.Contains(e.Note, e.Related.Name) {
				return fmt.Errorf("event %s is about %s: %s", e.Name, e.Related.Name, asJSON(e))
			}
			got[e.Related.Name] = append(got[e.Related.Name], e.Reason)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func TestEachDrainThatFailsSaysSoOnce(t *testing.T) {
	tier.Second(t, "TestFailedDrainKeepsTheClaimAndItsPodsUntilARetry")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).Parallelism(2), 4)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
	w.scale(2)
	w.eventually("an event for each of two drains that failed", func() error {
		failed := map[string]int{}
		for _, e := range w.events() {
			if e.Reason != cachev1alpha1.ReasonDrainFailed {
				continue
			}
			if e.Related == nil || e.Series != nil || !strings.Contains(e.Note, e.Related.Name+": SourceCorrupt") {
				return fmt.Errorf("%s", asJSON(e))
			}
			failed[e.Related.Name]++
		}
		if diff := cmp.Diff(map[string]int{claimName(2): 1, claimName(3): 1}, failed); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}
