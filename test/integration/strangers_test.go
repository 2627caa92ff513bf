package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// Other clients may write to the cluster's objects, or create objects with their names. These tests show what
// must not happen then.

// A Memcached with the name of another owner's StatefulSet gets no right to the volumes of that StatefulSet.
func TestAMemcachedTouchesNoClaimOfAnothersStatefulSet(t *testing.T) {
	w := newWorld(t)
	labels := map[string]string{"app": "database"}
	w.create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "database", Image: "any"}}},
			},
		},
	})
	w.create(bareClaim(claimName(0)))
	before := w.claim(0)
	w.create(apitest.MakeMemcached(name).Storage("128Mi").WhenDeleted(cachev1alpha1.DeletionDelete).Obj())
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.delete(w.memcached())
	w.eventually("the Memcached gone", func() error {
		if w.memcached() != nil {
			return errors.New("it is there")
		}
		return nil
	})
	after := w.claim(0)
	if after == nil || after.UID != before.UID || after.DeletionTimestamp != nil {
		t.Fatalf("the claim is %s", asJSON(after))
	}
	equal(w, "labels of the claim", after.Labels, before.Labels)
	for key := range after.Annotations {
		if strings.HasPrefix(key, "cache.example.com/") {
			t.Errorf("the claim is annotated with %s", key)
		}
	}
	equal(w, "our finalizer is on it", slices.Contains(after.Finalizers, cachev1alpha1.ClaimFinalizer), false)
}

// A claim that existed before its member may have other data on its volume than a cache's. No policy deletes
// the claim; a drain that has read all of it does.
func TestAnAdoptedClaimIsDeletedByNoPolicy(t *testing.T) {
	tier.Second(t, "TestAPolicyHoldsForTheVolumesThatWereLeftUnderIt")
	w := newWorld(t)
	for i := range 2 {
		w.create(bareClaim(claimName(i)))
	}
	m := apitest.MakeMemcached(name).WhenDeleted(cachev1alpha1.DeletionDelete).Policy(cachev1alpha1.PolicyDelete)
	w.storageCluster(m, 3)
	born := w.claim(2)
	w.scale(1)
	w.claimGone(2, born.UID)
	w.eventually("the adopted one is let go", func() error {
		if c := w.claim(1); c == nil || c.DeletionTimestamp != nil || slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return errors.New(asJSON(c))
		}
		return nil
	})
	w.scale(2) // the left volume is set aside, because its member returns
	w.settled(2)
	w.delete(w.memcached())
	w.eventually("the Memcached gone", func() error {
		if w.memcached() != nil {
			return errors.New("it is there")
		}
		return nil
	})
	kept := slices.DeleteFunc(w.claims(), func(c corev1.PersistentVolumeClaim) bool {
		return c.DeletionTimestamp != nil || !strings.Contains(c.Name, "-aside-")
	})
	equal(w, "volumes that were set aside, and stay", len(kept), 1)
	for i := range 1 {
		if c := w.claim(i); c == nil || c.DeletionTimestamp != nil || slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			t.Errorf("claim %d is %s", i, asJSON(c))
		}
	}
}

// A claim or a Job without its label is not in the cache. This must not end the drain.
func TestADepartedClaimThatLosesItsLabelIsDrained(t *testing.T) {
	t.Parallel()
	unlabel := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster)
	labelled := func(w *world) {
		w.eventually("the label again", func() error {
			if c := w.claim(2); c == nil || c.Labels[cachev1alpha1.LabelCluster] != name {
				return errors.New(asJSON(c))
			}
			return nil
		})
	}
	t.Run("while it is drained", func(t *testing.T) {
		w := newWorld(t)
		left := w.hangingDrain(apitest.MakeMemcached(name))
		w.change(left, unlabel)
		labelled(w)
		equal(w, "its Job is there", w.jobOf(left.UID) != nil, true)
		w.change(w.jobOf(left.UID), unlabel)
		w.eventually("the Job's label again", func() error {
			if job := w.jobOf(left.UID); job == nil || job.Labels[cachev1alpha1.LabelCluster] != name {
				return errors.New(asJSON(job))
			}
			return nil
		})
		kubes.Play(w.namespace, player.Succeed(7))
		w.claimGone(2, left.UID)
		equal(w, "items found", w.settled(2).Status.LastDrains[0].Found, int64(7))
	})
	t.Run("before status tells of it, and no operator runs", func(t *testing.T) {
		w := newWorld(t)
		w.storageCluster(apitest.MakeMemcached(name), 3)
		w.quiet()
		left := w.claim(2)
		w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
			if write.Resource == "statefulsets" {
				return operator.DieAfter
			}
			return operator.NoFault
		})
		w.scale(2)
		<-w.running().Ended()
		w.journal.Inject(nil)
		equal(w, "drains in status", len(w.memcached().Status.Drains), 0)
		w.change(left, unlabel)
		w.startOperator()
		kubes.Play(w.namespace, player.Succeed(7))
		w.claimGone(2, left.UID)
		equal(w, "items found", w.settled(2).Status.LastDrains[0].Found, int64(7))
	})
	t.Run("while the cluster is paused", func(t *testing.T) {
		tier.Second(t, "TestADepartedClaimThatLosesItsLabelIsDrained")
		w := newWorld(t)
		left := w.hangingDrain(apitest.MakeMemcached(name))
		w.change(w.memcached(), `{"spec":{"paused":true}}`)
		w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonPaused)
		w.change(left, unlabel)
		w.always("the drain is told of", func() error {
			if len(w.memcached().Status.Drains) != 1 || w.jobOf(left.UID) == nil {
				return errors.New(asJSON(w.memcached().Status.Drains))
			}
			return nil
		})
		w.change(w.memcached(), `{"spec":{"paused":false}}`)
		labelled(w)
		kubes.Play(w.namespace, player.Succeed(7))
		w.claimGone(2, left.UID)
		equal(w, "items found", w.settled(2).Status.LastDrains[0].Found, int64(7))
	})
	t.Run("while a person holds it", func(t *testing.T) {
		tier.Second(t, "TestADepartedClaimThatLosesItsLabelIsDrained")
		w := newWorld(t)
		w.storageCluster(apitest.MakeMemcached(name), 3)
		left := w.claim(2)
		w.annotate(2, cachev1alpha1.DrainHold)
		w.scale(2)
		w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainHeld)
		w.change(left, unlabel)
		labelled(w)
		kubes.Play(w.namespace, player.Succeed(7))
		w.annotate(2, "")
		w.claimGone(2, left.UID)
		equal(w, "items found", w.settled(2).Status.LastDrains[0].Found, int64(7))
	})
}

// A claim with the operator's finalizer is drained, even if another controller takes control of it later.
func TestAMembersClaimThatAnotherTakesControlOfIsDrained(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	left := w.claim(1)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "database"}}
	w.create(owner)
	w.change(left, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"database","uid":%q,"controller":true}]}}`, owner.UID))
	kubes.Play(w.namespace, player.Succeed(7))
	w.scale(1)
	w.claimGone(1, left.UID)
	equal(w, "items found", w.settled(1).Status.LastDrains[0].Found, int64(7))
}

// Kubernetes doesn't check the name of a claim's volume.
func TestAClaimWhoseVolumeCannotBeStopsNoCluster(t *testing.T) {
	tier.Second(t, "TestAClaimOfAMemberThatCannotBeStopsNoCluster")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	claim := bareClaim(claimName(400))
	claim.Labels = map[string]string{cachev1alpha1.LabelCluster: name}
	claim.Finalizers = []string{cachev1alpha1.ClaimFinalizer}
	claim.Spec.VolumeName = "a/b"
	w.create(claim)
	w.delete(claim)
	w.change(w.memcached(), `{"spec":{"podTemplate":{"labels":{"team":"shop"}}}}`)
	w.eventually("the members' label", func() error {
		if template, _ := w.template(); template.Labels["team"] != "shop" {
			return errors.New("it is not there")
		}
		return nil
	})
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonClaimDeleted)
	w.delete(w.memcached())
	w.eventually("the Memcached gone, and the claim", func() error {
		if w.memcached() != nil || w.claim(400) != nil {
			return errors.New("one is there")
		}
		return nil
	})
}

// The pod of a copy of a Job, with the Job's annotations and labels, is no drainer.
func TestThePodOfAnothersJobHoldsNothingUp(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	left := w.claim(1)
	kubes.Play(w.namespace, player.Succeed(7))
	labels := map[string]string{}
	for k, v := range w.pod("cache-0").Labels {
		labels[k] = v
	}
	const target = "9-00000000"
	for _, job := range []*batchv1.Job{
		foreignJob(moveName(w.claim(0), target), nil, map[string]string{cachev1alpha1.AnnotationClaimUID: string(w.claim(0).UID), cachev1alpha1.AnnotationTarget: target}),
		foreignJob(drainName(left)+"x", nil, map[string]string{cachev1alpha1.AnnotationClaimUID: string(left.UID), cachev1alpha1.AnnotationSurvivors: "1"}),
	} {
		w.create(job)
		labels[cachev1alpha1.LabelComponent] = cachev1alpha1.ComponentMove
		if strings.Contains(job.Name, "-drain-") {
			labels[cachev1alpha1.LabelComponent] = cachev1alpha1.ComponentDrainer
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: job.Name, Labels: map[string]string{}, Annotations: job.Annotations},
			Spec:       corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "drainer", Image: "any"}}},
		}
		for k, v := range labels {
			pod.Labels[k] = v
		}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		w.create(pod)
	}
	w.scale(1)
	w.claimGone(1, left.UID)
	w.settled(1)
}

// A Job that has ended affects no size, even if a foreign finalizer keeps it. Its pod stays with the Job, and
// so does the claim. Status names the finalizer.
func TestAJobThatAForeignFinalizerKeepsIsNamed(t *testing.T) {
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	w.change(w.jobOf(left.UID), `{"metadata":{"finalizers":["example.com/theirs"]}}`)
	kubes.Play(w.namespace, player.Succeed(7))
	w.eventually("the claim let go", func() error {
		if c := w.claim(2); c != nil && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return errors.New("it is held")
		}
		return nil
	})
	w.scale(1)
	w.eventually("one member", func() error { return w.replicasAre(1) })
	w.stopOperator()
	w.clock = ahead{by: time.Hour}
	w.startOperator()
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonKeptByFinalizer)
	if !strings.Contains(message, "example.com/theirs") {
		t.Errorf("it says %q", message)
	}
	w.change(w.jobOf(left.UID), `{"metadata":{"finalizers":null}}`)
	w.claimGone(2, left.UID)
	w.settled(1)
}
