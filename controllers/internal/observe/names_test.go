package observe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// namespace is an API server, or a cache, with claims, Jobs and pods. A list returns only objects
// with the label.
type namespace struct {
	client.Client
	claims []corev1.PersistentVolumeClaim
	jobs   []batchv1.Job
	pods   []corev1.Pod
	gets   []string
}

func (s *namespace) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	labelled := func(o client.Object) bool { return o.GetLabels()[cachev1alpha1.LabelCluster] == "" }
	switch l := list.(type) {
	case *corev1.PersistentVolumeClaimList:
		l.Items = slices.DeleteFunc(slices.Clone(s.claims), func(c corev1.PersistentVolumeClaim) bool { return labelled(&c) })
	case *batchv1.JobList:
		l.Items = slices.DeleteFunc(slices.Clone(s.jobs), func(j batchv1.Job) bool { return labelled(&j) })
	case *corev1.PodList:
		l.Items = slices.Clone(s.pods)
	}
	return nil
}

func (s *namespace) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.gets = append(s.gets, key.Name)
	for i := range s.claims {
		if o, is := object.(*corev1.PersistentVolumeClaim); is && s.claims[i].Name == key.Name {
			s.claims[i].DeepCopyInto(o)
			return nil
		}
	}
	for i := range s.jobs {
		if o, is := object.(*batchv1.Job); is && s.jobs[i].Name == key.Name {
			s.jobs[i].DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func claimOf(ordinal int32) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: build.ClaimName("cache", ordinal), UID: "claim", Labels: map[string]string{cachev1alpha1.LabelCluster: "cache"},
		Finalizers: []string{cachev1alpha1.ClaimFinalizer},
	}}
}

func drainOf(cluster *cachev1alpha1.Memcached) batchv1.Job {
	return batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: build.DrainName(build.ClaimName("cache", 2), "claim"), UID: "job",
		Labels:          map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer, cachev1alpha1.LabelCluster: "cache"},
		Annotations:     map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "2"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached"))},
	}}
}

// Another client removes the label of a claim and of a Job. For a moment no cache has them: the cache of
// labelled objects has dropped them, and the cache of unlabelled ones doesn't have them yet. Both objects
// still exist, and a step that can't be undone must not take them for gone.
func TestAnObjectThatHasJustLostItsLabelIsNotTakenForGone(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	cache := &namespace{claims: []corev1.PersistentVolumeClaim{claimOf(2)}, jobs: []batchv1.Job{drainOf(cluster)}}
	live := &namespace{claims: []corev1.PersistentVolumeClaim{claimOf(2)}, jobs: []batchv1.Job{drainOf(cluster)}}
	r := &Reader{Cache: cache, Live: live, Seen: &remembered.Names{}, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	o := &State{Cluster: cluster}
	key := client.ObjectKeyFromObject(cluster)
	if err := r.observeClaims(t.Context(), o); err != nil || len(o.Claims) != 1 {
		t.Fatalf("%v: %v", o.Claims, err)
	}
	if err := r.observeJobs(t.Context(), key, o); err != nil || len(o.Jobs) != 1 {
		t.Fatalf("%v: %v", o.Jobs, err)
	}
	cache.claims, cache.jobs = nil, nil
	live.claims[0].Labels = nil
	delete(live.jobs[0].Labels, cachev1alpha1.LabelCluster)
	found, err := r.For(cluster).LiveClaims(t.Context())
	if err != nil || len(found.Claims) != 1 || len(found.Unlabelled) != 1 {
		t.Errorf("claims %v, without a label %v: %v", found.Claims, found.Unlabelled, err)
	}
	view, err := r.For(cluster).LiveJobs(t.Context())
	if err != nil || len(view.Jobs) != 1 || len(view.Unlabelled) != 1 {
		t.Errorf("Jobs %v, without a label %v: %v", view.Jobs, view.Unlabelled, err)
	}

	// A name that no object has is looked for once.
	live.claims, live.jobs = nil, nil
	for _, want := range []int{2, 0} {
		live.gets = nil
		found, err = r.For(cluster).LiveClaims(t.Context())
		if view, err := r.For(cluster).LiveJobs(t.Context()); err != nil || len(view.Jobs) != 0 {
			t.Errorf("Jobs %v: %v", view.Jobs, err)
		}
		if err != nil || len(found.Claims) != 0 || len(live.gets) != want {
			t.Errorf("claims %v, looked for %v, want %d: %v", found.Claims, live.gets, want, err)
		}
	}
}

// Any number of other owners' Jobs have the cluster's label. None of them keeps the name of the cluster's own
// Job from being remembered.
func TestOthersJobsCrowdOutNoName(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	cache := &namespace{}
	for i := range 2000 {
		job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("another-%d", i), Labels: map[string]string{cachev1alpha1.LabelCluster: "cache"}}}
		cache.jobs = append(cache.jobs, job)
	}
	own := drainOf(cluster)
	live := &namespace{jobs: append([]batchv1.Job{*own.DeepCopy()}, cache.jobs...)}
	r := &Reader{Cache: cache, Live: live, Seen: &remembered.Names{}, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	look := func() *View {
		view, err := r.LiveJobs(t.Context(), cluster)
		if observed := r.observeJobs(t.Context(), client.ObjectKeyFromObject(cluster), &State{Cluster: cluster}); err != nil || observed != nil {
			t.Fatal(err, observed)
		}
		return view
	}
	look()
	cache.jobs = append(cache.jobs, own)
	look()
	cache.jobs = cache.jobs[:2000]
	delete(live.jobs[0].Labels, cachev1alpha1.LabelCluster)
	if view := look(); len(view.Jobs) != 1 {
		t.Error("the cluster's own Job has lost its label, and is taken for gone")
	}
}

// The pod of an earlier Job names the Job that has the same name now.
func TestAJobIsReadOnce(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	earlier := drainOf(cluster)
	earlier.UID = "earlier"
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "drainer", Labels: earlier.Labels, Annotations: earlier.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&earlier, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}
	live := &namespace{jobs: []batchv1.Job{drainOf(cluster)}, pods: []corev1.Pod{pod}}
	r := &Reader{Live: live}
	view, err := r.For(cluster).LiveJobs(t.Context())
	if err != nil || len(view.Jobs) != 1 {
		t.Errorf("Jobs %v: %v", view.Jobs, err)
	}
}
