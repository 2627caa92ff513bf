package observe

import (
	"context"
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// oneClaim is an API server with a single claim.
type oneClaim struct {
	client.Client
	claim *corev1.PersistentVolumeClaim
}

func (s *oneClaim) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PersistentVolumeClaimList).Items = []corev1.PersistentVolumeClaim{*s.claim}
	return nil
}

// A claim that the API server has and the cache lacks is not gone. The reconcile makes no plan,
// because the Job that drains the claim would seem to have no claim.
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
	server := &oneClaim{claim: claim}
	r := &Reader{Cache: server, Live: server, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	o := &State{Cluster: cluster, Jobs: []batchv1.Job{drain}}
	if err := r.findClaims(t.Context(), o); !errors.Is(err, read.ErrRefused) {
		t.Errorf("the cache lacks a claim: %v", err)
	}
	o.Claims = []corev1.PersistentVolumeClaim{*claim}
	if err := r.findClaims(t.Context(), o); err != nil {
		t.Errorf("the cache has it: %v", err)
	}
	server.claim = claim.DeepCopy()
	server.claim.UID, o.Claims = "a later one", nil
	server.claim.Labels = nil
	if err := r.findClaims(t.Context(), o); err != nil || o.Found == nil || len(o.Found.Unlabelled) != 1 {
		t.Errorf("one that has lost its label is found, to be labelled: %v", err)
	}
}

// strays are claims that have our finalizer and no label.
type strays struct {
	cache.Cache
	names []string
}

func (s *strays) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l := list.(*metav1.PartialObjectMetadataList)
	for _, name := range s.names {
		l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return nil
}

// A claim with our finalizer lost its label before status told of its drain, and the operator that had marked it is
// gone.
func TestAProtectedClaimThatLostItsLabelIsFound(t *testing.T) {
	cluster := testCluster()
	claim := claimOf(2)
	claim.Labels = nil
	server := &namespace{claims: []corev1.PersistentVolumeClaim{claim}}
	r := &Reader{Cache: server, Live: server, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	for _, test := range []struct {
		what  string
		names []string
		want  int
	}{
		{"no claim", nil, 0},
		{"the claim, and others'", []string{"data-cache-2", "data-another-2", "data-cache-x-2", "cache"}, 1},
		{"one that is gone", []string{"data-cache-3"}, 0},
	} {
		o := &State{Cluster: cluster}
		r.Unlabelled = &read.UnlabelledClaims{Cache: &strays{names: test.names}}
		if err := r.findClaims(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if found := o.Found; found == nil && test.want > 0 || found != nil && len(found.Unlabelled) != test.want {
			t.Errorf("%s: found %v", test.what, found)
		}
	}
	o := &State{Cluster: cluster, Claims: []corev1.PersistentVolumeClaim{claim}}
	r.Unlabelled = &read.UnlabelledClaims{Cache: &strays{names: []string{"data-cache-2"}}}
	if err := r.findClaims(t.Context(), o); err != nil || o.Found != nil {
		t.Errorf("the cache has it, and it was looked for: %v, %v", o.Found, err)
	}
}
