package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
)

func TestAClusterWithoutStorageIsADeployment(t *testing.T) {
	t.Parallel()
	f := setup(t, cachev1alpha1.MemcachedSpec{
		Size: ptr.To[int32](2), ContainerPort: 11211, Metrics: &cachev1alpha1.MetricsSpec{},
	})
	var deployment appsv1.Deployment
	f.must(kube.Get(f.ctx, f.key(f.name), &deployment))
	f.scale(1)
	f.settled(1)
	nodes := f.memcached().Status.Nodes
	if len(nodes) != 1 {
		t.Fatalf("status.nodes is %v, want one pod", nodes)
	}
	// The member answers.
	var pod corev1.Pod
	f.must(kube.Get(f.ctx, f.key(nodes[0]), &pod))
	address := pod.Status.PodIP + ":11211"
	single := f.appAt([]string{"cache:11211"}, address)
	objects := []app.Object{{Key: "greeting", Value: []byte("hello"), Flags: 7}}
	f.must(single.Fill(f.ctx, objects))
	report, err := single.Check(f.ctx, objects)
	f.must(err)
	if report.Found != 1 {
		t.Fatalf("the member does not keep an item: %v", report.Examples)
	}
	metrics := f.expectStatus("http://"+pod.Status.PodIP+":9150/metrics", "", http.StatusOK)
	for _, series := range []string{"\nmemcached_up 1\n", "\nmemcached_current_items 1\n"} {
		if !strings.Contains(metrics, series) {
			t.Errorf("its metrics don't say %q: %s", series, metrics)
		}
	}
}

func TestHibernationKeepsTheCache(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	f := setup(t, persistent(3))
	objects := f.objects()
	f.fill(3, objects)

	f.hibernate(3)
	f.scale(3)
	f.settled(3)
	f.expectAll(3, objects)
	if drains := f.memcached().Status.LastDrains; len(drains) != 0 {
		t.Fatalf("hibernation drained: %+v", drains)
	}
}

// hibernate scales a cluster of that size to 0. Its volumes stay.
func (f *fixture) hibernate(size int) {
	f.Helper()
	f.scale(0)
	f.eventually("the cluster hibernates", func() bool {
		return f.memcached().Status.Phase == cachev1alpha1.PhaseHibernated && len(f.pods()) == 0
	})
	for ordinal := range size {
		if claim := f.claim(ordinal); claim == nil || !held(claim) {
			f.Fatalf("claim %d is not kept: %+v", ordinal, claim)
		}
	}
}

func TestDeletionWithRetainKeepsTheCacheForASuccessor(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	f := setup(t, persistent(2))
	objects := f.objects()
	f.fill(2, objects)

	f.delete()
	f.expectKept(0)
	f.expectKept(1)

	f.create(persistent(2))
	f.settled(2)
	f.expectAll(2, objects)
	if claim := f.claim(0); !held(claim) {
		t.Fatal("the successor does not hold the claim")
	}
}

// expectKept checks a claim of a Memcached that was deleted.
func (f *fixture) expectKept(ordinal int) {
	f.Helper()
	claim := f.claim(ordinal)
	if claim == nil || claim.DeletionTimestamp != nil || held(claim) {
		f.Fatalf("claim %d should be kept, without our finalizer: %+v", ordinal, claim)
	}
}

func TestDeletionWithDeleteLeavesNothing(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	spec := persistent(2)
	spec.Drain.WhenDeleted = cachev1alpha1.DeletionDelete
	f := setup(t, spec)
	volume := f.claim(0).Spec.VolumeName

	f.delete()
	f.eventually("the claims are gone", func() bool { return f.claim(0) == nil && f.claim(1) == nil })
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(volume) })
}

// delete deletes the Memcached and waits until it and its pods are gone.
func (f *fixture) delete() {
	f.Helper()
	mc := f.memcached()
	f.must(kube.Delete(f.ctx, mc))
	f.eventually("the Memcached and its pods are gone", func() bool {
		err := kube.Get(f.ctx, client.ObjectKeyFromObject(mc), mc)
		return apierrors.IsNotFound(err) && len(f.pods()) == 0
	})
}

func (f *fixture) volumeExists(name string) bool {
	f.Helper()
	err := kube.Get(f.ctx, client.ObjectKey{Name: name}, &corev1.PersistentVolume{})
	if !apierrors.IsNotFound(err) {
		f.must(err)
	}
	return err == nil
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// expectReceipt checks that status has the receipt of the last drain.
func (f *fixture) expectReceipt(unclean bool) {
	f.Helper()
	if r := f.expectAnyReceipt(); r.Unclean != unclean {
		f.Fatalf("want the receipt of an unclean=%v drain: %+v", unclean, r)
	}
}

// expectAnyReceipt is for a member of which it is unknown whether it has saved.
func (f *fixture) expectAnyReceipt() cachev1alpha1.DrainReceipt {
	f.Helper()
	if drains := f.memcached().Status.LastDrains; len(drains) != 1 {
		f.Fatalf("status.lastDrains has %d receipts, want one", len(drains))
	}
	return f.lastReceipt()
}

// lastReceipt returns that of the last drain, which must add up.
func (f *fixture) lastReceipt() cachev1alpha1.DrainReceipt {
	f.Helper()
	drains := f.memcached().Status.LastDrains
	if len(drains) == 0 {
		f.Fatal("status.lastDrains has no receipt")
	}
	r := drains[0]
	f.Logf("receipt: %+v", r)
	if r.Result != "Drained" || r.Found == 0 || r.Found != r.Added+r.AlreadyPresent+r.Expired+r.Invalidated {
		f.Fatalf("the receipt does not add up: %+v", r)
	}
	return r
}
