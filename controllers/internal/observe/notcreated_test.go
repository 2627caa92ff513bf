package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/claims/read"
)

func second(n int64) metav1.Time { return metav1.NewTime(time.Unix(n, 0)) }

// TestOwnersThatLackAPodAreFound: a StatefulSet with fewer pods than replicas, and a Job
// without one.
func TestOwnersThatLackAPodAreFound(t *testing.T) {
	statefulSet := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "sts", CreationTimestamp: second(10)}}
	statefulSet.Spec.Replicas = ptr.To[int32](2)
	member := func(name string, at int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: second(at)}}
	}
	deleted := statefulSet.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(second(15))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job", CreationTimestamp: second(20)}}
	drainer := func(phase corev1.PodPhase, at int64) corev1.Pod {
		p := member("d", at)
		p.Labels, p.Status.Phase = map[string]string{batchv1.JobNameLabel: "job"}, phase
		return p
	}
	both := []corev1.Pod{member("cache-0", 11), member("cache-1", 12)}
	for name, test := range map[string]struct {
		statefulSet *appsv1.StatefulSet
		members     []corev1.Pod
		job         *batchv1.Job
		drainers    []corev1.Pod
		want        *read.PodOwner
	}{
		"nothing":                     {statefulSet: statefulSet, members: both},
		"no StatefulSet":              {},
		"one member":                  {statefulSet: statefulSet, members: both[1:], want: &read.PodOwner{UID: "sts", Kind: "StatefulSet", Name: "cache", Newest: time.Unix(12, 0)}},
		"one that leaves":             {statefulSet: statefulSet, members: []corev1.Pod{both[0], member("cache-7", 99), member("other", 98)}, want: &read.PodOwner{UID: "sts", Kind: "StatefulSet", Name: "cache", Newest: time.Unix(11, 0)}},
		"the whole is on its way out": {statefulSet: deleted},
		"a drainer":                   {job: job, want: &read.PodOwner{UID: "job", Kind: "Job", Name: "job", Newest: time.Unix(20, 0)}},
		"the next drainer":            {job: job, drainers: []corev1.Pod{drainer(corev1.PodFailed, 30)}, want: &read.PodOwner{UID: "job", Kind: "Job", Name: "job", Newest: time.Unix(30, 0)}},
		"a drainer that is":           {job: job, drainers: []corev1.Pod{drainer(corev1.PodPending, 30)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := membersWithoutPods(test.statefulSet, test.members)
			if test.job != nil {
				got = read.DrainerWithoutPod(test.job, test.drainers)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
