package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

func routedBy(client cachev1alpha1.Client) *apitest.MemcachedBuilder {
	return apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = client })
}

// moves returns the Jobs that move items.
func (w *world) moves() []batchv1.Job {
	return slices.DeleteFunc(w.jobs(), func(j batchv1.Job) bool { return !strings.Contains(j.Name, "-move-") })
}

func (w *world) drains() []batchv1.Job {
	return slices.DeleteFunc(w.jobs(), func(j batchv1.Job) bool { return strings.Contains(j.Name, "-move-") })
}

// ofDrains lets drains follow the script, and moves succeed.
func ofDrains(script player.Script) player.Script {
	return func(d player.Drainer) player.Act {
		if d.Source != "" {
			return player.Succeed(1)(d)
		}
		return script(d)
	}
}

// cast records the drainers of both kinds in the order of their ends.
type cast struct {
	mu    sync.Mutex
	seen  []string
	last  player.Drainer
	asked map[string]bool // by pod, because a drainer that has ended may be asked once more
}

func (c *cast) script(d player.Drainer) player.Act {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[d.Pod] {
		return player.Succeed(10)(d)
	}
	if c.asked == nil {
		c.asked = map[string]bool{}
	}
	c.asked[d.Pod] = true
	what := "drain " + d.Claim
	if d.Counts {
		what = "count " + d.Claim
	}
	if d.Source != "" {
		host, _, _ := strings.Cut(d.Source, ".")
		what = "move " + host
		c.last = d
	}
	c.seen = append(c.seen, fmt.Sprintf("%s among %d", what, len(d.Servers)))
	return player.Succeed(10)(d)
}

func (c *cast) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// takeSorted is take for movers that run at the same time.
func (c *cast) takeSorted() []string { return slices.Sorted(slices.Values(c.take())) }

func TestItemsAreMovedAfterAScaleUpBeforeTheNextScaling(t *testing.T) {
	tier.Second(t, "TestClientsAreToldOfNoMoreMembersUntilItemsAreMoved")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Hang)
	w.scale(3)
	w.condition(cachev1alpha1.ConditionMoving, "True", cachev1alpha1.ReasonMoving)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	w.eventually("phase Moving", func() error {
		if s := w.memcached().Status; s.Phase != cachev1alpha1.PhaseMoving || s.Moving != 2 {
			return fmt.Errorf("%s, %d to move", s.Phase, s.Moving)
		}
		return nil
	})
	w.scale(1)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForMove)
	w.always("the StatefulSet keeps its size, and two Jobs run", func() error {
		if n := len(w.jobs()); n != 2 {
			return fmt.Errorf("%d Jobs", n)
		}
		return w.replicasAre(3)
	})
	var played cast
	kubes.Play(w.namespace, played.script)
	w.settled(1)
	seen := played.take()
	slices.Sort(seen[:2])
	equal(w, "what was moved first", seen[:2], []string{"move cache-0 among 3", "move cache-1 among 3"})
	slices.Sort(seen[2:]) // whose pod is gone first is drained first
	equal(w, "and then", seen[2:], []string{"drain data-cache-1 among 1", "drain data-cache-2 among 1"})
	equal(w, "what it was about", strings.HasPrefix(played.last.SourceID, "move/"), true)
	equal(w, "drains that ended", len(w.memcached().Status.LastDrains), 2)
	equal(w, "Jobs at the end", len(w.jobs()), 0)
	for _, c := range w.claims() {
		equal(w, "receipts on claim "+c.Name, c.Annotations[cachev1alpha1.AnnotationReceipt], "")
	}
}

func TestReshuffledItemsAreMovedAfterTheDrain(t *testing.T) {
	tier.Second(t, "TestOlderValuesComeLater")
	w := newWorld(t)
	w.storageCluster(routedBy("gomemcache"), 3)
	var played cast
	kubes.Play(w.namespace, played.script)
	w.scale(2)
	w.settled(2)
	seen := played.take()
	slices.Sort(seen[1:])
	equal(w, "what was moved, in order", seen, []string{"drain data-cache-2 among 2", "move cache-0 among 2", "move cache-1 among 2"})
}

func TestNothingIsMovedWhereNoKeyMoves(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	var played cast
	kubes.Play(w.namespace, played.script)
	w.scale(1)
	w.settled(1)
	w.scale(0)
	w.settled(0)
	w.scale(1)
	w.settled(1)
	equal(w, "what was moved", played.take(), []string{"drain data-cache-1 among 1"})
}

func TestAnotherRoutingPlacesAnewAndOffEndsIt(t *testing.T) {
	tier.Second(t, "TestEachRingHasItsMove")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Hang)
	w.change(w.memcached(), `{"spec":{"routing":{"client":"dalli"}}}`)
	first := w.movesRun(2)
	w.change(w.memcached(), `{"spec":{"routing":{"client":"gomemcache"}}}`)
	w.eventually("other Jobs", func() error { return w.movedByOthersThan(first, 2) })
	w.change(w.memcached(), `{"spec":{"routing":{"moves":"Off"}}}`)
	w.scale(3)
	w.settled(3)
	message := w.condition(cachev1alpha1.ConditionMoving, "False", cachev1alpha1.ReasonMovesOff)
	if !strings.Contains(message, "from 2 to 3 servers") || !strings.Contains(message, "67%") {
		t.Errorf("the condition says %q", message)
	}
	equal(w, "Jobs", len(w.jobs()), 0)
	var played cast
	kubes.Play(w.namespace, played.script)
	w.change(w.memcached(), `{"spec":{"routing":{"moves":"Live"}}}`)
	w.settled(3)
	w.noCondition(cachev1alpha1.ConditionMoving)
	equal(w, "what was moved", played.takeSorted(), []string{"move cache-0 among 3", "move cache-1 among 3"})
}

// movesRun waits until the pods of so many moves run, and returns their Jobs.
func (w *world) movesRun(count int) []batchv1.Job {
	w.Helper()
	var jobs []batchv1.Job
	w.eventually("moves that run", func() error {
		running := map[string]bool{}
		for _, p := range w.pods() {
			if p.Status.Phase == corev1.PodRunning {
				running[p.Labels[batchv1.JobNameLabel]] = true
			}
		}
		jobs = w.moves()
		if n := len(slices.DeleteFunc(slices.Clone(jobs), func(j batchv1.Job) bool { return !running[j.Name] })); n != count || len(jobs) != count {
			return fmt.Errorf("%d of %d Jobs run", n, len(jobs))
		}
		return nil
	})
	return jobs
}

// movedByOthersThan returns nil if there are so many moves, and none of the former ones.
func (w *world) movedByOthersThan(former []batchv1.Job, count int) error {
	jobs := w.moves()
	if len(jobs) != count {
		return fmt.Errorf("%d Jobs", len(jobs))
	}
	for _, j := range jobs {
		if slices.ContainsFunc(former, func(f batchv1.Job) bool { return f.UID == j.UID }) {
			return fmt.Errorf("%s is still there", j.Name)
		}
	}
	return nil
}

// moving is a world whose cluster has grown, with moves that never end.
func moving(t *testing.T, from, to int32) *world {
	t.Helper()
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), from)
	kubes.Play(w.namespace, player.Hang)
	w.scale(to)
	w.movesRun(int(from))
	w.eventually("the list has them all", func() error { return w.serverCount(to) })
	return w
}

func (w *world) annotateMove(ordinal int, value string) {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claimName(ordinal)}}
	w.change(claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationMove, value))
}

func TestFailedMoveWaitsForAPerson(t *testing.T) {
	tier.Second(t, "TestFailedMoveIsTriedAgainByItself")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	kubes.Play(w.namespace, player.Fail(contract.ExitUsage, "BadArguments", "no such flag"))
	w.scale(2)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonMoveFailed)
	if !strings.Contains(message, "no such flag") || !strings.Contains(message, "move=retry") {
		t.Errorf("it says %q", message)
	}
	w.scale(1)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForMove)
	kubes.Play(w.namespace, player.Succeed(3))
	w.annotateMove(0, cachev1alpha1.MoveRetry)
	w.settled(1)
	w.eventsOnce(cachev1alpha1.ReasonMoveFailed)
	if _, ok := w.claim(0).Annotations[cachev1alpha1.AnnotationMove]; ok {
		t.Error("the claim still has the request")
	}
}

func TestSkippedMoveLetsTheSizeChange(t *testing.T) {
	tier.Second(t, "TestMemberThatIsLostWhileItemsMoveToItCanBeLetGo")
	w := moving(t, 1, 2)
	w.annotateMove(0, cachev1alpha1.MoveSkip)
	w.settled(2)
	equal(w, "Jobs", len(w.jobs()), 0)
	w.eventsOnce("MoveSkipped")
}

func TestMoveEndsWithHibernationAndGoesOnAfterIt(t *testing.T) {
	tier.Second(t, "TestHibernateKeepsTheClaimsAndResumesOnThem")
	w := moving(t, 2, 3)
	w.scale(0)
	w.settled(0)
	equal(w, "Jobs", len(w.jobs()), 0)
	w.eventually("no pods", func() error {
		var pods corev1.PodList
		w.list(&pods)
		if len(pods.Items) > 0 {
			return fmt.Errorf("%s is left", pods.Items[0].Name)
		}
		return nil
	})
	var played cast
	kubes.Play(w.namespace, played.script)
	w.scale(2) // at first, as many members as have items by one list
	w.settled(2)
	seen := played.take()
	slices.Sort(seen[:2])
	equal(w, "what was moved", seen, []string{"move cache-0 among 3", "move cache-1 among 3", "drain data-cache-2 among 2"})
}

func TestClusterIsDeletedInTheMiddleOfAMove(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	w := moving(t, 2, 3)
	w.delete(w.memcached())
	w.eventually("nothing but claims", func() error { return deleted(w) })
}

// If the list has lost its record, and no ring has moved keys, every item counts as being where the list says.
func TestAListThatHasLostItsRecordIsNotMovedAtOnce(t *testing.T) {
	tier.Second(t, "TestRecordIsBelievedWhereItCanBeTrue")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.stopOperator()
	w.change(w.serverList(), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cachev1alpha1.AnnotationRing))
	w.startOperator()
	w.eventually("a record", func() error {
		if w.serverList().Annotations[cachev1alpha1.AnnotationRing] == "" {
			return errors.New("none")
		}
		return nil
	})
	w.quiet()
	equal(w, "Jobs", len(w.jobs()), 0)
	var played cast
	kubes.Play(w.namespace, played.script)
	w.scale(3)
	w.settled(3)
	equal(w, "what was moved", played.takeSorted(), []string{"move cache-0 among 3", "move cache-1 among 3"})
}

// Each client that may patch ConfigMaps can write a record that names servers.
func TestForgedRecordMakesNoMembers(t *testing.T) {
	tier.Second(t, "TestNoJobAndNoRecordMakesMoreMembers")
	w := newWorld(t)
	w.storageCluster(routedBy("gomemcache"), 3)
	kubes.Play(w.namespace, player.Succeed(10))
	record := `{"serial":9,"ring":{"client":"gomemcache","port":11211,"size":512},"due":9,"holding":3}`
	w.change(w.serverList(), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"data":{"servers":%q}}`,
		cachev1alpha1.AnnotationRing, record, strings.Repeat("server:11211\n", 512)))
	w.always("three members", func() error { return w.replicasAre(3) })
	equal(w, "servers", len(w.settled(3).Status.Servers), 3)
	equal(w, "servers on the list", strings.Count(w.serverList().Data["servers"], "\n"), 3)
}

// A very high number can't exhaust the rings' numbers.
func TestForgedNumberEndsNoMoves(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(routedBy("gomemcache"), 2)
	w.change(w.claim(0), fmt.Sprintf(`{"metadata":{"annotations":{%q:"4503599627370496"}}}`, cachev1alpha1.AnnotationMoved))
	var played cast
	kubes.Play(w.namespace, played.script)
	w.change(w.memcached(), `{"spec":{"routing":{"client":"dalli"}}}`)
	w.settled(2)
	equal(w, "what was moved", played.takeSorted(), []string{"move cache-0 among 2", "move cache-1 among 2"})
}

func TestMemberThatIsLostWhileItemsMoveToItCanBeLetGo(t *testing.T) {
	w := newNamespace(t)
	w.clock = ahead{by: 24 * time.Hour} // the operator was not there for long enough
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Hang)
	w.scale(3)
	first := w.movesRun(2)
	w.eventually("the list has them all", func() error { return w.serverCount(3) })
	kubes.Unready(w.namespace, true)
	pod := w.pod("cache-2")
	w.delete(pod)
	w.eventually("a member that isn't ready", func() error {
		for _, p := range w.pods() {
			if p.Name == "cache-2" && p.UID != pod.UID && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("none")
	})
	w.always("while it is to stay, it is waited for", func() error {
		jobs := w.moves()
		if len(jobs) != 2 || w.movedByOthersThan(first[:1], 2) == nil || w.movedByOthersThan(first[1:], 2) == nil {
			return fmt.Errorf("%d Jobs", len(jobs))
		}
		return nil
	})
	claim := w.claim(2)
	w.scale(2)
	w.eventually("moves that discard what is the lost member's", func() error {
		for _, j := range w.moves() {
			if args := strings.Join(j.Spec.Template.Spec.Containers[0].Command, " "); !strings.Contains(args, "--discard=cache-2.") {
				return errors.New(args)
			}
		}
		return w.movedByOthersThan(first, 2)
	})
	var played cast
	kubes.Play(w.namespace, played.script)
	w.claimGone(2, claim.UID)
	w.settled(2)
	seen := played.take()
	slices.Sort(seen[:2])
	equal(w, "what was moved", seen, []string{"move cache-0 among 3", "move cache-1 among 3", "drain data-cache-2 among 2"})
}
