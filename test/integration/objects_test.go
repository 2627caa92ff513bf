package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// name of the one cluster of most tests.
const name = "cache"

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (w *world) clusters() []cachev1alpha1.Memcached {
	var l cachev1alpha1.MemcachedList
	w.list(&l)
	return l.Items
}

func (w *world) stsDrains() []cachev1alpha1.StatefulSetDrain {
	var l cachev1alpha1.StatefulSetDrainList
	w.list(&l)
	return l.Items
}

func (w *world) statefulSets() []appsv1.StatefulSet {
	var l appsv1.StatefulSetList
	w.list(&l)
	return l.Items
}

func (w *world) pods() []corev1.Pod {
	var l corev1.PodList
	w.list(&l)
	return l.Items
}

func (w *world) claims() []corev1.PersistentVolumeClaim {
	var l corev1.PersistentVolumeClaimList
	w.list(&l)
	return l.Items
}

func (w *world) jobs() []batchv1.Job {
	var l batchv1.JobList
	w.list(&l)
	return l.Items
}

func (w *world) allEvents() []eventsv1.Event {
	var l eventsv1.EventList
	w.list(&l)
	return l.Items
}

// events are those about Memcacheds.
func (w *world) events() []eventsv1.Event {
	return slices.DeleteFunc(w.allEvents(), func(e eventsv1.Event) bool { return e.Regarding.Kind != "Memcached" })
}

// memcached returns the cluster, or nil if it is gone.
func (w *world) memcached() *cachev1alpha1.Memcached {
	m := &cachev1alpha1.Memcached{}
	return found(w, m, admin.Get(w.Context(), w.key(name), m))
}

func (w *world) statefulSet() *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{}
	return found(w, s, admin.Get(w.Context(), w.key(name), s))
}

// claim returns a member's claim, or nil if there is none.
func (w *world) claim(ordinal int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	return found(w, c, admin.Get(w.Context(), w.key(claimName(ordinal)), c))
}

func (w *world) pod(name string) *corev1.Pod {
	p := &corev1.Pod{}
	return found(w, p, admin.Get(w.Context(), w.key(name), p))
}

func found[T any](w *world, object *T, err error) *T {
	w.Helper()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return object
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

func claimName(ordinal int) string { return fmt.Sprintf("data-%s-%d", name, ordinal) }

// jobOf returns the Job that drains the claim, or nil.
func (w *world) jobOf(claim types.UID) *batchv1.Job {
	for _, j := range w.jobs() {
		if j.Annotations[cachev1alpha1.AnnotationClaimUID] == string(claim) {
			return &j
		}
	}
	return nil
}

// scale sets the size as kubectl scale does.
func (w *world) scale(size int32) {
	w.Helper()
	if err := w.tryScale(size); err != nil {
		w.Fatalf("scale to %d: %v", size, err)
	}
}

func (w *world) tryScale(size int32) error {
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: size}}
	return admin.SubResource("scale").Update(w.Context(), w.memcached(), client.WithSubResourceBody(scale))
}

// annotate sets the drain annotation of a claim, or removes it.
func (w *world) annotate(ordinal int, value string) {
	w.Helper()
	w.annotateClaim(claimName(ordinal), value)
}

func (w *world) annotateClaim(name, value string) {
	w.Helper()
	quoted := "null"
	if value != "" {
		quoted = fmt.Sprintf("%q", value)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.change(claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, cachev1alpha1.AnnotationDrain, quoted))
}

// whenRecorded waits until the cluster is as the check wants it. The record is asked first, which costs no
// request, and mostly says that the time has not come. That it has only the API server says.
func (w *world) whenRecorded(what string, check func(*cachev1alpha1.Memcached) error) {
	w.Helper()
	w.eventually(what, func() error {
		if m, is := recorder.Latest(w.namespace, &cachev1alpha1.Memcached{}, name).(*cachev1alpha1.Memcached); is {
			if err := check(m); err != nil {
				return err
			}
		}
		m := w.memcached()
		if m == nil {
			return errors.New("no Memcached")
		}
		return check(m)
	})
}

// settled waits until the cluster has that many members, all ready, nothing is being
// deleted, and status says so.
func (w *world) settled(size int32) *cachev1alpha1.Memcached {
	w.Helper()
	var m *cachev1alpha1.Memcached
	w.whenRecorded(fmt.Sprintf("a settled cluster of %d", size), func(now *cachev1alpha1.Memcached) error {
		m = now
		progressing := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionProgressing)
		switch s := m.Status; {
		case s.ObservedGeneration != m.Generation:
			return fmt.Errorf("status is about generation %d of %d", s.ObservedGeneration, m.Generation)
		case s.Size != size || s.ReadySize != size || len(s.Drains) != 0 || s.Moving != 0:
			return fmt.Errorf("size %d, ready %d, %d drains, %d to move", s.Size, s.ReadySize, len(s.Drains), s.Moving)
		case progressing == nil || progressing.Status != metav1.ConditionFalse:
			return fmt.Errorf("progressing: %s", asJSON(progressing))
		}
		return nil
	})
	return m
}

// condition waits until a condition of the cluster has this status and reason,
// and returns its message.
func (w *world) condition(kind string, status metav1.ConditionStatus, reason string) string {
	w.Helper()
	message := ""
	w.whenRecorded(fmt.Sprintf("condition %s=%s (%s)", kind, status, reason), func(m *cachev1alpha1.Memcached) error {
		c := meta.FindStatusCondition(m.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != m.Generation {
			return fmt.Errorf("it is %s", asJSON(c))
		}
		message = c.Message
		return nil
	})
	return message
}

// noCondition waits until the status is of the present spec, and has no condition of that type.
func (w *world) noCondition(kind string) {
	w.Helper()
	w.whenRecorded("no condition "+kind, func(m *cachev1alpha1.Memcached) error {
		if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil || m.Status.ObservedGeneration != m.Generation {
			return fmt.Errorf("it is %s, of generation %d", asJSON(c), m.Status.ObservedGeneration)
		}
		return nil
	})
}

// advised waits until the status of the present spec has advice of that reason, and returns its message.
func (w *world) advised(reason string) string {
	w.Helper()
	message := ""
	w.whenRecorded("advice "+reason, func(m *cachev1alpha1.Memcached) error {
		i := slices.IndexFunc(m.Status.Advice, func(a cachev1alpha1.Advice) bool { return a.Reason == reason })
		if i < 0 || m.Status.ObservedGeneration != m.Generation {
			return fmt.Errorf("it is %s, of generation %d", asJSON(m.Status.Advice), m.Status.ObservedGeneration)
		}
		message = m.Status.Advice[i].Message
		return nil
	})
	return message
}

// noAdvice waits until the status of the present spec has no advice.
func (w *world) noAdvice() {
	w.Helper()
	w.whenRecorded("no advice", func(m *cachev1alpha1.Memcached) error {
		if len(m.Status.Advice) > 0 || m.Status.ObservedGeneration != m.Generation {
			return fmt.Errorf("it is %s, of generation %d", asJSON(m.Status.Advice), m.Status.ObservedGeneration)
		}
		return nil
	})
}

// showsAtRest checks that the cluster has four conditions, and no advice.
func (w *world) showsAtRest() {
	w.Helper()
	var shown []string
	for _, c := range w.memcached().Status.Conditions {
		shown = append(shown, c.Type)
	}
	equal(w, "conditions at rest", shown, []string{"Ready", "Available", "Progressing", "Degraded"})
	equal(w, "advice at rest", len(w.memcached().Status.Advice), 0)
}

// claimGone waits until the claim is gone, or another one has its name.
func (w *world) claimGone(ordinal int, uid types.UID) {
	w.Helper()
	w.eventually("claim "+claimName(ordinal)+" gone", func() error {
		there := errors.New("it is there")
		if c := recorder.Latest(w.namespace, &corev1.PersistentVolumeClaim{}, claimName(ordinal)); c != nil && c.GetUID() == uid {
			return there
		}
		if c := w.claim(ordinal); c != nil && c.UID == uid {
			return there
		}
		return nil
	})
}

// volumeGone waits until the claim's volume is gone.
func (w *world) volumeGone(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	w.eventually("volume "+claim.Spec.VolumeName+" gone", func() error {
		err := admin.Get(w.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, &corev1.PersistentVolume{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// equal fails unless got and want are equal.
func equal[T any](w *world, what string, got, want T) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}
