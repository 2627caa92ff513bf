package integration

import (
	"errors"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
)

// leavingMoments are those of a scale-down from three to two: before holds the movers up, come waits for the
// moment, and over lets the movers go on.
var leavingMoments = map[string]struct{ before, come, over func(*world) }{
	"while a mover is prepared": {
		before: func(w *world) { kubes.HoldDrainers(w.namespace, true) },
		come:   func(w *world) { w.prepares(2) },
		over:   func(w *world) { kubes.HoldDrainers(w.namespace, false) },
	},
	"while a member is leaving": {
		before: func(w *world) { kubes.Play(w.namespace, ofLeaving(player.Hang)) },
		come:   func(w *world) { w.leaves(2) },
		over:   func(w *world) { kubes.Play(w.namespace, player.Succeed(100)) },
	},
}

// meanwhile are events at such a moment, and how they end.
var meanwhile = map[string]struct {
	happens func(*world)
	ended   func(*world) error
}{
	"all stop and resume":    {func(w *world) { w.scale(0); w.shrunkTo(0); w.scale(2) }, settledAt(2)},
	"the cluster is deleted": {func(w *world) { w.delete(w.memcached()) }, deleted},
	"its pod is lost":        {func(w *world) { w.losePod("cache-2"); w.shrunkTo(2) }, settledAt(2)},
	"its mover's Job is deleted": {func(w *world) {
		for _, j := range w.moves() {
			w.delete(&j)
		}
	}, settledAt(2)},
	"its mover fails": {func(w *world) {
		kubes.Play(w.namespace, ofLeaving(player.Fail(contract.ExitUsage, "BadArguments", "no such flag")))
		kubes.HoldDrainers(w.namespace, false)
		w.shrunkTo(2)
	}, settledAt(2)},
	"another routing": {
		func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"client":"gomemcache"}}}`) },
		func(w *world) error { return errors.Join(settledAt(2)(w), w.moved(2, "1")) },
	},
}

// leavingScenarios are those in which leaving members run on.
func leavingScenarios() map[string]scenario {
	all := map[string]scenario{
		"scale-down, discovery": {
			func(w *world) { w.storageCluster(patient().With(discovers), 3); w.toldAll(3, 3) },
			func(w *world) { w.scale(2) }, toldAndSettled(2),
		},
		"scale-up, discovery": {
			func(w *world) { w.storageCluster(apitest.MakeMemcached(name).With(discovers), 2); w.toldAll(2, 2) },
			func(w *world) { w.scale(3) }, toldAndSettled(3),
		},
		"scale-down of two, the members run on": {
			func(w *world) { w.storageCluster(patient(), 3) }, func(w *world) { w.scale(1) }, settledAt(1),
		},
		"scale-down of two, one is lost while they run on": {
			func(w *world) {
				w.storageCluster(patient(), 3)
				kubes.Play(w.namespace, ofLeaving(player.Hang))
			},
			func(w *world) {
				w.scale(1)
				// Both leave. But if the operator died between their claims, the second leaves after the first.
				w.eventually("a mover", func() error {
					if len(w.moves()) == 0 {
						return errors.New("no Job")
					}
					if w.serverCount(2) == nil && w.drainIs(2, cachev1alpha1.DrainLeaving, "") == nil {
						return nil
					}
					return errors.Join(w.serverCount(1), w.drainIs(1, cachev1alpha1.DrainLeaving, ""))
				})
				w.losePod("cache-1")
				kubes.Play(w.namespace, player.Succeed(100))
				w.shrunkTo(1)
			}, settledAt(1),
		},
	}
	for when, moment := range leavingMoments {
		for what, m := range meanwhile {
			all[what+" "+when] = scenario{
				func(w *world) { w.storageCluster(patient(), 3); moment.before(w) },
				func(w *world) {
					w.scale(2)
					moment.come(w)
					m.happens(w)
					kubes.Unready(w.namespace, false)
					moment.over(w)
				}, m.ended,
			}
		}
	}
	return all
}

// losePod deletes a member's pod. The next pod is not ready before the player allows it.
func (w *world) losePod(name string) {
	w.Helper()
	kubes.Unready(w.namespace, true)
	w.delete(w.pod(name))
}

// toldAndSettled is the end of a cluster whose members were also told of a list with that many.
func toldAndSettled(size int) func(*world) error {
	return func(w *world) error {
		_, err := w.told(size, size)
		return errors.Join(err, settledAt(int32(size))(w))
	}
}
