package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// stsDrainSays waits until the condition has this status and reason, and all these words.
func (w *world) stsDrainSays(kind string, status metav1.ConditionStatus, reason string, words ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("condition %s=%s (%s) says %q", kind, status, reason, words), func() error {
		if err := w.stsDrainCondition(kind, status, reason); err != nil {
			return err
		}
		c := meta.FindStatusCondition(w.stsDrain().Status.Conditions, kind)
		for _, want := range words {
			if !strings.Contains(c.Message, want) {
				return fmt.Errorf("%q lacks %q", c.Message, want)
			}
		}
		return nil
	})
}

// queueClaim returns the claim; nil if it is gone.
func (w *world) queueClaim(name string) *corev1.PersistentVolumeClaim {
	w.Helper()
	c := &corev1.PersistentVolumeClaim{}
	return found(w, c, admin.Get(w.Context(), w.key(name), c))
}

// queueIsWell waits until the StatefulSet has these claims, nothing is drained, and status says so.
func (w *world) queueIsWell(what string, claims ...string) {
	w.Helper()
	w.wantClaims(what, claims...)
	w.eventually("all is well", func() error { return w.stsDrainIs("True", "Ready") })
	// The status may be older than the StatefulSet.
	w.eventually("the claims are protected", func() error {
		for _, name := range claims {
			if c := w.queueClaim(name); c == nil || c.DeletionTimestamp == nil && !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
				return fmt.Errorf("claim %s is %s", name, asJSON(c))
			}
		}
		return nil
	})
}

func withWhenScaledDelete(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) {
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

func withModes(modes ...corev1.PersistentVolumeAccessMode) func(*appsv1.StatefulSet, *cachev1alpha1.StatefulSetDrain) {
	return func(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) {
		set.Spec.VolumeClaimTemplates[0].Spec.AccessModes = modes
	}
}

func TestAVolumeForOnePodAtATimeIsDrained(t *testing.T) {
	w := queueWorld(t, withModes(corev1.ReadWriteOncePod))
	job := w.draining(2, 2)
	aside := w.queueClaim(job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	if aside == nil || !slices.Equal(aside.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
		t.Errorf("the claim that took the volume over is %s", asJSON(aside))
	}
	w.scaleQueue(3)
	w.eventually("the member returns meanwhile", func() error { _, err := w.memberRuns(2); return err })
	kubes.Play(w.namespace, allMoved)
	w.queueIsWell("its earlier volume is gone", "data-queue-0", "data-queue-1", "data-queue-2")
}

// The volume is made when the member's pod gets a node (WaitForFirstConsumer), and it gets none.
func TestAClaimThatNeverHadAVolumeIsReleased(t *testing.T) {
	w := queueWorld(t, func(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) {
		set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = ptr.To(player.LateClass)
		withWhenScaledDelete(set, nil)
	})
	kubes.Play(w.namespace, allMoved)
	noRoom := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node has room"}
	kubes.Afflict(w.namespace, func(s *corev1.PodStatus) { s.Conditions = []corev1.PodCondition{noRoom} })
	w.scaleQueue(4)
	w.eventually("the claim is protected", func() error {
		if c := w.queueClaim("data-queue-3"); c == nil || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) || c.Spec.VolumeName != "" {
			return fmt.Errorf("it is %s", asJSON(c))
		}
		return nil
	})
	w.scaleQueue(3)
	w.queueIsWell("it goes, and nothing is drained", "data-queue-0", "data-queue-1", "data-queue-2")
	equal(w, "Jobs", len(w.jobs()), 0)
	kubes.Afflict(w.namespace, nil)
	w.scaleQueue(4)
	w.eventually("the member runs", func() error { _, err := w.memberRuns(3); return err })
	w.queueIsWell("it has a volume", "data-queue-0", "data-queue-1", "data-queue-2", "data-queue-3")
	w.scaleQueue(3)
	w.queueIsWell("which is drained", "data-queue-0", "data-queue-1", "data-queue-2")
	if got := w.results(); len(got) == 0 || got[0] != "3 Drained" {
		t.Errorf("results %v", got)
	}
}

// An operator of one namespace can't set volumes aside.
func TestWithoutRightsToVolumesAMemberReturnsWithItsDataAndTheDrainStops(t *testing.T) {
	w := newNamespace(t)
	w.grantHere()
	w.startOperator()
	set := queueSet()
	withModes(corev1.ReadWriteOncePod)(set, nil)
	w.create(set)
	w.create(queueDrain(queue))
	w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
	was := w.queueClaim("data-queue-2")
	job := w.draining(2, 2)
	equal(w, "it mounts", job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "data-queue-2")
	w.scaleQueue(3)
	w.eventually("the member runs", func() error { _, err := w.memberRuns(2); return err })
	w.queueIsWell("all claims are members'", "data-queue-0", "data-queue-1", "data-queue-2")
	equal(w, "its claim is the earlier one", w.queueClaim("data-queue-2").UID, was.UID)
	equal(w, "Jobs", len(w.jobs()), 0)
	w.eventually("an event says it", func() error { return w.saidAbout("data-queue-2", "wanted again before its volume was drained") })
	w.wantResults("2 Returned")
	kubes.Play(w.namespace, allMoved)
	w.scaleQueue(2)
	w.queueIsWell("it is drained when it leaves again", "data-queue-0", "data-queue-1")
}

// A member's pod that is there again before its claim was deleted has its data.
func TestAMemberThatReturnsBeforeItsClaimIsDeletedHasItsData(t *testing.T) {
	tier.Second(t, "TestWithoutRightsToVolumesAMemberReturnsWithItsDataAndTheDrainStops")
	w := queueWorld(t)
	was := w.queueClaim("data-queue-2")
	kubes.Linger(w.namespace, true)
	w.scaleQueue(2)
	w.stsDrainSays("Progressing", "True", cachev1alpha1.ReasonDraining, "member 2", "still shutting down")
	w.scaleQueue(3)
	w.eventually("it has returned", func() error {
		if got := w.results(); !slices.Equal(got, []string{"2 Returned"}) {
			return fmt.Errorf("results %v", got)
		}
		return nil
	})
	kubes.Linger(w.namespace, false)
	w.queueIsWell("all claims are members'", "data-queue-0", "data-queue-1", "data-queue-2")
	equal(w, "its claim is the earlier one", w.queueClaim("data-queue-2").UID, was.UID)
	equal(w, "Jobs", len(w.jobs()), 0)
}

func TestAMembersClaimThatAnotherOwnerControlsIsNamedAndLeftAlone(t *testing.T) {
	tier.Second(t, "TestAClaimIsAMembersByItsNameUnlessAnotherOwnerControlsIt")
	w := newWorld(t)
	kubes.Play(w.namespace, allMoved)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
	w.create(owner)
	claim := claimTemplate("data-queue-1")
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	w.create(&claim)
	w.create(queueSet())
	w.create(queueDrain(queue))
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonNameTaken, "claim data-queue-1 has a member's name, and ConfigMap nightly controls it")
	w.eventually("the others are protected", func() error {
		if c := w.queueClaim("data-queue-2"); c == nil || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("it is %s", asJSON(c))
		}
		return nil
	})
	w.scaleQueue(1)
	w.wantClaims("the others are drained", "data-queue-0", "data-queue-1")
	if c := w.queueClaim("data-queue-1"); c.DeletionTimestamp != nil || slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) || len(c.Labels) > 0 {
		t.Errorf("it is %s", asJSON(c))
	}
	w.wantResults("2 Drained")
}

// With OrderedReady, Kubernetes adds and removes no member while one before it is not ready.
func TestAMemberThatIsNotReadyAndHoldsUpAScalingIsNamed(t *testing.T) {
	tier.Second(t, "TestEachStateAndItsWords")
	w := queueWorld(t)
	kubes.Play(w.namespace, allMoved)
	kubes.Unready(w.namespace, true)
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "queue-0"}})
	w.eventually("a member is not ready", func() error { return w.stsDrainIs("False", cachev1alpha1.ReasonMembersNotReady) })
	w.scaleQueue(2)
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonMembersNotReady, "member 0 is not ready", "OrderedReady")
	kubes.Unready(w.namespace, false)
	w.queueIsWell("it is ready, and the other one is drained", "data-queue-0", "data-queue-1")
}

// With whenScaled: Delete, the StatefulSet's controller neither makes the member's pod while the old claim is there, nor
// tries again: it watches no claims.
func TestTheStatefulSetsControllerIsWokenWhenTheOldClaimIsGone(t *testing.T) {
	tier.Second(t, "TestTheControllerIsWokenOnceForEachAbsence")
	w := queueWorld(t, withWhenScaledDelete)
	old := w.queueClaim("data-queue-2")
	w.change(old, `{"metadata":{"finalizers":["example.com/wait","cache.example.com/drain","kubernetes.io/pvc-protection"]}}`)
	w.draining(2, 2)
	w.scaleQueue(3)
	w.eventually("the StatefulSet's controller has seen it", func() error {
		if set := w.statefulSets()[0]; set.Status.ObservedGeneration != set.Generation {
			return errors.New("not yet")
		}
		return nil
	})
	w.rests()
	if _, err := w.memberRuns(2); err == nil {
		t.Error("the member runs on a claim that is being deleted")
	}
	w.change(old, `{"metadata":{"finalizers":null}}`)
	w.eventually("the member returns", func() error { _, err := w.memberRuns(2); return err })
	kubes.Play(w.namespace, allMoved)
	w.queueIsWell("its earlier volume is drained", "data-queue-0", "data-queue-1", "data-queue-2")
}

// saidAbout returns nil if an event about the claim has these words.
func (w *world) saidAbout(claim, words string) error {
	w.Helper()
	l := w.allEvents()
	for i := range l {
		if e := &l[i]; e.Related != nil && e.Related.Name == claim && strings.Contains(e.Note, words) {
			return nil
		}
	}
	return fmt.Errorf("no event about claim %s says %q", claim, words)
}

func TestADrainOfAStatefulSetThatAPersonHoldsOrSkips(t *testing.T) {
	tier.Second(t, "TestHeldDrainBeginsWhenTheAnnotationIsRemoved")
	w := queueWorld(t)
	kubes.Play(w.namespace, allMoved)
	for _, claim := range []string{"data-queue-1", "data-queue-2"} {
		w.annotateClaim(claim, cachev1alpha1.DrainHold)
	}
	w.scaleQueue(1)
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonDrainHeld, "member 2", "drain=hold")
	w.rests()
	w.restsUnstuck()
	equal(w, "Jobs", len(w.jobs()), 0)
	w.annotateClaim("data-queue-1", "")
	w.wantClaims("one is drained", "data-queue-0", "data-queue-2")
	w.annotateClaim("data-queue-2", cachev1alpha1.DrainSkip)
	w.queueIsWell("the other one is given up", "data-queue-0")
	w.wantResults("2 Skipped", "1 Drained")
}

// A backup brings claims back with labels and annotations, without finalizers; a StatefulSetDrain gets another UID.
func TestAMarkedClaimThatCameBackWithoutItsFinalizerIsLeftOverUntilAPersonRetries(t *testing.T) {
	tier.Second(t, "TestAClaimThatWasOutsideIsLeftOverUntilAPersonSaysRetry")
	w := queueWorld(t)
	kubes.Play(w.namespace, allMoved)
	w.annotateClaim("data-queue-2", cachev1alpha1.DrainHold)
	w.scaleQueue(2)
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonDrainHeld, "member 2", "drain=hold")
	w.stopOperator()
	w.change(queueDrain(queue), `{"metadata":{"finalizers":null}}`)
	w.delete(queueDrain(queue))
	w.change(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-2"}}, `{"metadata":{"finalizers":null}}`)
	w.annotateClaim("data-queue-2", "")
	w.startOperator()
	w.create(queueDrain(queue))
	w.eventually("it is left over", func() error {
		if d := w.stsDrain(); !slices.Equal(d.Status.LeftOver, []string{"data-queue-2"}) {
			return fmt.Errorf("left over: %v; drains %+v", d.Status.LeftOver, d.Status.Drains)
		}
		return w.stsDrainIs("True", "Ready")
	})
	w.annotateClaim("data-queue-2", cachev1alpha1.DrainRetry)
	w.wantClaims("it is drained", "data-queue-0", "data-queue-1")
}

func TestUnderThePolicyDeleteNothingIsDrained(t *testing.T) {
	w := queueWorld(t, func(_ *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		d.Spec.Policy = cachev1alpha1.PolicyDelete
	})
	left := w.queueClaim("data-queue-2")
	w.scaleQueue(2)
	w.queueIsWell("the claim is gone", "data-queue-0", "data-queue-1")
	w.volumeGone(left)
	for _, write := range w.journal.Writes() {
		if write.Verb == "create" && write.Resource == "jobs" {
			t.Error("a Job was made")
		}
	}
}

func TestThePolicyRetainKeepsWhatWhenScaledDeletes(t *testing.T) {
	w := queueWorld(t, withWhenScaledDelete, func(_ *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		d.Spec.Policy = cachev1alpha1.PolicyRetain
	})
	volume := w.queueClaim("data-queue-2").Spec.VolumeName
	w.scaleQueue(2)
	var kept *corev1.PersistentVolumeClaim
	w.eventually("another claim has the volume, and nothing holds it", func() error {
		kept = nil
		for _, c := range w.claims() {
			if c.Spec.VolumeName == volume {
				kept = &c
			}
		}
		if kept == nil || kept.Name == "data-queue-2" || kept.DeletionTimestamp != nil || slices.Contains(kept.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("it is %s", asJSON(kept))
		}
		return w.stsDrainIs("True", "Ready")
	})
	w.scaleQueue(3)
	w.wantClaims("the member is back", "data-queue-0", "data-queue-1", "data-queue-2", kept.Name)
	w.eventually("all is well", func() error { return w.stsDrainIs("True", "Ready") })
}

func TestANamespaceThatIsDeletedInMidDrainGoes(t *testing.T) {
	w := queueWorld(t)
	w.draining(1, 2)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is gone", func() error {
		if err := admin.Get(w.Context(), client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("it is there: "+asJSON(namespace.Status)))
		}
		return nil
	})
}

func TestADrainerBesideASidecarLetsAStatefulSetsClaimGo(t *testing.T) {
	tier.Second(t, "TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo")
	w := queueWorld(t, func(_ *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		d.Spec.Template.Spec.Raw = []byte(`{"restartPolicy":"OnFailure","containers":[
			{"name":"drainer","image":"drain","volumeMounts":[{"name":"data","mountPath":"/data"}]},{"name":"proxy","image":"proxy"}]}`)
	})
	kubes.Play(w.namespace, allMoved)
	w.scaleQueue(2)
	w.queueIsWell("it is drained", "data-queue-0", "data-queue-1")
	w.wantResults("2 Drained")
}

func TestAFailedDrainOfAStatefulSetIsTriedAgainByItself(t *testing.T) {
	tier.Second(t, "TestDrainThatFailedForASurvivorComesRightByItself")
	w := queueWorld(t, func(_ *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) { d.Spec.BackoffLimit = new(int32) })
	kubes.Play(w.namespace, func(player.Drainer) player.Act { return player.Act{ExitCode: 7, Message: "queue-0 does not answer"} })
	w.scaleQueue(2)
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonDrainFailed, "exit code 7", "queue-0 does not answer", "failed attempts: 1, the next one is at ")
	w.restsWithoutAWrite()
	w.restsUnstuck()
	first := w.jobs()[0].UID
	w.stopOperator()
	w.clock = ahead{by: 24 * time.Hour}
	w.startOperator()
	w.eventually("another attempt, and a count", func() error {
		for _, c := range w.claims() {
			if jobs := w.jobs(); c.Annotations[cachev1alpha1.AnnotationAttempts] != "" && len(jobs) == 1 && jobs[0].UID != first {
				return nil
			}
		}
		return errors.New("none")
	})
	kubes.Play(w.namespace, allMoved)
	w.queueIsWell("it succeeds", "data-queue-0", "data-queue-1")
}

// restsWithoutAWrite checks that the operator, also another one that starts, writes nothing.
func (w *world) restsWithoutAWrite() {
	w.Helper()
	w.rests()
	w.still()
	before, events := len(w.journal.Writes()), w.journal.Events()
	for range 10 {
		w.reconcile()
	}
	w.restartOperator()
	w.rests()
	for range 10 {
		w.reconcile()
	}
	if wrote := w.journal.Writes()[before:]; len(wrote) != 0 || w.journal.Events() != events {
		w.Errorf("wrote %v and %d events, want nothing", wrote, w.journal.Events()-events)
	}
}

func TestAtRestNothingIsWrittenForAStatefulSet(t *testing.T) {
	w := queueWorld(t)
	w.restsWithoutAWrite()
	kubes.Play(w.namespace, allMoved)
	w.scaleQueue(1)
	w.queueIsWell("two are drained", "data-queue-0")
	w.restsWithoutAWrite()
}

// Its node is gone: only a person, or the node's end, takes the pod away.
func TestAMemberThatDoesNotEndIsNotDrained(t *testing.T) {
	w := queueWorld(t)
	kubes.Linger(w.namespace, true)
	w.scaleQueue(2)
	w.stsDrainSays("Progressing", "True", cachev1alpha1.ReasonDraining, "member 2", "still shutting down")
	w.rests()
	w.stsDrainSays("Progressing", "True", cachev1alpha1.ReasonDraining, "member 2", "still shutting down")
	equal(w, "Jobs", len(w.jobs()), 0)
	if c := w.queueClaim("data-queue-2"); c.DeletionTimestamp != nil {
		t.Error("its claim is being deleted")
	}
	kubes.Play(w.namespace, allMoved)
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "queue-2"}}, client.GracePeriodSeconds(0))
	w.queueIsWell("it is drained when the pod is gone", "data-queue-0", "data-queue-1")
}

func TestAVolumeWithoutAFileSystemIsDrained(t *testing.T) {
	tier.Second(t, "TestTheVolumesOfAStatefulSetsDepartedMembersAreDrainedOneAfterTheOther")
	w := queueWorld(t, func(set *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		set.Spec.VolumeClaimTemplates[0].Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		c := &set.Spec.Template.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
		d.Spec.Template.Spec.Raw = []byte(`{"containers":[{"name":"drainer","image":"drain","volumeDevices":[{"name":"data","devicePath":"/dev/data"}]}]}`)
	})
	job := w.draining(2, 2)
	equal(w, "the mode of the claim that took the volume over", w.queueClaim(job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName).Spec.VolumeMode, ptr.To(corev1.PersistentVolumeBlock))
	equal(w, "devices", job.Spec.Template.Spec.Containers[0].VolumeDevices, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}})
	kubes.Play(w.namespace, allMoved)
	w.queueIsWell("it is drained", "data-queue-0", "data-queue-1")
}

// A policy denies a claim its finalizer. Between two attempts, status says the same.
func TestAClaimThatCannotBeProtectedIsNamedAllTheTime(t *testing.T) {
	denies := func(w *world, claim string) {
		w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
			if write.Verb == "patch" && write.Name == claim {
				return operator.Denied
			}
			return operator.NoFault
		})
	}
	// still checks that reconciles between two attempts don't change status.
	still := func(w *world, degraded func() *metav1.Condition) {
		for range 3 {
			w.reconcile()
			if c := degraded(); c == nil || c.Reason != cachev1alpha1.ReasonReconcileError {
				w.Fatalf("status says %s", asJSON(c))
			}
		}
		w.journal.Inject(nil)
		w.restartOperator() // otherwise it tries again after a while
	}
	t.Run("of a StatefulSet", func(t *testing.T) {
		w := newWorld(t)
		denies(w, "data-queue-1")
		w.create(queueSet())
		w.create(queueDrain(queue))
		w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonReconcileError, "data-queue-1")
		still(w, func() *metav1.Condition { return meta.FindStatusCondition(w.stsDrain().Status.Conditions, "Degraded") })
		w.eventually("all are protected", func() error { return w.stsDrainIs("True", "Ready") })
	})
	t.Run("of a Memcached", func(t *testing.T) {
		w := newWorld(t)
		w.storageCluster(apitest.MakeMemcached(name), 2)
		denies(w, claimName(1))
		w.byHand = true // a person takes the finalizer off
		w.change(w.claim(1), `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
		if message := w.condition("Degraded", "True", cachev1alpha1.ReasonReconcileError); !strings.Contains(message, claimName(1)) {
			t.Errorf("it says %q", message)
		}
		still(w, func() *metav1.Condition { return meta.FindStatusCondition(w.memcached().Status.Conditions, "Degraded") })
		w.settled(2)
		w.condition("Degraded", "False", "Healthy")
	})
}

// A drain's Job is denied each time that it is tried. Status says so all the time, and is not written again.
func TestAJobThatIsDeniedAgainWritesNoStatus(t *testing.T) {
	tier.Second(t, "TestAClaimThatCannotBeProtectedIsNamedAllTheTime")
	denied := func(w *world) (retry func(), attempts *atomic.Int32) {
		held := testingclock.NewFakePassiveClock(time.Now())
		w.clock, attempts = held, &atomic.Int32{}
		w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
			if write.Verb == "create" && write.Resource == "jobs" {
				attempts.Add(1)
				return operator.Denied
			}
			return operator.NoFault
		})
		w.startOperator()
		return func() {
			for _, later := range []time.Duration{20 * time.Second, 3 * time.Second, 3 * time.Second} {
				held.SetTime(held.Now().Add(later))
				_, _ = w.running().Reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
				_, _ = w.running().Drains.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(queue)})
			}
		}, attempts
	}
	check := func(w *world, retry func(), attempts *atomic.Int32, message func() string) {
		w.eventually("status says so", func() error {
			if says := message(); attempts.Load() < 3 || !strings.Contains(says, "injected") {
				retry()
				return fmt.Errorf("after %d attempts: %s", attempts.Load(), says)
			}
			return nil
		})
		for range 3 { // what waits for its turn is written
			retry()
			w.rests()
		}
		before, tried := len(w.journal.Writes()), attempts.Load()
		for range 4 {
			retry()
			w.rests()
		}
		if n := attempts.Load() - tried; n < 4 {
			w.Errorf("%d attempts in four times 20 seconds", n)
		}
		for _, write := range w.journal.Writes()[before:] {
			if strings.HasSuffix(write.Resource, "/status") {
				w.Errorf("wrote %s: %s", write, write.Body)
			}
		}
	}
	t.Run("of a StatefulSet", func(t *testing.T) {
		w := newNamespace(t)
		retry, attempts := denied(w)
		w.create(queueSet())
		w.create(queueDrain(queue))
		w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
		w.scaleQueue(2)
		check(w, retry, attempts, func() string { return asJSON(w.stsDrain().Status.Drains) })
	})
	t.Run("of a Memcached", func(t *testing.T) {
		w := newNamespace(t)
		retry, attempts := denied(w)
		w.storageCluster(apitest.MakeMemcached(name), 2)
		w.scale(1)
		check(w, retry, attempts, func() string { return asJSON(w.memcached().Status.Drains) })
	})
}

// Other ordinals are wanted in mid-drain: the member is back empty, and the others depart.
func TestOrdinalsThatStartElsewhereInMidDrain(t *testing.T) {
	tier.Second(t, "TestAMemberThatReturnsInMidDrainStartsEmptyAndDoesNotWait")
	w := queueWorld(t)
	w.draining(2, 2)
	w.change(queueSet(), `{"spec":{"ordinals":{"start":2}}}`)
	w.eventually("the member is back", func() error { _, err := w.memberRuns(2); return err })
	kubes.Play(w.namespace, allMoved)
	w.queueIsWell("all that departed are drained", "data-queue-2", "data-queue-3")
	results := w.results()
	slices.Sort(results)
	if !slices.Equal(results, []string{"0 Drained", "1 Drained", "2 Drained"}) {
		t.Errorf("results %v", results)
	}
}

// The templates of claims can't be changed, so a person makes the StatefulSet again, and leaves its pods.
func TestAStatefulSetThatIsMadeAgainWithOtherClaimTemplates(t *testing.T) {
	tier.Second(t, "TestAMembersVolumesAreDrainedTogether")
	w := queueWorld(t)
	w.draining(2, 2)
	w.delete(queueSet(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.eventually("it is gone", func() error {
		if n := len(w.statefulSets()); n > 0 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	set := queueSet()
	set.Spec.Replicas = ptr.To[int32](2)
	set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, claimTemplate("wal"))
	w.create(set)
	kubes.Play(w.namespace, allMoved)
	w.eventually("the departed volume is drained", func() error {
		if got := w.queueClaims(); slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, "data-queue-2") }) {
			return fmt.Errorf("claims %v", got)
		}
		return nil
	})
	for _, pod := range []string{"queue-0", "queue-1"} {
		w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}})
	}
	w.queueIsWell("members have both volumes", "data-queue-0", "data-queue-1", "wal-queue-0", "wal-queue-1")
	w.scaleQueue(1)
	w.queueIsWell("both are drained", "data-queue-0", "wal-queue-0")
}

// The StatefulSetDrain is renamed: the volume that was set aside is left over, until a person asks for its
// drain. If two were made in one second, the one whose name comes first counts as the older one. So the
// successor has a later name.
func TestAStatefulSetDrainOfAnotherNameInMidDrain(t *testing.T) {
	for what, first := range map[string]bool{"made before the other one goes": true, "made when the other one is gone": false} {
		t.Run(what, func(t *testing.T) {
			tier.Second(t, "TestADeletedStatefulSetDrainLeavesNothingStuck")
			w := queueWorld(t)
			if first {
				w.create(queueDrain("successor"))
				w.next(func(d *cachev1alpha1.StatefulSetDrain) error {
					if c := meta.FindStatusCondition(d.Status.Conditions, "Degraded"); c == nil || c.Reason != cachev1alpha1.ReasonStatefulSetTaken {
						return fmt.Errorf("Degraded is %+v", c)
					}
					return nil
				})
			}
			w.draining(2, 2)
			w.delete(queueDrain(queue))
			if !first {
				w.eventually("it is gone", func() error {
					if n := len(w.stsDrains()); n > 0 {
						return fmt.Errorf("%d StatefulSetDrains", n)
					}
					return nil
				})
				w.create(queueDrain("successor"))
			}
			var left string
			w.next(func(d *cachev1alpha1.StatefulSetDrain) error {
				c := meta.FindStatusCondition(d.Status.Conditions, "Ready")
				if c == nil || c.Status != "True" || len(d.Status.LeftOver) != 1 {
					return fmt.Errorf("status %s, claims %v", asJSON(d.Status), w.queueClaims())
				}
				left = d.Status.LeftOver[0]
				return nil
			})
			if !strings.HasPrefix(left, "data-queue-2-aside-") {
				t.Fatalf("left over is %s", left)
			}
			w.wantedClaimsOfNext("data-queue-0", "data-queue-1", left)
			w.eventually("an event names the claim that stays", func() error { return w.saidAbout(left, "it stays, with its volume, and nothing drains it") })
			if c := w.queueClaim(left); c.DeletionTimestamp != nil || slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
				t.Errorf("it is %s", asJSON(c))
			}
			kubes.Play(w.namespace, allMoved)
			w.scaleQueue(1)
			w.wantedClaimsOfNext("data-queue-0", left)
			w.annotateClaim(left, cachev1alpha1.DrainRetry)
			w.wantedClaimsOfNext("data-queue-0")
			w.next(func(d *cachev1alpha1.StatefulSetDrain) error {
				if last := d.Status.LastDrains; len(last) != 2 || last[0].Ordinal != 2 || last[0].Result != "Drained" {
					return fmt.Errorf("status %s", asJSON(d.Status))
				}
				return nil
			})
		})
	}
}

// next waits until the second StatefulSetDrain, the successor, is as wanted.
func (w *world) next(is func(*cachev1alpha1.StatefulSetDrain) error) {
	w.Helper()
	w.eventually("the next one", func() error {
		d := &cachev1alpha1.StatefulSetDrain{}
		if err := admin.Get(w.Context(), w.key("successor"), d); err != nil {
			return err
		}
		return is(d)
	})
}

// wantedClaimsOfNext is wantClaims without the first StatefulSetDrain.
func (w *world) wantedClaimsOfNext(want ...string) {
	w.Helper()
	w.eventually("the next one drains", func() error {
		if got := w.queueClaims(); !slices.Equal(got, want) {
			return fmt.Errorf("claims %v", got)
		}
		return nil
	})
}

func TestAMemcachedAndAStatefulSetDrainInOneNamespace(t *testing.T) {
	tier.Second(t, "TestTheVolumesOfAStatefulSetsDepartedMembersAreDrainedOneAfterTheOther")
	w := queueWorld(t)
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		if d.SourceID == "" {
			return allMoved(d)
		}
		return player.Succeed(7)(d)
	})
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.scaleQueue(2)
	w.scale(2)
	w.settled(2)
	w.queueIsWell("both are drained", "data-cache-0", "data-cache-1", "data-queue-0", "data-queue-1")
	second := queueDrain("of-cache")
	second.Spec.StatefulSetName = name
	w.create(second)
	w.eventually("a Memcached's StatefulSet is refused", func() error {
		d := &cachev1alpha1.StatefulSetDrain{}
		if err := admin.Get(w.Context(), w.key("of-cache"), d); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, "Degraded"); c == nil || c.Reason != cachev1alpha1.ReasonStatefulSetOfMemcached {
			return fmt.Errorf("%s", asJSON(d.Status))
		}
		return nil
	})
	w.scale(1)
	w.settled(1)
	w.queueIsWell("a Memcached drains by itself", "data-cache-0", "data-queue-0", "data-queue-1")
}

func TestAStatefulSetThatIsScaledAgainAndAgain(t *testing.T) {
	tier.Second(t, "TestTheVolumesOfAStatefulSetsDepartedMembersAreDrainedOneAfterTheOther")
	w := queueWorld(t, func(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) { set.Spec.Replicas = ptr.To[int32](5) })
	kubes.Play(w.namespace, allMoved)
	for _, replicas := range []int{1, 4, 0} {
		w.scaleQueue(replicas)
	}
	w.eventually("it hibernates", func() error { // member 4 was drained before that, or is when members return
		if d := w.stsDrain(); d.Status.Replicas != 0 {
			return fmt.Errorf("status has %d replicas", d.Status.Replicas)
		}
		return podsGone(w)
	})
	w.scaleQueue(2)
	w.queueIsWell("all that departed are drained", "data-queue-0", "data-queue-1")
	results := w.results()
	if !slices.Contains(results, "4 Drained") || slices.ContainsFunc(results, func(r string) bool { return strings.HasPrefix(r, "0 ") }) {
		t.Errorf("member 4 departed for good, and member 0 at no time; results %v", results)
	}
}

// podsGone returns nil if no pod is left.
func podsGone(w *world) error {
	w.Helper()
	if n := len(w.pods()); n > 0 {
		return fmt.Errorf("%d pods", n)
	}
	return nil
}

func TestOneOfAMembersVolumesWasNeverBound(t *testing.T) {
	for mode, drainer := range map[corev1.PersistentVolumeMode]string{
		corev1.PersistentVolumeFilesystem: `"volumeMounts":[{"name":"data","mountPath":"/data"},{"name":"wal","mountPath":"/wal"}]`,
		corev1.PersistentVolumeBlock:      `"volumeMounts":[{"name":"data","mountPath":"/data"}],"volumeDevices":[{"name":"wal","devicePath":"/dev/wal"}]`,
	} {
		t.Run(string(mode), func(t *testing.T) {
			tier.Second(t, "TestAMembersVolumesAreDrainedTogether")
			oneWasNeverBound(t, mode, drainer)
		})
	}
}

func oneWasNeverBound(t *testing.T, mode corev1.PersistentVolumeMode, drainer string) {
	t.Helper()
	w := queueWorld(t, func(set *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		late := claimTemplate("wal")
		late.Spec.StorageClassName, late.Spec.VolumeMode = ptr.To(player.LateClass), &mode
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, late)
		d.Spec.Template.Spec.Raw = []byte(`{"containers":[{"name":"drainer","image":"drain",` + drainer + `}]}`)
	})
	kubes.Afflict(w.namespace, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
	})
	w.scaleQueue(4)
	w.eventually("one of two volumes is bound", func() error {
		data, wal := w.queueClaim("data-queue-3"), w.queueClaim("wal-queue-3")
		if data == nil || wal == nil || data.Spec.VolumeName == "" || wal.Spec.VolumeName != "" || !slices.Contains(data.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("%s %s", asJSON(data), asJSON(wal))
		}
		return nil
	})
	job := w.draining(3, 3)
	mounted := map[string]bool{}
	for _, v := range job.Spec.Template.Spec.Volumes {
		mounted[v.Name] = v.PersistentVolumeClaim != nil
	}
	if _, empty := mounted["wal"]; !mounted["data"] || mounted["wal"] || empty == (mode == corev1.PersistentVolumeBlock) {
		t.Errorf("it mounts %s", asJSON(job.Spec.Template.Spec.Volumes))
	}
	kubes.Afflict(w.namespace, nil)
	kubes.Play(w.namespace, allMoved)
	w.eventually("the volume is drained", func() error {
		for _, c := range w.claims() {
			if strings.HasPrefix(c.Name, "data-queue-3") || strings.HasPrefix(c.Name, "wal-queue-3") && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
				return fmt.Errorf("claim %s", asJSON(c))
			}
		}
		return w.stsDrainIs("True", "Ready")
	})
}
