package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
)

// bringBack brings a claim back as a backup does that keeps labels, annotations and finalizers: with another UID, and without
// its volume. Meanwhile the operator doesn't run.
func (w *world) bringBack(claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) {
	w.Helper()
	w.stopOperator()
	back := claim.DeepCopy()
	back.ObjectMeta = metav1.ObjectMeta{Name: claim.Name, Labels: claim.Labels, Annotations: claim.Annotations, Finalizers: []string{cachev1alpha1.ClaimFinalizer}}
	back.Spec.VolumeName, back.Status = "", corev1.PersistentVolumeClaimStatus{}
	for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"} {
		delete(back.Annotations, key)
	}
	change(back)
	w.annotateClaim(claim.Name, cachev1alpha1.DrainSkip) // a person may take the finalizer off, then
	w.change(claim, `{"metadata":{"finalizers":null}}`)
	w.delete(claim)
	w.volumeGone(claim)
	w.create(back)
	w.startOperator()
}

// A claim from a backup has its former marks: the protection, the leaving mark, and a request that is no
// person's word any more.
func TestAClaimThatABackupBringsBackIsLeftOver(t *testing.T) {
	w := queueWorld(t)
	kubes.Play(w.namespace, allMoved)
	w.annotateClaim("data-queue-2", cachev1alpha1.DrainHold)
	w.scaleQueue(2)
	w.stsDrainSays("Degraded", "True", cachev1alpha1.ReasonDrainHeld, "member 2", "drain=hold")
	w.bringBack(w.queueClaim("data-queue-2"), func(back *corev1.PersistentVolumeClaim) {
		back.Annotations[cachev1alpha1.AnnotationDrain] = cachev1alpha1.DrainRetry
		back.Spec.StorageClassName = ptr.To(player.LateClass) // it is filled when a pod mounts it
	})
	w.eventually("it is left over", func() error {
		if d := w.stsDrain(); !slices.Equal(d.Status.LeftOver, []string{"data-queue-2"}) {
			return fmt.Errorf("left over: %v; drains %+v", d.Status.LeftOver, d.Status.Drains)
		}
		return errors.Join(w.stsDrainIs("True", "Ready"), w.saidAbout("data-queue-2", "a backup has brought it back"))
	})
	w.rests()
	equal(w, "Jobs", len(w.jobs()), 0)
	equal(w, "its phase", w.queueClaim("data-queue-2").Status.Phase, corev1.ClaimPending)
	w.annotateClaim("data-queue-2", cachev1alpha1.DrainRetry)
	w.wantClaims("it is drained", "data-queue-0", "data-queue-1")
	w.wantResults("2 Drained")
}

func TestAMemcachedsClaimThatABackupBringsBackIsHeld(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.annotate(2, cachev1alpha1.DrainHold)
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainHeld)
	w.bringBack(w.claim(2), func(back *corev1.PersistentVolumeClaim) {
		back.Annotations[cachev1alpha1.AnnotationDrain] = cachev1alpha1.DrainSkip
		back.Annotations[cachev1alpha1.AnnotationPolicy] = string(cachev1alpha1.PolicyDelete)
	})
	w.eventually("it is held", func() error { return w.saidAbout(claimName(2), "a backup has brought it back") })
	w.rests()
	equal(w, "Jobs", len(w.jobs()), 0)
	w.eventually("status says how to go on", func() error {
		if err := w.drainIs(2, cachev1alpha1.DrainHeld, cachev1alpha1.ReasonHeld); err != nil {
			return err
		}
		message := w.memcached().Status.Drains[0].Message
		for _, part := range []string{"a backup has brought it back", "cache.example.com/drain=retry", "=skip"} {
			if !strings.Contains(message, part) {
				return fmt.Errorf("status says %q", message)
			}
		}
		return nil
	})
	back := w.claim(2)
	kubes.Play(w.namespace, player.Succeed(5))
	w.annotate(2, cachev1alpha1.DrainRetry)
	w.claimGone(2, back.UID)
	m := w.settled(2)
	equal(w, "the drain", m.Status.LastDrains[0].Result, "Drained")
}
