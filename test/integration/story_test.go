package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
)

// drain waits for a drain in this phase, for this reason, that the check accepts.
func (w *world) drain(ordinal int32, phase cachev1alpha1.DrainPhase, reason string, check func(*cachev1alpha1.DrainStatus) error) {
	w.Helper()
	w.eventually(fmt.Sprintf("drain %d is %s (%s)", ordinal, phase, reason), func() error {
		if err := w.drainIs(ordinal, phase, reason); err != nil {
			return err
		}
		for _, d := range w.memcached().Status.Drains {
			if d.Ordinal != ordinal {
				continue
			}
			if d.Since.IsZero() || d.LeavingSince.IsZero() || d.Since.Before(d.LeavingSince) {
				return fmt.Errorf("since when? %s", asJSON(d))
			}
			if err := check(&d); err != nil {
				return fmt.Errorf("%w: %s", err, asJSON(d))
			}
		}
		return nil
	})
}

// moving waits for a drain that is adding items, and returns the ordinal of its claim.
func (w *world) moving() (ordinal int32) {
	w.Helper()
	w.eventually("a drainer is at work", func() error {
		drains := w.memcached().Status.Drains
		for _, d := range drains {
			if d.Phase == cachev1alpha1.DrainAdding {
				ordinal = d.Ordinal
				return nil
			}
		}
		return fmt.Errorf("drains are %s", asJSON(drains))
	})
	return ordinal
}

func says(part string) func(*cachev1alpha1.DrainStatus) error {
	return func(d *cachev1alpha1.DrainStatus) error {
		if !strings.Contains(d.Message, part) {
			return fmt.Errorf("it does not say %q", part)
		}
		return nil
	}
}

func TestStatusTellsTheWholeStoryOfAScaleDown(t *testing.T) {
	w := newNamespace(t)
	var now atomic.Pointer[contract.Progress]
	now.Store(&contract.Progress{Phase: contract.PhaseConnecting, BytesTotal: 1000, Message: "waiting for cache-0 (connection refused)"})
	w.progress = func(context.Context, string, string) (*contract.Progress, error) { return now.Load(), nil }
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 4)
	kubes.Linger(w.namespace, true)
	var tries atomic.Int32
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		if tries.Load() == 0 {
			return player.Act{Wait: true}
		}
		return player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer")(d)
	})

	w.scale(2)
	w.drain(3, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonPodPresent, says("member 3"))
	kubes.Linger(w.namespace, false)
	first := w.moving() // the member whose pod was gone first
	second := 5 - first
	w.drain(first, cachev1alpha1.DrainAdding, cachev1alpha1.ReasonSurvivorUnreachable, says("waiting for cache-0"))
	w.drain(second, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonInTurn, says("another drain"))

	now.Store(&contract.Progress{Phase: contract.PhaseAdding, ItemsDone: 10, ItemsTotal: 40, BytesDone: 250, BytesTotal: 1000, Seconds: 20})
	w.drain(first, cachev1alpha1.DrainAdding, "", func(d *cachev1alpha1.DrainStatus) error {
		if d.ItemsDone != 10 || d.ItemsTotal != 40 || d.BytesDone != 250 || d.BytesTotal != 1000 || ptr.Deref(d.TimeLeft, metav1.Duration{}).Duration != time.Minute {
			return errors.New("not the progress, or not 60 s left")
		}
		if line := w.memcached().Status.Progress; line != "25% (10/40 items, 1m0s left)" {
			return fmt.Errorf("the column says %q", line)
		}
		return nil
	})

	tries.Add(1) // the drainer dies, and Kubernetes waits before it starts the next one
	w.drain(first, cachev1alpha1.DrainStarting, cachev1alpha1.ReasonRetrying, says("SurvivorUnreachable: cache-0 did not answer"))
	kubes.Play(w.namespace, player.Succeed(40))
	last := w.settled(2).Status.LastDrains
	if len(last) != 2 || last[0].Claim != claimName(int(second)) || last[1].Claim != claimName(int(first)) || last[1].Added != 40 {
		t.Errorf("the receipts are %s", asJSON(last))
	}
}
