package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// degraded waits until the cluster is Degraded for that reason, in these words, and
// nothing says that all is well.
func (w *world) degraded(reason string, words ...string) {
	w.Helper()
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", reason)
	for _, part := range words {
		if !strings.Contains(message, part) {
			w.Errorf("degraded does not say %q: %s", part, message)
		}
	}
	w.condition(cachev1alpha1.ConditionReady, "False", reason)
	equal(w, "phase", w.memcached().Status.Phase, cachev1alpha1.PhaseDegraded)
	w.eventsOnce(reason)
}

// well waits until the cluster is ready, and nothing is wrong any more.
func (w *world) well(size int32) {
	w.Helper()
	w.settled(size)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
	equal(w, "phase", w.memcached().Status.Phase, cachev1alpha1.PhaseRunning)
}

// withAndWithoutStorage runs the test for both kinds of clusters.
func withAndWithoutStorage(t *testing.T, test func(w *world, b *apitest.MemcachedBuilder)) {
	t.Parallel()
	for kind, b := range map[string]*apitest.MemcachedBuilder{
		"plain": apitest.MakeMemcached(name).Size(2), "with storage": apitest.MakeMemcached(name).Size(2).Storage("128Mi"),
	} {
		t.Run(kind, func(t *testing.T) { test(newWorld(t), b) })
	}
}

// This is invariant 14. In each of these cases status once said that nothing needs a person.
func TestMembersThatCannotStartAreDegradedInTheKubeletsWords(t *testing.T) {
	container := func(init bool, c corev1.ContainerStatus) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			if init {
				c.Name = "install"
				s.InitContainerStatuses = []corev1.ContainerStatus{c}
				return
			}
			c.Name = "memcached"
			s.ContainerStatuses = []corev1.ContainerStatus{c}
		}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	for what, test := range map[string]struct {
		how    func(*corev1.PodStatus)
		reason string
		words  []string
	}{
		"memcached crash-loops": {
			container(false, corev1.ContainerStatus{
				RestartCount: 4, State: waiting("CrashLoopBackOff", "back-off 1m20s restarting failed container"),
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 64, Reason: "Error", Message: "max memory must be at least 39 megabytes\n", StartedAt: ended, FinishedAt: ended,
				}},
			}),
			cachev1alpha1.ReasonCrashLoop, []string{"container memcached", "exit code 64", "max memory must be at least 39 megabytes"},
		},
		"an image is missing": {
			container(false, corev1.ContainerStatus{State: waiting("ImagePullBackOff", `Back-off pulling image "memcached:test"`)}),
			cachev1alpha1.ReasonImageUnavailable, []string{"container memcached", `ImagePullBackOff: Back-off pulling image "memcached:test"`},
		},
		"the image of an init container is missing": {
			container(true, corev1.ContainerStatus{State: waiting("ErrImagePull", "manifest unknown")}),
			cachev1alpha1.ReasonImageUnavailable, []string{"container install", "ErrImagePull: manifest unknown"},
		},
		"a Secret is missing": {
			container(false, corev1.ContainerStatus{State: waiting("CreateContainerConfigError", `secret "s" not found`)}),
			cachev1alpha1.ReasonContainerNotCreated, []string{`secret "s" not found`},
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "memcached crash-loops" && what != "an image is missing" {
				tier.Second(t, "TestMembersThatCannotStartAreDegradedInTheKubeletsWords")
			}
			withAndWithoutStorage(t, func(w *world, b *apitest.MemcachedBuilder) {
				kubes.Afflict(w.namespace, test.how)
				w.create(b.Obj())
				w.degraded(test.reason, test.words...)
				w.quiet()
				kubes.Afflict(w.namespace, nil)
				w.well(2)
			})
		})
	}
}

func TestAMemberThatNoNodeTakesIsDegradedAfterAMinute(t *testing.T) {
	tier.Second(t, "TestMembersThatCannotStartAreDegradedInTheKubeletsWords")
	withAndWithoutStorage(t, func(w *world, b *apitest.MemcachedBuilder) {
		kubes.Afflict(w.namespace, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient memory.",
			}}
		})
		w.create(b.Obj())
		w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonScaling)
		w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
		w.stopOperator()
		w.clock = ahead{by: time.Minute}
		w.startOperator()
		w.degraded(cachev1alpha1.ReasonUnschedulable, "has no node since", "0/1 nodes are available: 1 Insufficient memory.")
		kubes.Afflict(w.namespace, nil)
		w.well(2)
	})
}

// quota makes the API server's admission allow that many pods.
func (w *world) quota(pods string) {
	w.Helper()
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.create(q)
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
	if err := admin.Status().Update(w.Context(), q); err != nil {
		w.Fatal(err)
	}
}

func (w *world) noQuota() {
	w.Helper()
	w.delete(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}})
}

func TestMembersThatAQuotaForbidsAreDegradedInTheAPIServersWords(t *testing.T) {
	tier.Second(t, "TestADrainerThatAQuotaForbidsIsDegradedInTheAPIServersWords")
	withAndWithoutStorage(t, func(w *world, b *apitest.MemcachedBuilder) {
		w.quota("1")
		w.create(b.Obj())
		w.degraded(cachev1alpha1.ReasonPodNotCreated, name, "exceeded quota: pods", "limited: pods=1")
		w.noQuota()
		w.nudgeMembers()
		w.well(2)
	})
}

// nudgeMembers makes the members' controller try again at once.
func (w *world) nudgeMembers() {
	w.Helper()
	for _, s := range w.statefulSets() {
		w.change(&s, `{"metadata":{"annotations":{"nudge":"1"}}}`)
	}
	var sets appsv1.ReplicaSetList
	w.list(&sets)
	for i := range sets.Items {
		w.change(&sets.Items[i], `{"metadata":{"annotations":{"nudge":"1"}}}`)
	}
}

func TestADrainerThatAQuotaForbidsIsDegradedInTheAPIServersWords(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	claim := w.claim(1)
	w.quota("0")
	w.scale(1)
	w.degraded(cachev1alpha1.ReasonDrainStuck, claim.Name, cachev1alpha1.ReasonPodNotCreated, "exceeded quota: pods")
	if err := w.drainIs(1, cachev1alpha1.DrainStarting, cachev1alpha1.ReasonPodNotCreated); err != nil {
		t.Error(err)
	}
	if err := w.claimIsKept(1); err != nil {
		t.Error(err)
	}
	w.noQuota()
	w.claimGone(1, claim.UID)
	w.well(1)
}

func TestMembersThatPodSecurityForbidsAreDegradedInTheAPIServersWords(t *testing.T) {
	tier.Second(t, "TestADrainerThatAQuotaForbidsIsDegradedInTheAPIServersWords")
	withAndWithoutStorage(t, func(w *world, b *apitest.MemcachedBuilder) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		w.change(namespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
		w.create(b.With(func(s *cachev1alpha1.MemcachedSpec) {
			s.PodTemplate.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(false), RunAsUser: ptr.To[int64](0)}
		}).Obj())
		w.degraded(cachev1alpha1.ReasonPodNotCreated, "violates PodSecurity \"restricted:latest\"", "runAsUser=0")
		w.change(w.memcached(), `{"spec":{"podTemplate":{"securityContext":{"runAsNonRoot":true,"runAsUser":11211,"seccompProfile":{"type":"RuntimeDefault"}}}}}`)
		w.well(2)
	})
}

// A person who changes the spec and waits for Ready must not get the answer for the old spec.
func TestReadyIsOfTheSpecThatWasObservedAndItsMembers(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"threads":2}}`)
	w.eventually("not ready", func() error { return w.readyIs(metav1.ConditionFalse) })
	w.always("not ready while members are replaced", func() error { return w.readyIs(metav1.ConditionFalse) })
	kubes.Unready(w.namespace, false)
	w.well(2)

	kubes.Play(w.namespace, player.Hang)
	claim := w.claim(1)
	w.scale(1)
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonDraining)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(1, claim.UID)
	w.well(1)
}

// readyIs tells whether Ready has this status for the present spec.
func (w *world) readyIs(want metav1.ConditionStatus) error {
	m := w.memcached()
	c := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionReady)
	is := metav1.ConditionUnknown
	if c != nil && c.ObservedGeneration == m.Generation {
		is = c.Status
	}
	if is == want || want == metav1.ConditionFalse && is == metav1.ConditionUnknown {
		return nil
	}
	return fmt.Errorf("it is %s", asJSON(c))
}
