package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// oneOfEach is an API server that has one StatefulSet and one claim.
type oneOfEach struct {
	client.Client
	members *appsv1.StatefulSet
	claim   *corev1.PersistentVolumeClaim
	deleted int
}

func (l *oneOfEach) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.members.DeepCopyInto(object.(*appsv1.StatefulSet))
	return nil
}

func (l *oneOfEach) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PersistentVolumeClaimList).Items = []corev1.PersistentVolumeClaim{*l.claim}
	return nil
}

func (l *oneOfEach) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	l.deleted++
	return nil
}

// The garbage collector takes the controller off the StatefulSet before it takes the
// finalizer off that says so: a cache may have the second without the first.
func TestMembersThatAreLeftAreNotDeletedByALaggingCache(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	owned := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "set", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached")),
	}}}
	left, successor := owned.DeepCopy(), owned.DeepCopy()
	left.OwnerReferences, successor.UID = nil, "another"
	for what, test := range map[string]struct {
		live    *appsv1.StatefulSet
		deleted int
		refused bool
	}{
		"as the cache has it": {owned, 1, false},
		"it was left":         {left, 0, true},
		"it is another one":   {successor, 0, false},
	} {
		server := &oneOfEach{members: test.live}
		a := &applier{MemcachedReconciler: &MemcachedReconciler{Client: server, Live: server}, cluster: cluster, seen: &observed{statefulSet: owned}}
		if err := a.deleteMembers(t.Context()); server.deleted != test.deleted || errors.Is(err, errRefused) != test.refused {
			t.Errorf("%s: %d deleted, %v", what, server.deleted, err)
		}
	}
}

// A claim that the API server has and the cache lacks is not gone: nothing is planned, or
// the Job that drains it would be taken for one without a claim.
func TestAClaimThatTheCacheLacksIsNotTakenForGone(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: build.ClaimName("cache", 2), UID: "claim", Labels: map[string]string{cachev1alpha1.LabelCluster: "cache"},
	}}
	drain := batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
		Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "2"},
	}}
	server := &oneOfEach{claim: claim}
	r := &MemcachedReconciler{Client: server, Live: server, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	o := &observed{cluster: cluster, jobs: []batchv1.Job{drain}}
	if err := r.findClaims(t.Context(), o); !errors.Is(err, errRefused) {
		t.Errorf("the cache lacks a claim: %v", err)
	}
	o.claims = []corev1.PersistentVolumeClaim{*claim}
	if err := r.findClaims(t.Context(), o); err != nil {
		t.Errorf("the cache has it: %v", err)
	}
	server.claim = claim.DeepCopy()
	server.claim.UID, o.claims = "a later one", nil
	server.claim.Labels = nil
	if err := r.findClaims(t.Context(), o); err != nil || o.found == nil || len(o.found.unlabelled) != 1 {
		t.Errorf("one that has lost its label is found, to be labelled: %v", err)
	}
}
