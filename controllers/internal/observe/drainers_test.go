package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/trim"
)

func TestAJobWithoutADrainerAtWorkSaysWhy(t *testing.T) {
	now := time.Unix(5000, 0)
	pod := func(phase corev1.PodPhase, change func(*corev1.PodStatus)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}}, CreationTimestamp: metav1.NewTime(now),
		}, Spec: corev1.PodSpec{NodeName: "node-2"}}
		p.Status.Phase = phase
		if change != nil {
			change(&p.Status)
		}
		return p
	}
	unschedulable := func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node"}}
	}
	waiting := func(reason, message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	ended := func(message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 4, Message: message}}}}
		}
	}
	// beside puts another container's state before and after the drainer's.
	beside := func(drainer func(*corev1.PodStatus), other corev1.ContainerState) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			drainer(s)
			s.ContainerStatuses = slices.Concat(
				[]corev1.ContainerStatus{{Name: "before", State: other}}, s.ContainerStatuses, []corev1.ContainerStatus{{Name: "proxy", State: other}})
		}
	}
	runs := func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	good := func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	}
	initEnded := func(code int32, at time.Time, message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			waiting("PodInitializing", "")(s)
			s.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(at), Message: message}}}}
		}
	}
	proxyRuns := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	proxyWaits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such proxy"}}
	unreachable := ended(`{"version":1,"reason":"SurvivorUnreachable","message":"cache-0 is silent"}`)
	slow := func(p corev1.Pod) corev1.Pod {
		p.CreationTimestamp = metav1.NewTime(now.Add(-read.SlowStart))
		return p
	}
	leaving := pod(corev1.PodPending, unschedulable)
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	lingers := pod(corev1.PodRunning, runs)
	lingers.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)}
	ends := pod(corev1.PodRunning, runs)
	ends.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Second)}
	for name, test := range map[string]struct {
		failed int32
		pods   []corev1.Pod
		want   claims.Wait
		waits  bool
	}{
		"no pod yet": {},
		"it is told to end, and does not": {0, []corev1.Pod{lingers}, claims.Wait{Reason: "DrainerDoesNotEnd",
			Message: "pod p should have ended by 1970-01-01T01:22:20Z, and node node-2 has not reported its end: start that node again; if it is gone for good, delete the Node object"}, true},
		"it is told to end": {pods: []corev1.Pod{ends}},
		"it runs":           {pods: []corev1.Pod{pod(corev1.PodRunning, runs)}},
		"it runs beside a container that doesn't": {pods: []corev1.Pod{pod(corev1.PodPending, beside(runs, proxyWaits))}},
		"it has succeeded beside one that runs":   {failed: 1, pods: []corev1.Pod{pod(corev1.PodRunning, beside(good, proxyRuns))}},
		"no image, beside one that runs": {0, []corev1.Pod{pod(corev1.PodPending, beside(waiting("ImagePullBackOff", "no such tag"), proxyRuns))},
			claims.Wait{Reason: "ImagePullBackOff", Message: "pod p: no such tag"}, true},
		"it has succeeded":  {failed: 1, pods: []corev1.Pod{pod(corev1.PodSucceeded, good)}},
		"it runs once more": {failed: 1, pods: []corev1.Pod{pod(corev1.PodFailed, unreachable), pod(corev1.PodRunning, runs)}},
		"unschedulable":     {0, []corev1.Pod{pod(corev1.PodPending, unschedulable)}, claims.Wait{Reason: "Unschedulable", Message: "the drainer has been waiting for a node since 1970-01-01T01:23:20Z: no node"}, true},
		"no image":          {0, []corev1.Pod{pod(corev1.PodPending, waiting("ImagePullBackOff", "no such tag"))}, claims.Wait{Reason: "ImagePullBackOff", Message: "pod p: no such tag"}, true},
		"no image of an init container": {0, []corev1.Pod{pod(corev1.PodPending, func(s *corev1.PodStatus) {
			waiting("PodInitializing", "")(s)
			s.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such tag"}}}}
		})}, claims.Wait{Reason: "ErrImagePull", Message: "pod p: no such tag"}, true},
		"being made": {0, []corev1.Pod{pod(corev1.PodPending, waiting("ContainerCreating", ""))}, claims.Wait{Reason: "ContainerCreating", Message: "pod p: its container is being created"}, true},
		"its node doesn't start it": {0, []corev1.Pod{slow(pod(corev1.PodPending, nil))},
			claims.Wait{Message: "node node-2 has not started the drainer, which has been waiting since 1970-01-01T01:23:10Z"}, true},
		"its node is long at it": {0, []corev1.Pod{slow(pod(corev1.PodPending, waiting("ContainerCreating", "")))},
			claims.Wait{Reason: "ContainerCreating", Message: "node node-2 has not started the drainer, which has been waiting since 1970-01-01T01:23:10Z"}, true},
		"its node says why": {0, []corev1.Pod{slow(pod(corev1.PodPending, waiting("ImagePullBackOff", "no such tag")))},
			claims.Wait{Reason: "ImagePullBackOff", Message: "pod p: no such tag"}, true},
		"just made":              {0, []corev1.Pod{pod(corev1.PodPending, nil)}, claims.Wait{}, true},
		"one that is on its way": {0, []corev1.Pod{leaving}, claims.Wait{}, false},
		"the last one failed": {2, []corev1.Pod{pod(corev1.PodFailed, unreachable)},
			claims.Wait{Reason: "Retrying", Message: "failed attempts: 2, the last one: SurvivorUnreachable: cache-0 is silent"}, true},
		"the last one left no receipt": {1, []corev1.Pod{pod(corev1.PodFailed, ended(""))},
			claims.Wait{Reason: "Retrying", Message: "failed attempts: 1, the last one: exit code 4"}, true},
		"the next one waits": {1, []corev1.Pod{pod(corev1.PodFailed, unreachable), pod(corev1.PodPending, unschedulable)},
			claims.Wait{Reason: "Unschedulable", Message: "failed attempts: 1, the last one: SurvivorUnreachable: cache-0 is silent; now: the drainer has been waiting for a node since 1970-01-01T01:23:20Z: no node"}, true},
		"an init container runs on": {0, []corev1.Pod{slow(pod(corev1.PodPending, func(s *corev1.PodStatus) {
			waiting("PodInitializing", "")(s)
			s.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "proxy", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}},
				{Name: "fetch", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}},
			}
		}))}, claims.Wait{Reason: "PodInitializing", Message: "pod p: init container fetch has been running since 1970-01-01T01:23:20Z, and the drainer starts after it"}, true},
		"an init container failed": {2, []corev1.Pod{pod(corev1.PodFailed, initEnded(3, now, "no\nroute")), pod(corev1.PodFailed, initEnded(7, now.Add(-time.Minute), ""))},
			claims.Wait{Reason: "Retrying", Message: "failed attempts: 2, the last one: init container fetch of pod p ended with exit code 3: no route"}, true},
		"its node is lost": {1, nil, claims.Wait{Reason: "Retrying", Message: "failed attempts: 1, the last one: its pod is gone"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}, Status: batchv1.JobStatus{Failed: test.failed}}
			cluster := apitest.MakeMemcached("cache").Obj()
			job.CreationTimestamp = metav1.NewTime(now)
			other := pod(corev1.PodPending, unschedulable)
			other.OwnerReferences[0].UID = "another"
			got, waits := OwnerOf(cluster).Waits(job, append(test.pods, other), now)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(claims.Wait{}, "Since")); diff != "" || waits != test.waits {
				t.Errorf("waits is %v, want %v; -want +got:\n%s", waits, test.waits, diff)
			}
		})
	}
}

// Status says why a Job has no pod: a queue has suspended it (Kueue suspends each Job first), or no
// controller creates its pod.
func TestAJobWithoutAPodSaysWhy(t *testing.T) {
	now := time.Unix(5000, 0)
	suspended := batchv1.JobCondition{Type: batchv1.JobSuspended, Status: "True", Reason: "JobSuspended", Message: "Job suspended", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	for name, test := range map[string]struct {
		age        time.Duration
		conditions []batchv1.JobCondition
		want       claims.Wait
	}{
		"just made":          {59 * time.Second, nil, claims.Wait{}},
		"a minute later":     {time.Minute, nil, claims.Wait{Reason: "NoPodYet", Message: "Job job has no pod yet, since 1970-01-01T01:22:20Z", Since: now.Add(-time.Minute)}},
		"suspended":          {time.Second, []batchv1.JobCondition{suspended}, claims.Wait{Reason: "JobSuspended", Message: "Job job is suspended: Job suspended", Since: now.Add(-time.Hour)}},
		"not suspended more": {time.Second, []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "False"}}, claims.Wait{}},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job", CreationTimestamp: metav1.NewTime(now.Add(-test.age))}}
		job.Status.Conditions = test.conditions
		if _, err := trim.Job(job); err != nil {
			t.Fatal(err)
		}
		got, waits := OwnerOf(apitest.MakeMemcached("cache").Obj()).Waits(job, nil, now)
		if diff := cmp.Diff(test.want, got); diff != "" || waits != (test.want.Reason != "") {
			t.Errorf("%s: waits %v: -want +got:\n%s", name, waits, diff)
		}
	}
}

// If a drainer is killed for lack of memory, status says which limit to raise.
func TestADrainerThatRunsOutOfMemorySaysSo(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}, Status: batchv1.JobStatus{Failed: 1}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}}}}
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "drainer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}}
	c := apitest.MakeMemcached("cache").Obj()
	for limits, want := range map[bool]string{true: "raise spec.drain.resources.limits.memory", false: "LimitRange"} {
		if limits {
			c.Spec.Drain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		} else {
			c.Spec.Drain.Resources.Limits = nil
		}
		if got, _ := OwnerOf(c).Waits(job, []corev1.Pod{pod}, time.Unix(5000, 0)); !strings.Contains(got.Message, "OOMKilled, exit code 137; ") || !strings.Contains(got.Message, want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// The Job's own words say only that its pods failed again and again.
func TestAJobWhoseInitContainerFailedSaysWhich(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded", Message: "too often"}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}}}}
	pod.Status.Phase = corev1.PodFailed
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "drainer", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	if got, want := PlanJob(job, []corev1.Pod{pod}).Message, "Job job: BackoffLimitExceeded: too often: init container fetch of pod p ended with exit code 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
