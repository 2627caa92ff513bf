package observe

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"

	"github.com/google/go-cmp/cmp"
)

// TestAMemberBetweenTwoPodsHasNotBeenAwayForLong: otherwise a roll-out would restart the next member where it is, and a
// scale-down would take a member for lost.
func TestAMemberBetweenTwoPodsHasNotBeenAwayForLong(t *testing.T) {
	began := time.Unix(1e9, 0)
	created := metav1.NewTime(began.Add(-time.Hour))
	key := client.ObjectKeyFromObject(testCluster())
	r := &Reader{Missing: &remembered.Missing[int32]{}}
	for _, step := range []struct {
		after time.Duration
		pods  []string
		want  []plan.Away
	}{
		{0, []string{"cache-0"}, []plan.Away{{Ordinal: 0, Since: created.Time}, {Ordinal: 1, Since: began}}},
		{time.Second, []string{"cache-0"}, []plan.Away{{Ordinal: 0, Since: created.Time}, {Ordinal: 1, Since: began}}},
		{2 * time.Second, []string{"cache-1"}, []plan.Away{{Ordinal: 0, Since: began.Add(2 * time.Second)}, {Ordinal: 1, Since: created.Time}}},
	} {
		o := &State{Cluster: testCluster(), Now: began.Add(step.after)}
		o.StatefulSet = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cache"}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}}
		for _, name := range step.pods {
			o.Pods = append(o.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created}})
		}
		r.observeMissing(key, o)
		if diff := cmp.Diff(step.want, o.Input().Away); diff != "" {
			t.Errorf("after %s: -want +got:\n%s", step.after, diff)
		}
	}
	_, _, away := readiness("cache", nil, 2, func(member int32) time.Time { return r.Missing.Since(key, member, began.Add(time.Minute)) })
	if want := []plan.Away{{Ordinal: 0, Since: began.Add(2 * time.Second)}, {Ordinal: 1, Since: began.Add(time.Minute)}}; !cmp.Equal(want, away) {
		t.Errorf("a live read: %+v, want %+v", away, want)
	}
}

// A mover's pod that was evicted leaves no trace, and its Job counts no failure. A leaving member waits for the next pod for a
// while.
func TestAMoverBetweenTwoPodsHasNotBeenIdleForLong(t *testing.T) {
	began := time.Unix(1e9, 0)
	key := client.ObjectKeyFromObject(testCluster())
	r := &Reader{Idle: &remembered.Missing[types.UID]{}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "move", Controller: ptr.To(true)}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	ends := *pod.DeepCopy()
	ends.DeletionTimestamp = &metav1.Time{Time: began}
	for _, step := range []struct {
		after time.Duration
		pods  []corev1.Pod
		want  time.Time
	}{
		{0, nil, began},
		{time.Second, []corev1.Pod{pod}, time.Time{}},
		{time.Hour, []corev1.Pod{ends}, began.Add(time.Hour)},
		{time.Hour + time.Second, nil, began.Add(time.Hour)},
	} {
		o := &State{Cluster: testCluster(), Now: began.Add(step.after)}
		o.Moves, o.DrainerPods = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{UID: "move"}}}, step.pods
		r.observeIdle(key, o)
		if got := o.Input().Moves[0].IdleSince; !got.Equal(step.want) {
			t.Errorf("after %s: idle since %s, want %s", step.after, got, step.want)
		}
	}
}
