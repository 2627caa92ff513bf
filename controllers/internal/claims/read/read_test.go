package read

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// memcachedDrainers is an owner whose drainers leave receipts as a Memcached's do.
var memcachedDrainers = &Owner{Receipt: func(_ *batchv1.Job, ended *corev1.Pod) (*action.Receipt, error) {
	return plan.ParseReceipt(Drainer(ended).Terminated.Message)
}}

// ended is a pod of the Job whose drainer ended at this second.
func ended(job types.UID, second int64, exitCode int32, message string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: job, Controller: ptr.To(true)}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Message: message, FinishedAt: metav1.NewTime(time.Unix(second, 0)),
	}}}}
	return pod
}

func TestReceiptIsTheLastDrainersUnlessAnEarlierOneSucceeded(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "drain", UID: "drain"}}
	running := ended("drain", 0, 0, "")
	evicted := ended("drain", 9, 0, "evicted")
	evicted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	forged := ended("", 9, 0, "forged")
	forged.OwnerReferences, forged.Labels = nil, map[string]string{batchv1.JobNameLabel: "drain"}
	running.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"none":                     {nil, ""},
		"one that runs":            {[]corev1.Pod{running}, ""},
		"one with its label only":  {[]corev1.Pod{forged}, ""},
		"another Job's":            {[]corev1.Pod{ended("other", 1, 0, "other's")}, ""},
		"the last of the failed":   {[]corev1.Pod{ended("drain", 2, 1, "second"), ended("drain", 3, 1, "third"), ended("drain", 1, 1, "first")}, "third"},
		"one that succeeded":       {[]corev1.Pod{ended("drain", 1, 0, "good"), ended("drain", 2, 1, "later")}, "good"},
		"one that was told to end": {[]corev1.Pod{ended("drain", 1, 0, "good"), evicted, ended("drain", 3, 1, "failed")}, "good"},
		"one that succeeded last":  {[]corev1.Pod{ended("drain", 2, 1, "failed"), ended("drain", 1, 0, "good")}, "good"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if last := LastEnded(test.pods, job); last != nil {
				got = last.Message
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestJobIsActiveUntilAConditionSaysOtherwise(t *testing.T) {
	for name, test := range map[string]struct {
		conditions []batchv1.JobCondition
		want       claims.JobState
	}{
		"no condition":    {nil, claims.JobActive},
		"about to fail":   {[]batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: "True"}}, claims.JobActive},
		"about to end":    {[]batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet, Status: "True"}}, claims.JobActive},
		"suspended":       {[]batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "True"}}, claims.JobActive},
		"not complete":    {[]batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "False"}}, claims.JobActive},
		"complete":        {[]batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}, claims.JobComplete},
		"failed":          {[]batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: "True"}, {Type: batchv1.JobFailed, Status: "True"}}, claims.JobFailed},
		"unknown to fail": {[]batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "Unknown"}}, claims.JobActive},
	} {
		t.Run(name, func(t *testing.T) {
			if got := State(&batchv1.Job{Status: batchv1.JobStatus{Conditions: test.conditions}}); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestVolumeIsFoundWhereItsReferenceSays(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-cache-3", UID: "uid"}}
	for name, test := range map[string]struct {
		reference *corev1.ObjectReference
		want      claims.Where
	}{
		"at the claim":                      {&corev1.ObjectReference{Namespace: "shop", Name: "data-cache-3", UID: "uid"}, claims.Here},
		"it waits for a claim of that name": {&corev1.ObjectReference{Namespace: "shop", Name: "data-cache-3"}, claims.Elsewhere},
		"at no claim":                       {nil, claims.Elsewhere},
		"at an earlier claim of that name":  {&corev1.ObjectReference{Namespace: "shop", Name: "data-cache-3", UID: "another"}, claims.Elsewhere},
		"at the next claim":                 {&corev1.ObjectReference{Namespace: "shop", Name: "next", UID: "another"}, claims.Reserved},
		"it waits for the next claim":       {&corev1.ObjectReference{Namespace: "shop", Name: "next"}, claims.Reserved},
		"in another namespace":              {&corev1.ObjectReference{Namespace: "mall", Name: "next"}, claims.Elsewhere},
	} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: test.reference}}
		if got := WhereIs(volume, pvc, "next"); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if got := WhereIs(nil, pvc, "next"); got != claims.Gone {
		t.Errorf("without a volume: got %v", got)
	}
	waiting := pvc.DeepCopy()
	waiting.Status.Phase = corev1.ClaimPending
	promised := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data-cache-3"}}}
	if got := WhereIs(promised, waiting, "next"); got != claims.Promised {
		t.Errorf("it waits for a claim that waits for it: got %v", got)
	}
	lost := pvc.DeepCopy()
	lost.Status.Phase = corev1.ClaimLost
	if got := [2]claims.Where{whereUnseen(pvc), whereUnseen(lost)}; got != [2]claims.Where{claims.Forbidden, claims.Reserved} {
		t.Errorf("without rights: got %v", got)
	}
}

func TestJobIsCompleteWhenItsDrainerLeftAReceiptThatAddsUp(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "drain", UID: "job", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
		Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "2"},
	}}
	const good = `{"version":1,"source":"claim","complete":true,"found":1,"added":1}`
	succeeded := func(owner types.UID, message string) corev1.Pod {
		pod := ended(owner, 1, 0, message)
		pod.Status.Phase = corev1.PodSucceeded
		return pod
	}
	// beside is the pod with another container that runs, or has failed, before ours.
	beside := func(pod corev1.Pod, phase corev1.PodPhase, other corev1.ContainerState) corev1.Pod {
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "proxy", State: other}}, pod.Status.ContainerStatuses...)
		return pod
	}
	proxyRuns := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	proxyEnded := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: good}}
	failed := func(message string) corev1.Pod {
		pod := ended("job", 1, contract.ExitUnreachable, message)
		pod.Status.Phase = corev1.PodFailed
		return pod
	}
	deleted := beside(failed(""), corev1.PodRunning, proxyRuns)
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want claims.JobState
	}{
		"no pod":                        {nil, claims.JobActive},
		"it ended well":                 {[]corev1.Pod{succeeded("job", good)}, claims.JobComplete},
		"after one that failed":         {[]corev1.Pod{ended("job", 2, 1, "failed"), succeeded("job", good)}, claims.JobComplete},
		"without a receipt":             {[]corev1.Pod{succeeded("job", "")}, claims.JobActive},
		"with that of another claim":    {[]corev1.Pod{succeeded("job", `{"version":1,"source":"other","complete":true}`)}, claims.JobActive},
		"of an earlier Job of the name": {[]corev1.Pod{succeeded("earlier", good)}, claims.JobActive},
		"it failed with a good receipt": {[]corev1.Pod{failed(good)}, claims.JobActive},
		"beside a container that runs":  {[]corev1.Pod{beside(succeeded("job", good), corev1.PodRunning, proxyRuns)}, claims.JobComplete},
		"beside a container that fails": {[]corev1.Pod{beside(succeeded("job", good), corev1.PodFailed, proxyEnded)}, claims.JobComplete},
		"another container's receipt":   {[]corev1.Pod{beside(failed(""), corev1.PodFailed, proxyEnded)}, claims.JobActive},

		"it failed beside a container that runs":          {[]corev1.Pod{beside(failed(""), corev1.PodRunning, proxyRuns)}, claims.JobFailed},
		"it left no receipt beside a container that runs": {[]corev1.Pod{beside(succeeded("job", ""), corev1.PodRunning, proxyRuns)}, claims.JobFailed},
		"it failed, and the pod is being deleted":         {[]corev1.Pod{deleted}, claims.JobActive},
		"another Job's failed beside one that runs":       {[]corev1.Pod{beside(succeeded("earlier", ""), corev1.PodRunning, proxyRuns)}, claims.JobActive},
	} {
		got := memcachedDrainers.Job(job, test.pods)
		if got.State != test.want || (got.Receipt != nil) != (test.want == claims.JobComplete) || (test.want == claims.JobFailed) == got.Ended.IsZero() {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// The pod of a node that is gone seems to run until it is deleted. Containers beside the drainer don't
// count: an init script of a mesh that has ended, a log shipper that isn't ready.
func TestADrainerWhoseNodeIsGoneIsNotAtWork(t *testing.T) {
	running := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		}}
		change(pod)
		return pod
	}
	for what, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"as usual":                 {running(func(*corev1.Pod) {}), true},
		"it ends":                  {running(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false},
		"its node doesn't answer":  {running(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }), false},
		"it has not started":       {running(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }), false},
		"no condition was written": {running(func(p *corev1.Pod) { p.Status.Conditions = nil }), true},
		"a container beside it isn't ready": {running(func(p *corev1.Pod) {
			p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [shipper]"}
		}), true},
		"a readiness gate is not passed": {running(func(p *corev1.Pod) {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		}), true},
	} {
		if got := AtWork(test.pod); got != test.want {
			t.Errorf("%s: at work is %t", what, got)
		}
	}
}
