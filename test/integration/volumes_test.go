package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// volumesHave returns nil if the volumes of so many members have this size.
func (w *world) volumesHave(members int, size string) error {
	for ordinal := range members {
		c := w.claim(ordinal)
		if c == nil {
			return fmt.Errorf("no claim %d", ordinal)
		}
		if has := c.Status.Capacity[corev1.ResourceStorage]; has.String() != size {
			return fmt.Errorf("claim %s has %s", c.Name, has.String())
		}
	}
	return nil
}

// memoryOf returns the -m with which a member of the StatefulSet starts.
func (w *world) memoryOf() string {
	w.Helper()
	_, rest, _ := strings.Cut(strings.Join(w.statefulSet().Spec.Template.Spec.Containers[0].Command, " "), " -m ")
	m, _, _ := strings.Cut(rest, " ")
	return m
}

func TestVolumesGrowWithTheSpecBeforeTheMembersDo(t *testing.T) {
	w := newWorld(t)
	kubes.Fix(w.namespace, true)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	before := w.statefulSet()
	w.change(w.memcached(), `{"spec":{"memory":"192Mi","storage":{"size":"512Mi"}}}`)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonVolumesGrow)
	w.always("members keep a memory that fits on their volumes", func() error {
		if m := w.memoryOf(); m != "64" {
			return fmt.Errorf("-m %s", m)
		}
		return w.volumesHave(2, "128Mi")
	})

	kubes.Fix(w.namespace, false)
	w.settled(2)
	w.eventually("the new memory", func() error {
		if m := w.memoryOf(); m != "192" {
			return fmt.Errorf("-m %s", m)
		}
		return w.volumesHave(2, "512Mi")
	})

	// The StatefulSet has not changed. So a member that joins begins with the first size.
	w.scale(3)
	w.settled(3)
	w.eventually("a third volume of that size", func() error { return w.volumesHave(3, "512Mi") })
	equal(w, "the StatefulSet", w.statefulSet().UID, before.UID)
	w.settled(3)
	w.quiet()
	w.showsAtRest()
}

func TestVolumesWithoutASizeFollowMemory(t *testing.T) {
	tier.Second(t, "TestNoVolumeGrowsByAMistypedMemory")
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(1).Storage("0").Obj())
	w.settled(1)
	w.noAdvice()
	w.eventually("room for two files", func() error { return w.volumesHave(1, "200Mi") })
	w.change(w.memcached(), `{"spec":{"memory":"96Mi"}}`)
	w.eventually("more room", func() error { return w.volumesHave(1, "268Mi") })
	w.change(w.memcached(), `{"spec":{"memory":"64Mi"}}`)
	w.settled(1)
	w.eventually("as before", func() error { return w.volumesHave(1, "268Mi") })
	w.quiet()
}

// A volume never shrinks. So a volume that follows memory grows when a member runs with the new memory. A
// memory that can't be scheduled, or doesn't fit, lets no volume grow.
func TestNoVolumeGrowsByAMistypedMemory(t *testing.T) {
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(2).Storage("0").Obj())
	w.settled(2)
	asked := func(size string) error {
		for i := range 2 {
			if got := w.claim(i).Spec.Resources.Requests.Storage().String(); got != size {
				return fmt.Errorf("claim %d asks for %s", i, got)
			}
		}
		return nil
	}
	w.change(w.memcached(), `{"spec":{"memory":"200Gi"}}`)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonVolumesWait)
	if !strings.Contains(message, "435264Mi") {
		t.Errorf("it does not say how much: %s", message)
	}
	w.always("no claim asks for it", func() error { return asked("200Mi") })
	w.change(w.memcached(), `{"spec":{"memory":"64Mi"}}`)
	w.settled(2)

	kubes.Unready(w.namespace, true) // no member with the new memory gets ready
	w.change(w.memcached(), `{"spec":{"memory":"96Mi"}}`)
	message = w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonRolling)
	if !strings.Contains(message, "2 volumes are to grow to 268Mi each") {
		t.Errorf("it does not say that volumes wait: %s", message)
	}
	w.always("no claim asks for more before a member is ready", func() error { return asked("200Mi") })
	kubes.Unready(w.namespace, false)
	w.eventually("more room", func() error { return w.volumesHave(2, "268Mi") })
	w.settled(2)
}

// A claim never asks for less again. The runbook has a way out for a cluster that was created with too much
// memory and that has no items yet.
func TestAClusterCreatedWithAMistypedMemoryIsCreatedAgain(t *testing.T) {
	tier.Second(t, "TestNoVolumeGrowsByAMistypedMemory")
	w := newWorld(t)
	kubes.Unready(w.namespace, true)
	asks := func(size string) {
		w.eventually("the claim asks for "+size, func() error {
			claim := w.claim(0)
			if claim == nil {
				return errors.New("no claim yet")
			}
			if got := claim.Spec.Resources.Requests.Storage().String(); got != size {
				return fmt.Errorf("it asks for %s", got)
			}
			return nil
		})
	}
	w.create(apitest.MakeMemcached(name).Size(1).Storage("0").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Memory = ptr.To(resource.MustParse("200Gi"))
	}).Obj())
	asks("435264Mi")
	w.change(w.memcached(), `{"spec":{"drain":{"whenDeleted":"Delete"}}}`)
	first := w.claim(0).UID
	w.delete(w.memcached())
	w.claimGone(0, first)
	w.eventually("the cluster is gone", func() error {
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &cachev1alpha1.Memcached{}); err != nil {
			return client.IgnoreNotFound(err)
		}
		return errors.New("it is there")
	})
	kubes.Unready(w.namespace, false)
	w.create(apitest.MakeMemcached(name).Size(1).Storage("0").Obj())
	asks("200Mi")
	w.settled(1)
}

// TestARollOutThatLosesItemsIsForetold by status, before the StatefulSet changes: it says that members will
// start cold.
func TestARollOutThatLosesItemsIsForetold(t *testing.T) {
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(2).Storage("200Mi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Storage.Mode = cachev1alpha1.StorageMapped
	}).Obj())
	w.settled(2)
	w.noAdvice()
	before := len(w.journal.Writes())
	w.change(w.memcached(), `{"spec":{"memory":"150Mi"}}`)
	w.advised(cachev1alpha1.ReasonNoRoomToReplay)
	w.settled(2)
	told := false
	for _, write := range w.journal.Writes()[before:] {
		told = told || write.Resource == "memcacheds/status" && strings.Contains(write.Body, cachev1alpha1.ReasonNoRoomToReplay)
		if write.Resource == "statefulsets" && !told {
			t.Errorf("the members change before status says that they will start cold: %v", w.journal.Writes()[before:])
		}
	}
	w.quiet()
}

func TestVolumesOfMembersThatLeftDoNotGrow(t *testing.T) {
	tier.Second(t, "TestVolumesOfMembersGrow")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Hang)
	left := w.claim(1)
	w.scale(1)
	w.drainRuns(left.UID)
	w.change(w.memcached(), `{"spec":{"storage":{"size":"256Mi"}}}`)
	w.eventually("the member's volume grows", func() error { return w.volumesHave(1, "256Mi") })
	w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonAsWanted)
	equal(w, "what the claim that is drained asks for", w.claim(1).Spec.Resources.Requests.Storage().String(), "128Mi")
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(1, left.UID)
	w.settled(1)
}

func TestVolumesThatMayNotGrowAreToldOfOnce(t *testing.T) {
	tier.Second(t, "TestProgressingTellsWhichVolumesGrowAndWhichMayNot")
	w := newWorld(t)
	fixed := func(s *cachev1alpha1.MemcachedSpec) { s.Storage.StorageClassName = ptr.To(player.FixedClass) }
	w.create(apitest.MakeMemcached(name).Storage("128Mi").Size(3).With(fixed).Obj())
	w.settled(3)
	w.quiet()
	w.change(w.memcached(), `{"spec":{"memory":"100Mi","storage":{"size":"256Mi"}}}`)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonVolumesCannotGrow)
	if !strings.Contains(message, "3 volumes") || !strings.Contains(message, "storageclass that provisions the pvc must support resize") {
		t.Errorf("the message is %q", message)
	}
	// A memory that fits is rolled out, and scaling goes on.
	w.settled(3)
	equal(w, "memory", w.memoryOf(), "100")
	left := w.claim(2)
	w.scale(2)
	w.claimGone(2, left.UID)
	w.settled(2)
	w.change(w.memcached(), `{"spec":{"memory":"200Mi"}}`)
	w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonVolumesCannotGrow)
	equal(w, "memory that does not fit", w.memoryOf(), "100")
	w.quiet()

	// The operator remembers the refusal until the spec changes.
	refused := 0
	for _, write := range w.journal.Writes() {
		if write.Status == 403 {
			refused++
		}
	}
	if refused == 0 || refused > 3 { // the spec changed three times
		t.Errorf("%d refusals:\n%s", refused, w.picture())
	}
}
