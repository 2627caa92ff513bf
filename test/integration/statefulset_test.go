package integration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

const queue = "queue"

// moved is the last report of a drainer of these tests.
const moved = `{"found":3,"moved":2,"skipped":1}`

func allMoved(player.Drainer) player.Act { return player.Act{Message: moved} }

// queueWorld has a StatefulSet of three members, and a StatefulSetDrain that protects them.
func queueWorld(t *testing.T, change ...func(*appsv1.StatefulSet, *cachev1alpha1.StatefulSetDrain)) *world {
	t.Helper()
	w := newWorld(t)
	set, drain := queueSet(), queueDrain(queue)
	for _, c := range change {
		c(set, drain)
	}
	w.create(set)
	w.create(drain)
	w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
	return w
}

func queueSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": queue}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: queue},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), ServiceName: "queues", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "server", Image: "queue", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claimTemplate("data")},
		},
	}
}

func claimTemplate(name string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

func queueDrain(name string) *cachev1alpha1.StatefulSetDrain {
	return &cachev1alpha1.StatefulSetDrain{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: cachev1alpha1.StatefulSetDrainSpec{
			StatefulSetName: queue, Receipt: "receipt.found == receipt.moved + receipt.skipped",
			Template: cachev1alpha1.DrainTemplate{Spec: runtime.RawExtension{
				Raw: []byte(`{"containers":[{"name":"drainer","image":"drain","volumeMounts":[{"name":"data","mountPath":"/data"}]}]}`),
			}},
		},
	}
}

func (w *world) stsDrain() *cachev1alpha1.StatefulSetDrain {
	w.Helper()
	d := &cachev1alpha1.StatefulSetDrain{}
	if err := admin.Get(w.Context(), w.key(queue), d); err != nil {
		w.Fatal(err)
	}
	return d
}

// drainIs returns nil if the condition Ready has this status, for this reason, of the present spec.
func (w *world) stsDrainIs(status metav1.ConditionStatus, reason string) error {
	w.Helper()
	return w.stsDrainCondition("Ready", status, reason)
}

func (w *world) stsDrainCondition(kind string, status metav1.ConditionStatus, reason string) error {
	w.Helper()
	d := w.stsDrain()
	if c := meta.FindStatusCondition(d.Status.Conditions, kind); c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != d.Generation {
		return fmt.Errorf("%s is %+v; drains %+v", kind, c, d.Status.Drains)
	}
	return nil
}

func (w *world) scaleQueue(replicas int) {
	w.Helper()
	w.change(queueSet(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// queueClaims are the names of the claims of the namespace.
func (w *world) queueClaims() (names []string) {
	w.Helper()
	var list corev1.PersistentVolumeClaimList
	w.list(&list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// draining scales the StatefulSet down, and returns the Job of the member with this ordinal. Its drainer does not end.
func (w *world) draining(replicas, ordinal int) (job *batchv1.Job) {
	w.Helper()
	kubes.Play(w.namespace, player.Hang)
	w.scaleQueue(replicas)
	w.eventually(fmt.Sprintf("member %d is drained", ordinal), func() (err error) {
		job, err = w.runningDrain(ordinal, strconv.Itoa(replicas))
		return err
	})
	return job
}

// runningDrain returns the Job that drains the member with this ordinal, and its running pod.
func (w *world) runningDrain(ordinal int, replicas string) (*batchv1.Job, error) {
	w.Helper()
	var jobs batchv1.JobList
	w.list(&jobs)
	var pods corev1.PodList
	w.list(&pods)
	for i := range jobs.Items {
		job := &jobs.Items[i]
		env := map[string]string{}
		for _, v := range job.Spec.Template.Spec.Containers[0].Env {
			env[v.Name] = v.Value
		}
		if job.DeletionTimestamp != nil || env["ORDINAL"] != fmt.Sprint(ordinal) || env["REPLICAS"] != replicas {
			continue
		}
		for k := range pods.Items {
			if metav1.IsControlledBy(&pods.Items[k], job) && pods.Items[k].Status.Phase == corev1.PodRunning {
				return job, nil
			}
		}
	}
	return nil, fmt.Errorf("no drainer of member %d, to %s members, runs; %d Jobs, status %+v", ordinal, replicas, len(jobs.Items), w.stsDrain().Status)
}

// memberRuns returns the UID of the member's running pod.
func (w *world) memberRuns(ordinal int) (string, error) {
	w.Helper()
	pod := &corev1.Pod{}
	if err := admin.Get(w.Context(), w.key(fmt.Sprintf("%s-%d", queue, ordinal)), pod); err != nil {
		return "", err
	}
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return "", fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
	}
	return string(pod.UID), nil
}

func (w *world) wantClaims(what string, want ...string) {
	w.Helper()
	w.eventually(what, func() error {
		if got := w.queueClaims(); !slices.Equal(got, want) {
			return fmt.Errorf("claims %v, want %v; status %+v", got, want, w.stsDrain().Status)
		}
		return nil
	})
}

// wantResults waits for these results of drains in status, the newest first. They may come later than the claims go.
func (w *world) wantResults(want ...string) {
	w.Helper()
	w.eventually("results", func() error {
		if got := w.results(); !slices.Equal(got, want) {
			return fmt.Errorf("they are %v, want %v", got, want)
		}
		return nil
	})
}

func (w *world) results() (all []string) {
	for _, d := range w.stsDrain().Status.LastDrains {
		all = append(all, fmt.Sprintf("%d %s", d.Ordinal, d.Result))
	}
	return all
}

func TestTheVolumesOfAStatefulSetsDepartedMembersAreDrainedOneAfterTheOther(t *testing.T) {
	w := queueWorld(t)
	w.draining(1, 2)
	if _, err := w.runningDrain(1, "1"); err == nil {
		t.Error("two members are drained at once")
	}
	job, err := w.runningDrain(2, "1")
	if err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template
	if claim := pod.Spec.Volumes[0].PersistentVolumeClaim; pod.Spec.Volumes[0].Name != "data" || claim == nil || !strings.HasPrefix(claim.ClaimName, "data-queue-2-aside-") {
		t.Errorf("it mounts %+v", pod.Spec.Volumes[0])
	}
	if pod.Labels["app"] != "" || *pod.Spec.ActiveDeadlineSeconds != 3600 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("its pod has labels %v, deadline %d", pod.Labels, *pod.Spec.ActiveDeadlineSeconds)
	}
	if err := w.stsDrainIs("False", "Draining"); err != nil {
		t.Error(err)
	}
	w.metricsAre(map[string]float64{
		"members_wanted StatefulSetDrain queue": 1, "drains_open StatefulSetDrain queue Waiting": 1, "claims_held StatefulSetDrain queue": 2,
		"condition StatefulSetDrain queue Draining Progressing": 1,
	})
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("only the survivor's claim is left", "data-queue-0")
	w.eventually("all is well", func() error { return w.stsDrainIs("True", "Ready") })
	w.metricsAre(map[string]float64{
		"drains_total StatefulSetDrain Drained": 2, "drains_total StatefulSetDrain Failed": 0, "claims_released_total StatefulSetDrain Drained": 2,
		"drain_duration_seconds StatefulSetDrain": 2, "drain_phase_duration_seconds StatefulSetDrain Waiting": 2,
		"drain_phase_duration_seconds StatefulSetDrain Adding": 2, "drain_phase_duration_seconds StatefulSetDrain Releasing": 2,
		"claims_held StatefulSetDrain queue": 0, "drains_open StatefulSetDrain queue Waiting": 0,
	})
	w.wantResults("1 Drained", "2 Drained")
	last := w.stsDrain().Status.LastDrains[0]
	if last.Message != moved {
		t.Errorf("the drainer's message is %q", last.Message)
	}
	w.eventually("an event has the drainer's message", func() error { return w.saidAbout(last.Claims[0], moved) })
}

func TestAMemberThatReturnsInMidDrainStartsEmptyAndDoesNotWait(t *testing.T) {
	w := queueWorld(t)
	w.draining(2, 2)
	w.scaleQueue(3)
	w.eventually("the member runs", func() error { _, err := w.memberRuns(2); return err })
	w.eventually("its earlier volume is drained to three members", func() error { _, err := w.runningDrain(2, "3"); return err })
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("the earlier volume is gone", "data-queue-0", "data-queue-1", "data-queue-2")
	w.eventually("all is well", func() error { return w.stsDrainIs("True", "Ready") })
}

func TestAClaimOfAStatefulSetThatAPersonDeletedIsDrained(t *testing.T) {
	w := queueWorld(t)
	kubes.Play(w.namespace, player.Hang)
	w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-1"}})
	before, err := w.memberRuns(1)
	if err != nil {
		t.Fatal(err)
	}
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "queue-1"}})
	w.eventually("the member returns with another volume", func() error {
		now, err := w.memberRuns(1)
		if err == nil && now == before {
			err = errors.New("it has not ended")
		}
		return err
	})
	w.eventually("the deleted claim's volume is drained", func() error { _, err := w.runningDrain(1, "3"); return err })
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("the earlier volume is gone", "data-queue-0", "data-queue-1", "data-queue-2")
}

func TestADrainWhoseReceiptIsFalseFailsWithTheDrainersWords(t *testing.T) {
	w := queueWorld(t)
	const lost = `{"found":3,"moved":1,"skipped":1}`
	kubes.Play(w.namespace, func(player.Drainer) player.Act { return player.Act{Message: lost} })
	w.scaleQueue(2)
	w.eventually("status says why", func() error {
		if err := w.stsDrainCondition("Degraded", "True", "DrainFailed"); err != nil {
			return err
		}
		c := meta.FindStatusCondition(w.stsDrain().Status.Conditions, "Degraded")
		for _, want := range []string{"ReceiptInvalid", "spec.receipt is false", lost} {
			if !strings.Contains(c.Message, want) {
				return fmt.Errorf("%q lacks %q", c.Message, want)
			}
		}
		return nil
	})
	w.metricsAre(map[string]float64{"drains_total StatefulSetDrain Failed": 1, "drains_open StatefulSetDrain queue Failed": 1})
	failed := w.stsDrain().Status.Drains[0].Claims[0]
	w.eventually("an event says it, too", func() error { return w.saidAbout(failed, lost) })
	if c := w.queueClaim(failed); c == nil || c.DeletionTimestamp != nil || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
		t.Errorf("its claim is %s", asJSON(c))
	}
	claims := w.queueClaims()
	kubes.Play(w.namespace, allMoved)
	for _, name := range claims {
		if strings.Contains(name, "-2") {
			w.change(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"annotations":{"cache.example.com/drain":"retry"}}}`)
		}
	}
	w.wantClaims("the retry drains it", "data-queue-0", "data-queue-1")
}

func TestNothingOfAStatefulSetDepartsAtZeroReplicas(t *testing.T) {
	w := queueWorld(t)
	w.scaleQueue(0)
	w.eventually("status says so", func() error { return w.stsDrainIs("True", "Hibernated") })
	w.eventually("all members have ended", func() error {
		var pods corev1.PodList
		w.list(&pods)
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	if got := w.queueClaims(); len(got) != 3 || len(w.stsDrain().Status.Drains) > 0 {
		t.Errorf("claims %v, status %+v", got, w.stsDrain().Status)
	}
	w.scaleQueue(3)
	w.eventually("they are back", func() error { return w.stsDrainIs("True", "Ready") })
}

func TestAClaimThatWasOutsideIsLeftOverUntilAPersonSaysRetry(t *testing.T) {
	w := newWorld(t)
	kubes.Play(w.namespace, allMoved)
	left := claimTemplate("data")
	left.Name = "data-queue-7"
	w.create(&left)
	w.create(queueSet())
	conflict := operator.Conflict // the first write about the claim fails
	w.journal.Inject(func(_ int, write operator.Write) (fault operator.Fault) {
		if write.Name == left.Name {
			fault, conflict = conflict, operator.NoFault
		}
		return fault
	})
	w.create(queueDrain(queue))
	w.eventually("it is left over", func() error {
		if d := w.stsDrain(); !slices.Equal(d.Status.LeftOver, []string{"data-queue-7"}) {
			return fmt.Errorf("left over: %v", d.Status.LeftOver)
		}
		return w.stsDrainIs("True", "Ready")
	})
	w.change(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-7"}}, `{"metadata":{"annotations":{"cache.example.com/drain":"retry"}}}`)
	w.wantClaims("it is drained", "data-queue-0", "data-queue-1", "data-queue-2")
}

func TestATemplateThatTheAPIServerRefusesIsSaidBeforeTheFirstDrain(t *testing.T) {
	w := queueWorld(t)
	w.change(queueDrain(queue), `{"spec":{"template":{"spec":{"containers":[{"name":"drainer","image":"drain","volumeMount":[]}]}}}}`)
	w.eventually("status has the API server's words", func() error {
		if err := w.stsDrainCondition("Degraded", "True", "TemplateRefused"); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(w.stsDrain().Status.Conditions, "Degraded"); !strings.Contains(c.Message, `unknown field "spec.template.spec.containers[0].volumeMount"`) {
			return fmt.Errorf("it says %q", c.Message)
		}
		return nil
	})
	w.change(queueDrain(queue), `{"spec":{"template":{"spec":{"containers":[{"name":"drainer","image":"drain"}]}}}}`)
	w.eventually("a corrected one is taken", func() error { return w.stsDrainIs("True", "Ready") })
	w.change(queueDrain(queue), `{"spec":{"receipt":"receipt.found =="}}`)
	w.eventually("so is an expression", func() error { return w.stsDrainCondition("Degraded", "True", "ReceiptRuleInvalid") })
}

func TestAJobThatNeverRanTakesTheCorrectedTemplate(t *testing.T) {
	w := queueWorld(t)
	kubes.Play(w.namespace, allMoved)
	kubes.HoldDrainers(w.namespace, true) // as if the image could not be pulled
	w.scaleQueue(2)
	madeWith := func(image string) func() error {
		return func() error {
			var jobs batchv1.JobList
			w.list(&jobs)
			for i := range jobs.Items {
				if is := jobs.Items[i].Spec.Template.Spec.Containers[0].Image; is == image {
					return nil
				}
			}
			return fmt.Errorf("none of %d Jobs has image %s", len(jobs.Items), image)
		}
	}
	w.eventually("a Job is made", madeWith("drain"))
	w.change(queueDrain(queue), `{"spec":{"template":{"spec":{"containers":[{"name":"drainer","image":"corrected"}]}}}}`)
	w.eventually("it is made anew", madeWith("corrected"))
	kubes.HoldDrainers(w.namespace, false)
	w.wantClaims("the member is drained", "data-queue-0", "data-queue-1")
}

func TestADrainEndsWhoseClaimIsDeletedMeanwhile(t *testing.T) {
	w := queueWorld(t)
	job := w.draining(2, 2)
	mounted := job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
	w.rests() // the operator has seen that its drainer runs
	w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: mounted}})
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("the claim goes", "data-queue-0", "data-queue-1")
	begun := 0
	for _, write := range w.journal.Writes() {
		if write.Verb == "create" && write.Resource == "jobs" {
			begun++
		}
	}
	equal(w, "the drain has begun so many times", begun, 1)
	w.wantResults("2 Drained")
}

func TestARetainedMemberReturnsWithItsData(t *testing.T) {
	w := queueWorld(t, func(_ *appsv1.StatefulSet, d *cachev1alpha1.StatefulSetDrain) {
		d.Spec.Policy = cachev1alpha1.PolicyRetain
	})
	claim := &corev1.PersistentVolumeClaim{}
	if err := admin.Get(t.Context(), w.key("data-queue-2"), claim); err != nil {
		t.Fatal(err)
	}
	w.scaleQueue(2)
	w.eventually("the claim has no finalizer", func() error {
		now := &corev1.PersistentVolumeClaim{}
		if err := admin.Get(t.Context(), w.key("data-queue-2"), now); err != nil {
			return err
		}
		if slices.Contains(now.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return errors.New("it has the finalizer")
		}
		return nil
	})
	w.scaleQueue(3)
	w.eventually("the member is back, protected", func() error {
		if _, err := w.memberRuns(2); err != nil {
			return err
		}
		return w.stsDrainIs("True", "Ready")
	})
	now := &corev1.PersistentVolumeClaim{}
	if err := admin.Get(t.Context(), w.key("data-queue-2"), now); err != nil || now.UID != claim.UID {
		t.Errorf("it has another claim: %v", err)
	}
}

func TestOnlyOneStatefulSetDrainLooksAfterAStatefulSet(t *testing.T) {
	w := queueWorld(t)
	second := queueDrain("second")
	w.create(second)
	w.eventually("the second one is refused", func() error {
		d := &cachev1alpha1.StatefulSetDrain{}
		if err := admin.Get(t.Context(), w.key("second"), d); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, "Degraded"); c == nil || c.Reason != "StatefulSetTaken" || !strings.Contains(c.Message, queue) {
			return fmt.Errorf("Degraded is %+v", c)
		}
		return nil
	})
	w.delete(queueDrain(queue))
	w.eventually("it takes over when the first one is gone", func() error {
		d := &cachev1alpha1.StatefulSetDrain{}
		if err := admin.Get(t.Context(), w.key("second"), d); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, "Ready"); c == nil || c.Status != "True" {
			return fmt.Errorf("Ready is %+v", c)
		}
		return nil
	})
}

func TestADeletedStatefulSetDrainLeavesNothingStuck(t *testing.T) {
	w := queueWorld(t)
	w.draining(2, 2)
	w.delete(queueDrain(queue))
	w.eventually("it goes, and takes its Jobs with it", func() error {
		err := admin.Get(t.Context(), w.key(queue), &cachev1alpha1.StatefulSetDrain{})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		var jobs batchv1.JobList
		w.list(&jobs)
		if err == nil || len(jobs.Items) > 0 {
			return fmt.Errorf("%w, %d Jobs", cmp.Or(err, errors.New("it is there")), len(jobs.Items))
		}
		return nil
	})
	var list corev1.PersistentVolumeClaimList
	w.list(&list)
	for i := range list.Items {
		if c := &list.Items[i]; slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) || c.DeletionTimestamp != nil {
			t.Errorf("claim %s has finalizers %v, deleted %v", c.Name, c.Finalizers, c.DeletionTimestamp)
		}
	}
	if len(list.Items) != 3 {
		t.Errorf("claims %v: one that is not drained is lost", w.queueClaims())
	}
}

// A member may have several volumes: they are drained together, from one Job.
func TestAMembersVolumesAreDrainedTogether(t *testing.T) {
	w := queueWorld(t, func(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, claimTemplate("wal"))
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 4}
	})
	job := w.draining(2, 6)
	var mounted []string
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && strings.HasPrefix(v.PersistentVolumeClaim.ClaimName, v.Name+"-queue-6-aside-") {
			mounted = append(mounted, v.Name)
		}
	}
	if !slices.Equal(mounted, []string{"data", "wal"}) {
		t.Errorf("it mounts %+v", job.Spec.Template.Spec.Volumes)
	}
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("both are gone", "data-queue-4", "data-queue-5", "wal-queue-4", "wal-queue-5")
}

// Kubernetes deletes the claims of members that depart.
func TestAVolumeThatWhenScaledDeletesIsDrainedFirst(t *testing.T) {
	w := queueWorld(t, func(set *appsv1.StatefulSet, _ *cachev1alpha1.StatefulSetDrain) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		}
	})
	w.draining(2, 2)
	w.scaleQueue(3)
	w.eventually("the member returns meanwhile", func() error { _, err := w.memberRuns(2); return err })
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("the earlier volume is gone", "data-queue-0", "data-queue-1", "data-queue-2")
	w.eventually("the result", func() error {
		if got := w.results(); len(got) == 0 || got[0] != "2 Drained" {
			return fmt.Errorf("results %v", got)
		}
		return nil
	})
}

func TestAnOperatorThatDiesInADrainContinuesIt(t *testing.T) {
	w := queueWorld(t)
	job := w.draining(1, 2)
	w.restartOperator()
	if again, err := w.runningDrain(2, "1"); err != nil || again.UID != job.UID {
		t.Errorf("it runs another Job: %v", err)
	}
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("all are drained", "data-queue-0")
}

// A person took the finalizer off, or a backup of etcd brought the claims back alone.
func TestADrainContinuesUnderTheNextStatefulSetDrain(t *testing.T) {
	for name, test := range map[string]struct {
		next string
		// meanwhile is called while there is no StatefulSetDrain.
		meanwhile func(w *world)
	}{
		"the same name": {queue, func(*world) {}},
		"another name":  {"next", func(*world) {}},
		"the same name, and the claim is deleted": {queue, deleteAside},
		"another name, and the claim is deleted":  {"next", deleteAside},
	} {
		t.Run(name, func(t *testing.T) {
			if test.next == queue {
				tier.Second(t, "TestADrainContinuesUnderTheNextStatefulSetDrain")
			}
			w := queueWorld(t)
			w.draining(2, 2)
			w.stopOperator()
			w.change(queueDrain(queue), `{"metadata":{"finalizers":null}}`)
			w.delete(queueDrain(queue))
			test.meanwhile(w)
			w.startOperator()
			w.create(queueDrain(test.next))
			kubes.Play(w.namespace, allMoved)
			w.eventually("its volume is drained", func() error {
				if got := w.queueClaims(); !slices.Equal(got, []string{"data-queue-0", "data-queue-1"}) {
					return fmt.Errorf("claims %v", got)
				}
				return nil
			})
		})
	}
}

// deleteAside deletes the claim that the departed member's volume was set aside to.
func deleteAside(w *world) {
	for _, claim := range w.queueClaims() {
		if strings.Contains(claim, "aside") {
			w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}})
		}
	}
}

// nothingDrains are words of the event on a deleted claim that belongs to nothing.
const nothingDrains = "it belongs to no Memcached and to no StatefulSetDrain, so nothing drains it"

func TestADeletedClaimThatAStatefulSetDrainHasLeftSaysWhatKeepsIt(t *testing.T) {
	w := queueWorld(t)
	w.stopOperator()
	w.change(queueDrain(queue), `{"metadata":{"finalizers":null}}`)
	w.delete(queueDrain(queue))
	w.startOperator()
	w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-1"}})
	w.eventually("an event says it", func() error { return w.saidOf("data-queue-1", nothingDrains) })
}

// The finalizer came by the StatefulSet's claim template, and no StatefulSetDrain was ever made.
func TestADeletedClaimThatNothingDrainsSaysWhatKeepsIt(t *testing.T) {
	w := newWorld(t)
	claim := claimTemplate("data-queue-0")
	claim.Finalizers = []string{cachev1alpha1.ClaimFinalizer}
	w.create(&claim)
	w.delete(&claim)
	w.eventually("an event says it", func() error { return w.saidOf(claim.Name, nothingDrains) })
	w.stopOperator()
	w.forgetEvents()
	w.startOperator()
	w.eventually("an operator that starts says it, too", func() error { return w.saidOf(claim.Name, nothingDrains) })
}

// forgetEvents deletes the events of the namespace.
func (w *world) forgetEvents() {
	w.Helper()
	if err := admin.DeleteAllOf(w.Context(), &eventsv1.Event{}, client.InNamespace(w.namespace)); err != nil {
		w.Fatal(err)
	}
}

// saidOf returns nil if an event on the claim has these words.
func (w *world) saidOf(claim, words string) error {
	w.Helper()
	var events eventsv1.EventList
	w.list(&events)
	for i := range events.Items {
		if e := &events.Items[i]; e.Regarding.Kind == "PersistentVolumeClaim" && e.Regarding.Name == claim && strings.Contains(e.Note, words) {
			return nil
		}
	}
	return fmt.Errorf("no event on claim %s says %q", claim, words)
}

// A StatefulSet of others costs nothing: neither a watch nor a write.
func TestAStatefulSetWithoutAStatefulSetDrainIsNotWatched(t *testing.T) {
	w := newWorld(t)
	w.create(queueSet())
	w.eventually("its members run", func() error { _, err := w.memberRuns(2); return err })
	if n := targetsWatched(t, w); n != 0 {
		t.Errorf("%d watches", n)
	}
	w.create(queueDrain(queue))
	w.eventually("all members are protected", func() error { return w.stsDrainIs("True", "Ready") })
	before := len(w.journal.Writes())
	w.delete(queueDrain(queue))
	w.eventually("it is gone", func() error {
		if err := admin.Get(t.Context(), w.key(queue), &cachev1alpha1.StatefulSetDrain{}); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.eventually("so are its watches", func() error {
		if n := targetsWatched(t, w); n != 0 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	if len(w.journal.Writes()) == before {
		t.Error("nothing was taken off")
	}
}

// targetsWatched is how many StatefulSets, and sets of pods, the operator watches.
func targetsWatched(t *testing.T, w *world) int {
	t.Helper()
	return w.running().Drains.Watched()
}

// statefulSetScenarios are the scenarios of StatefulSets that have a StatefulSetDrain.
func statefulSetScenarios() map[string]scenario {
	three := func(w *world) {
		w.create(queueSet())
		w.create(queueDrain(queue))
		w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
		kubes.Play(w.namespace, allMoved)
	}
	return map[string]scenario{
		"any StatefulSet, scaled down": {three, func(w *world) { w.scaleQueue(1) }, queueOf(1)},
		"any StatefulSet, scaled down and up": {three, func(w *world) {
			w.draining(2, 2)
			w.scaleQueue(3)
			w.eventually("the member is back", func() error { _, err := w.memberRuns(2); return err })
			kubes.Play(w.namespace, allMoved)
		}, queueOf(3)},
		"any StatefulSet, a claim is deleted": {three, func(w *world) {
			kubes.Linger(w.namespace, true)
			w.scaleQueue(2)
			w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-2"}})
			kubes.Linger(w.namespace, false)
		}, queueOf(2)},
		"any StatefulSet, its StatefulSetDrain is deleted in mid-drain": {three, func(w *world) {
			w.draining(2, 2)
			w.delete(queueDrain(queue))
		}, func(w *world) error {
			if n := len(w.stsDrains()) + len(w.jobs()); n > 0 {
				return fmt.Errorf("%d StatefulSetDrains and Jobs are left", n)
			}
			return nil
		}},
	}
}

// queueOf is the end of a StatefulSet with that many members, each with its claim, and nothing to drain.
func queueOf(members int) func(*world) error {
	return func(w *world) error {
		var want []string
		for i := range members {
			want = append(want, fmt.Sprintf("data-queue-%d", i))
		}
		if got := w.queueClaims(); !slices.Equal(got, want) {
			return fmt.Errorf("claims %v", got)
		}
		if n := len(w.jobs()); n > 0 {
			return fmt.Errorf("%d Jobs", n)
		}
		return w.stsDrainIs("True", "Ready")
	}
}

// A claim is deleted before a StatefulSetDrain protects it, and its member's pod keeps it. No finalizer can be added any
// more. Status says so until the pod ends and takes claim and volume with it.
func TestAClaimThatWasDeletedBeforeItWasProtectedIsNamed(t *testing.T) {
	tier.Second(t, "TestEachStateAndItsWords")
	w := newWorld(t)
	w.create(queueSet())
	w.eventually("all members are ready", func() error {
		set := &appsv1.StatefulSet{}
		if err := admin.Get(w.Context(), w.key(queue), set); err != nil || set.Status.ReadyReplicas != 3 {
			return fmt.Errorf("%d are ready: %w", set.Status.ReadyReplicas, err)
		}
		return nil
	})
	w.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-0"}})
	w.create(queueDrain(queue))
	w.stsDrainSays(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonClaimDeleted, "data-queue-0", "without the operator's finalizer")
	w.rests()
	w.delete(w.pod("queue-0"))
	w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
	w.rests()
}
