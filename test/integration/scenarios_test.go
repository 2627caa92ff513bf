package integration

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
)

// scenarios returns those in which every write is a crash point.
func scenarios() map[string]scenario {
	three := func(w *world) { w.storageCluster(apitest.MakeMemcached(name), 3) }
	all := map[string]scenario{
		"scale-down":        {three, func(w *world) { w.scale(2) }, settledAt(2)},
		"scale-down of two": {three, func(w *world) { w.scale(1) }, settledAt(1)},
		"scale-down, addresses stay": {
			func(w *world) { w.storageCluster(apitest.MakeMemcached(name).With(stably), 3) }, func(w *world) { w.scale(2) },
			func(w *world) error {
				if s := w.memberService(2); s == nil || s.Annotations[cachev1alpha1.AnnotationUnlisted] == "" {
					return fmt.Errorf("the Service of the member that left is %s", asJSON(s))
				}
				return settledAt(2)(w)
			},
		},
		"scale-down, routers": {
			func(w *world) {
				w.storageCluster(apitest.MakeMemcached(name).With(routed), 3)
				w.allRoutedTo(2, 3)
			}, func(w *world) { w.scale(2) }, routedAndSettled(2),
		},
		"scale-down, routers through all states": {
			func(w *world) {
				w.storageCluster(patient().With(routed), 3)
				w.allRoutedTo(2, 3)
			}, func(w *world) { w.scale(2) }, routedAndSettled(2),
		},
		"members step out for a roll-out": {
			func(w *world) { stepping(w, 2) }, (*world).otherMemory,
			func(w *world) error { return errors.Join(w.replacedAll(2), settledAt(2)(w)) },
		},
		"a member steps out for its eviction, and the budget goes and comes": {
			func(w *world) { evictedOut(w) }, func(w *world) {
				w.cordon(w.namespace+"-0", true)
				w.eventually("member 1 is out", func() error { return w.stepsAside(1) }) // a pod that has lost its label has no budget
				w.eventually("member 1 is evicted", func() error { return w.evict("cache-1") })
				w.eventually("member 1 is on another node", func() error { return w.on("cache-1", w.namespace+"-1") })
				w.change(w.memcached(), `{"spec":{"podDisruptionBudget":{"enabled":false,"evictions":null}}}`)
				w.eventually("there is no budget", func() error { return w.hasBudget(false) })
				w.change(w.memcached(), `{"spec":{"podDisruptionBudget":{"enabled":null}}}`)
			},
			func(w *world) error { return errors.Join(w.hasBudget(true), routedAndSettled(2)(w)) },
		},
		"scale-down, the member runs on": {
			func(w *world) { w.storageCluster(patient(), 3) }, func(w *world) { w.scale(2) }, settledAt(2),
		},
		"a cluster is filled before it is listed": {
			func(w *world) { kubes.Play(w.namespace, player.Succeed(5)) }, func(w *world) { w.create(warmedFrom(byHand()).Storage("128Mi").Size(2).Obj()) },
			func(w *world) error {
				if s := w.memcached().Status.Warm; s == nil || s.Phase != cachev1alpha1.WarmDone || s.Last.Jobs != 1 {
					return fmt.Errorf("the warming is %s", asJSON(s))
				}
				return settledAt(2)(w)
			},
		},
		"scale-down without volumes": {
			func(w *world) { w.inPods(patient(), 3) }, func(w *world) { w.scale(2) }, settledAt(2),
		},
		"scale-down and up without volumes, routers": {
			func(w *world) {
				w.inPods(patient().With(routed), 3)
				w.allRoutedTo(2, 3)
			}, func(w *world) {
				w.scale(2)
				w.eventually("two members, and the receipt in status", func() error {
					if len(w.memcached().Status.LastDrains) == 0 {
						return errors.New("there is none") // if an operator dies here, and the member returns, there will be none
					}
					return w.replicas(2)
				})
				w.scale(3)
			}, routedAndSettled(3),
		},
		"scale-down, then up while the member runs on": {
			func(w *world) {
				w.storageCluster(patient(), 3)
				kubes.Play(w.namespace, ofLeaving(player.Hang))
			},
			func(w *world) {
				w.scale(2)
				w.leaves(2)
				kubes.Play(w.namespace, player.Succeed(100))
				w.scale(3)
			}, settledAt(3),
		},
		"scale-down, then up while a mover is prepared": {
			func(w *world) {
				w.storageCluster(patient(), 3)
				kubes.HoldDrainers(w.namespace, true)
			},
			func(w *world) {
				w.scale(2)
				w.prepares(2)
				w.scale(3)
				kubes.HoldDrainers(w.namespace, false)
			}, settledAt(3),
		},
		"scale-down, then up": {three, func(w *world) {
			w.scale(2)
			w.shrunkTo(2)
			w.scale(3)
		}, settledAt(3)},
		"retry of a failed drain": {
			func(w *world) {
				three(w)
				kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
			},
			func(w *world) {
				w.scale(2)
				w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
				kubes.Play(w.namespace, player.Succeed(100))
				w.annotate(2, cachev1alpha1.DrainRetry)
			}, settledAt(2),
		},
		"rescue": {three, func(w *world) {
			kubes.Linger(w.namespace, true)
			w.scale(2)
			w.shrunkTo(2)
			w.delete(w.claim(2))
			kubes.Linger(w.namespace, false)
		}, settledAt(2)},
		"rescue of a member's claim": {three, func(w *world) {
			w.delete(w.claim(1))
			w.delete(w.pod("cache-1"))
		}, func(w *world) error { return errors.Join(w.drained(1), settledAt(3)(w)) }},
		"scale-up past a failed drain": {
			func(w *world) {
				three(w)
				kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
			},
			func(w *world) {
				w.scale(2)
				w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
				kubes.Play(w.namespace, player.Succeed(100))
				w.scale(3)
			}, func(w *world) error { return errors.Join(w.drained(2), settledAt(3)(w)) },
		},
		"deletion in the middle of a drain": {
			func(w *world) {
				three(w)
				kubes.Play(w.namespace, player.Hang)
			},
			func(w *world) {
				w.scale(2)
				w.drainRuns(w.claim(2).UID)
				w.delete(w.memcached())
			}, deleted,
		},
		"deletion with the claims": {
			func(w *world) {
				w.storageCluster(apitest.MakeMemcached(name).WhenDeleted(cachev1alpha1.DeletionDelete), 2)
			},
			func(w *world) { w.delete(w.memcached()) }, deleted,
		},
		"deletion that leaves the members": {
			three, func(w *world) { w.delete(w.memcached(), client.PropagationPolicy(metav1.DeletePropagationOrphan)) }, orphaned,
		},
		"a volume that can't be read is given up": {
			func(w *world) {
				w.storageCluster(apitest.MakeMemcached(name).OnUnrecoverable(cachev1alpha1.UnreadableRelease), 3)
				kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
			}, func(w *world) { w.scale(2) }, func(w *world) error {
				if w.claim(2) != nil {
					return errors.New("the claim is there")
				}
				return settledAt(2)(w)
			},
		},
		"volumes grow, then the members": {three, func(w *world) {
			w.change(w.memcached(), `{"spec":{"memory":"192Mi","storage":{"size":"256Mi"}}}`)
		}, func(w *world) error {
			if m := w.memoryOf(); m != "192" {
				return fmt.Errorf("-m %s", m)
			}
			return errors.Join(settledAt(3)(w), w.volumesHave(3, "256Mi"))
		}},
		"scale-up, then down": {
			func(w *world) {
				w.storageCluster(apitest.MakeMemcached(name), 1)
				kubes.Play(w.namespace, player.Hang)
			},
			func(w *world) {
				w.scale(2)
				w.condition(cachev1alpha1.ConditionMoving, "True", cachev1alpha1.ReasonMoving)
				w.scale(1)
				kubes.Play(w.namespace, player.Succeed(100))
			}, settledAt(1),
		},
		"another routing": {
			func(w *world) { w.storageCluster(apitest.MakeMemcached(name), 2) },
			func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"client":"gomemcache"}}}`) },
			func(w *world) error { return errors.Join(settledAt(2)(w), w.moved(2, "1")) },
		},
		"retry of a failed move": {
			func(w *world) {
				w.storageCluster(apitest.MakeMemcached(name), 1)
				kubes.Play(w.namespace, player.Fail(contract.ExitUsage, "BadArguments", "no such flag"))
			},
			func(w *world) {
				w.scale(2)
				w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonMoveFailed)
				kubes.Play(w.namespace, player.Succeed(100))
				w.annotateMove(0, cachev1alpha1.MoveRetry)
			}, func(w *world) error { return errors.Join(settledAt(2)(w), w.moved(1, "1")) },
		},
		"hibernate, and resume": {three, func(w *world) {
			w.scale(0)
			w.settled(0)
			w.scale(3)
		}, settledAt(3)},
		"hibernate, and resume with fewer": {three, func(w *world) {
			w.scale(0)
			w.settled(0)
			w.scale(2)
		}, settledAt(2)},
	}
	maps.Copy(all, leavingScenarios())
	maps.Copy(all, statefulSetScenarios())
	return all
}

// routedAndSettled is the end of a cluster whose two routers also have that many servers.
func routedAndSettled(size int32) func(*world) error {
	return func(w *world) error {
		_, err := w.routedTo(2, int(size))
		return errors.Join(err, settledAt(size)(w))
	}
}

// settledAt is the end of a cluster with that many members, all ready, in which nothing is being deleted.
func settledAt(size int32) func(*world) error {
	return func(w *world) error {
		m := w.memcached()
		if m == nil {
			return errors.New("no Memcached")
		}
		progressing := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionProgressing)
		s := m.Status
		if s.ObservedGeneration != m.Generation || s.Size != size || s.ReadySize != size || len(s.Drains) != 0 || s.Moving != 0 ||
			progressing == nil || progressing.Status != metav1.ConditionFalse {
			return fmt.Errorf("status %s", asJSON(s))
		}
		return nil
	}
}

// moved returns nil if the items of so many members are moved by the list of that serial.
func (w *world) moved(members int, serial string) error {
	for ordinal := range members {
		if c := w.claim(ordinal); c == nil || c.Annotations[cachev1alpha1.AnnotationMoved] != serial {
			return fmt.Errorf("member %d is not moved by %s", ordinal, serial)
		}
	}
	return nil
}

// deleted is the end of a cluster that leaves only claims.
func deleted(w *world) error {
	if n := len(w.clusters()) + len(w.statefulSets()) + len(w.pods()) + len(w.jobs()); n > 0 {
		return fmt.Errorf("%d objects are left", n)
	}
	return nil
}

// orphaned is the end of a cluster whose members are to stay.
func orphaned(w *world) error {
	if n := len(w.clusters()); n > 0 || len(w.statefulSets()) != 1 {
		return fmt.Errorf("%d clusters, %d StatefulSets", n, len(w.statefulSets()))
	}
	return nil
}

// drained returns nil if the last drain was of a volume of this member that was set aside.
func (w *world) drained(ordinal int) error {
	last := w.memcached().Status.LastDrains
	if len(last) == 0 || !strings.HasPrefix(last[0].Claim, claimName(ordinal)+"-aside-") || last[0].Result != "Drained" {
		return fmt.Errorf("the last drains are %s", asJSON(last))
	}
	return nil
}

// shrunkTo waits until the StatefulSet has that size.
func (w *world) shrunkTo(size int32) {
	w.Helper()
	w.eventually(fmt.Sprintf("a StatefulSet of %d", size), func() error { return w.replicasAre(size) })
}
