package integration

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
)

// dieAfter lets the operator die right after the first write that fits, before
// it knows of its success.
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
			case <-time.After(patience):
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
