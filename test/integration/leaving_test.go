package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// patient is a cluster whose leaving members wait for their clients.
func patient() *apitest.MemcachedBuilder { return apitest.MakeMemcached(name).Patience(time.Minute) }

// TestPatienceWhereNoneIsGiven checks that the default is more than the minute after which most libraries ask
// for the list.
func TestPatienceWhereNoneIsGiven(t *testing.T) {
	w := newWorld(t)
	m := apitest.MakeMemcached(name).Namespace(w.namespace).Storage("1Gi").Obj()
	if err := admin.Create(t.Context(), m, client.DryRunAll); err != nil || m.Spec.Routing.Patience == nil || m.Spec.Routing.Patience.Duration != 90*time.Second {
		t.Errorf("%+v: %v", m.Spec.Routing.Patience, err)
	}
}

// ofLeaving lets the movers of leaving members follow the script, and all other drainers succeed with one item.
func ofLeaving(script player.Script) player.Script {
	return func(d player.Drainer) player.Act {
		if d.Source != "" && !slices.ContainsFunc(d.Servers, func(s string) bool { return strings.HasSuffix(s, d.Source) }) {
			return script(d)
		}
		return player.Succeed(1)(d)
	}
}

// leaves waits until the member is leaving and off the list, and its mover runs.
func (w *world) leaves(ordinal int32) {
	w.Helper()
	w.eventually("a mover", func() error {
		if len(w.moves()) == 0 {
			return errors.New("no Job")
		}
		return errors.Join(w.serverCount(ordinal), w.drainIs(ordinal, cachev1alpha1.DrainLeaving, ""))
	})
}

// serverCount returns an error unless status names so many servers.
func (w *world) serverCount(want int32) error {
	if m := w.memcached(); m == nil || len(m.Status.Servers) != int(want) {
		return fmt.Errorf("clients are not told of %d servers", want)
	}
	return nil
}

func (w *world) replicas(want int32) error {
	if s := w.statefulSet(); s == nil || *s.Spec.Replicas != want {
		return fmt.Errorf("the StatefulSet is %s", asJSON(s))
	}
	return nil
}

func TestALeavingMemberRunsOnWhileItsItemsAreMoved(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(patient(), 3)
	claim := w.claim(2)
	kubes.Play(w.namespace, ofLeaving(player.Hang))
	w.scale(2)
	w.leaves(2)
	if args := w.moves()[0].Spec.Template.Spec.Containers[0].Command; !slices.Contains(args, "--patience=1m0s") {
		t.Errorf("the mover is %q", args)
	}
	w.always("the member runs on", func() error { return w.replicas(3) })

	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	w.claimGone(2, claim.UID)
	m := w.settled(2)
	if last := m.Status.LastDrains; len(last) != 1 || last[0].Moved != 7 || last[0].Found != 1 {
		t.Errorf("the last drains are %s", asJSON(last))
	}
	w.eventsOnce("Moved", "Drained", "Released")
	equal(w, "Jobs that are left", len(w.jobs()), 0)
}

// Several things end the move early. Then the member leaves as without patience, and its volume is drained.
func TestALeavingMemberLeavesAtOnce(t *testing.T) {
	tier.Second(t, "TestAMemberWhoseClaimIsDeletedLeavesAtOnce")
	for what, happens := range map[string]func(w *world){
		"its mover fails": func(w *world) {
			kubes.Play(w.namespace, ofLeaving(player.Fail(contract.ExitUsage, "BadArguments", "no such flag")))
		},
		"a person deletes its mover":   func(w *world) { j := w.moves()[0]; w.delete(&j) },
		"its pod is lost":              func(w *world) { kubes.Unready(w.namespace, true); w.delete(w.pod("cache-2")) },
		"patience is taken away":       func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"patience":"0s"}}}`) },
		"move is switched off":         func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"moves":"Off"}}}`) },
		"a person gives its items up":  func(w *world) { w.annotate(2, cachev1alpha1.DrainSkip) },
		"the routing changes":          func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"client":"gomemcache"}}}`) },
		"a person wants more members":  func(w *world) { w.scale(3) },
		"a person wants fewer members": func(w *world) { kubes.Play(w.namespace, player.Succeed(1)); w.scale(1) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.storageCluster(patient(), 3)
			claim := w.claim(2)
			kubes.Play(w.namespace, ofLeaving(player.Hang))
			w.scale(2)
			w.leaves(2)
			happens(w)
			w.claimGone(2, claim.UID)
			kubes.Unready(w.namespace, false)
			w.settled(*w.memcached().Spec.Size)
		})
	}
}

func TestAllStopWhileAMemberIsLeaving(t *testing.T) {
	tier.Second(t, "TestHibernateKeepsTheClaimsAndResumesOnThem")
	w := newWorld(t)
	w.storageCluster(patient(), 3)
	kubes.Play(w.namespace, ofLeaving(player.Hang))
	w.scale(2)
	w.leaves(2)
	w.scale(0)
	w.eventually("no members", func() error { return w.replicas(0) })
	w.scale(2)
	w.settled(2)
}

func TestAClusterIsDeletedWhileAMemberIsLeaving(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	w := newWorld(t)
	w.storageCluster(patient(), 3)
	kubes.Play(w.namespace, ofLeaving(player.Hang))
	w.scale(2)
	w.leaves(2)
	w.delete(w.memcached())
	w.eventually("it is gone", func() error { return deleted(w) })
}
