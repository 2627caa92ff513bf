package observe

import (
	"context"
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
)

// podsAndJobs is an API server with only pods and Jobs.
type podsAndJobs struct {
	client.Client
	pods []corev1.Pod
	jobs []batchv1.Job
}

func (s *podsAndJobs) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	for i := range s.pods {
		if pod, ok := object.(*corev1.Pod); ok && s.pods[i].Name == key.Name {
			s.pods[i].DeepCopyInto(pod)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *podsAndJobs) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.PodList:
		l.Items = s.pods
	case *batchv1.JobList:
		l.Items = s.jobs
	}
	return nil
}

// A proxy that keeps running keeps the Job of a failed drainer from ending.
func TestAJobThatASidecarKeepsHasFailedLiveToo(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "data-cache-2-drain-1", UID: "job",
		Labels:          map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
		Annotations:     map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "2"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached"))},
	}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "drainer", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&job, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: build.ContainerDrainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}},
		{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	r := &Reader{Clock: clock.RealClock{}, Live: &podsAndJobs{pods: []corev1.Pod{pod}, jobs: []batchv1.Job{job}}}
	view, err := r.View(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Jobs) != 1 || view.Jobs[0].State != claims.JobFailed || len(view.Drainers) != 0 {
		t.Errorf("Jobs %+v, drainers %v", view.Jobs, view.Drainers)
	}
}

func TestAVolumeIsUsedByPodsThatMountItAndHaveNotEnded(t *testing.T) {
	cluster := testCluster()
	claim := action.ClaimRef{Name: build.ClaimName("cache", 2), UID: "claim", Ordinal: 2}
	mounted := corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}
	for what, test := range map[string]struct {
		name    string
		volumes []corev1.Volume
		phase   corev1.PodPhase
		deleted bool
		member  bool
		drainer bool
	}{
		"its member":                              {"cache-2", []corev1.Volume{mounted}, corev1.PodRunning, false, true, true},
		"its member shuts down":                   {"cache-2", []corev1.Volume{mounted}, corev1.PodRunning, true, true, true},
		"a pod of its member's name":              {"cache-2", nil, corev1.PodRunning, false, false, false},
		"a drainer":                               {"drainer", []corev1.Volume{mounted}, corev1.PodPending, false, false, true},
		"a drainer that has ended":                {"drainer", []corev1.Volume{mounted}, corev1.PodSucceeded, false, false, false},
		"one that a finalizer keeps, and no more": {"drainer", []corev1.Volume{mounted}, corev1.PodFailed, true, false, false},
	} {
		t.Run(what, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: test.name}, Spec: corev1.PodSpec{Volumes: test.volumes}, Status: corev1.PodStatus{Phase: test.phase}}
			if test.deleted {
				pod.DeletionTimestamp = ptr.To(metav1.Now())
			}
			r := &Reader{Live: &podsAndJobs{pods: []corev1.Pod{pod}}}
			users, err := r.WithUsers(t.Context(), cluster, &View{jobs: read.Jobs{Pods: []corev1.Pod{pod}}}, claim)
			if err != nil {
				t.Fatal(err)
			}
			if member, drainer := len(users.Pods) > 0, len(users.ClaimsWithDrainerPod) > 0; member != test.member || drainer != test.drainer {
				t.Errorf("member %v, drainer %v", member, drainer)
			}
		})
	}
}
