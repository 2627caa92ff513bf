package integration

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// dieAfter lets the operator die right after the first write that fits, before it knows of the success.
func (w *world) dieAfter(fits func(write string) bool) {
	var done atomic.Bool
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if fits(write.String()) && done.CompareAndSwap(false, true) {
			return operator.DieAfter
		}
		return operator.NoFault
	})
}

func TestOperatorThatDiesAfterAWriteIsSucceededByOneThatGoesOn(t *testing.T) {
	tier.Second(t, "TestCrashPoints")
	t.Parallel()
	nth := func(n int, verb string) func(string) bool {
		var seen atomic.Int32
		return func(write string) bool { return write == verb && int(seen.Add(1)) == n }
	}
	const claim = "persistentvolumeclaims data-cache-2"
	for what, fits := range map[string]func(string) bool{
		"the claim is marked":             nth(1, "patch "+claim),
		"the StatefulSet is made smaller": nth(1, "patch statefulsets cache"),
		"the first status":                nth(1, "patch memcacheds/status cache"),
		"the second status":               nth(2, "patch memcacheds/status cache"),
		"the Job is created":              nth(1, "create jobs"),
		"the receipt is recorded":         nth(2, "patch "+claim),
		"the Job is deleted":              func(write string) bool { return len(write) > 12 && write[:12] == "delete jobs " },
		"the claim is deleted":            nth(1, "delete "+claim),
		"the finalizer is removed":        nth(3, "patch "+claim),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 3)
			w.quiet()
			left := w.claim(2)
			w.dieAfter(fits)
			w.scale(2)
			select {
			case <-w.running().Ended():
			case <-wait.Over():
				t.Fatalf("the operator never came to that write\n%s", w.picture())
			}
			w.restartOperator()
			w.claimGone(2, left.UID)
			w.volumeGone(left)
			w.settled(2)
			equal(w, "Jobs", len(w.jobs()), 0)
			creates := 0
			for _, write := range w.journal.Writes() {
				if write.String() == "create jobs" && write.Status == 201 {
					creates++
				}
			}
			equal(w, "Jobs created", creates, 1)
		})
	}
}

func TestOperatorRestartedWhileADrainRunsWaitsForItsEnd(t *testing.T) {
	tier.Second(t, "TestCrashPoints")
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	job := w.jobOf(left.UID)
	w.restartOperator()
	w.always("the same Job goes on", func() error {
		if j := w.jobOf(left.UID); j == nil || j.UID != job.UID {
			return errors.New("it does not")
		}
		return w.claimIsKept(2)
	})
	kubes.Play(w.namespace, player.Succeed(4))
	w.claimGone(2, left.UID)
	w.settled(2)
}

// An operator that starts in the middle of a drain may find a Job of an earlier version, with other names,
// labels and flags. The operator doesn't begin the drain again.
func TestAJobThatAnEarlierOperatorBuiltIsHonoured(t *testing.T) {
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	now := w.jobOf(left.UID)
	w.stopOperator()
	w.delete(now, client.PropagationPolicy(metav1.DeletePropagationBackground))
	w.eventually("no Job and no drainer", func() error {
		var pods corev1.PodList
		w.list(&pods, client.MatchingLabels{batchv1.JobNameLabel: now.Name})
		if w.jobOf(left.UID) != nil || len(pods.Items) > 0 {
			return errors.New("there is one")
		}
		return nil
	})
	w.create(earlier(now))
	w.startOperator()
	w.drainRuns(left.UID)
	job := w.jobOf(left.UID)
	w.always("the earlier Job goes on", func() error {
		if j := w.jobOf(left.UID); j == nil || j.UID != job.UID {
			return errors.New("it does not")
		}
		return w.claimIsKept(2)
	})
	kubes.Play(w.namespace, player.Succeed(4))
	w.claimGone(2, left.UID)
	m := w.settled(2)
	equal(w, "items", m.Status.LastDrains[0].Added, int64(4))
}

// earlier returns the Job in another form: without fields that a drain doesn't need, and with fields that this
// operator doesn't know.
func earlier(now *batchv1.Job) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: now.Namespace, Name: now.Name + "-0", OwnerReferences: now.OwnerReferences,
			Labels: maps.Clone(now.Labels), Annotations: maps.Clone(now.Annotations),
		},
		Spec: batchv1.JobSpec{PodReplacementPolicy: ptr.To(batchv1.Failed), Template: *now.Spec.Template.DeepCopy()},
	}
	job.Labels["example.com/shape"] = "earlier"
	template := &job.Spec.Template
	for _, label := range []string{batchv1.JobNameLabel, batchv1.ControllerUidLabel, "job-name", "controller-uid"} {
		delete(template.Labels, label)
		delete(job.Labels, label)
	}
	c := &template.Spec.Containers[0]
	c.Command = append(c.Command, "--of-another-time")
	return job
}
