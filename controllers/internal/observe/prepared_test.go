package observe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// A mover's pod runs before the mover has connected to all servers. The mover reports when it is connected.
// If its log can't be read, it counts as prepared after some time.
func TestAMoverIsPreparedWhenItSaysSo(t *testing.T) {
	now := time.Unix(5000, 0)
	ran := func(d time.Duration) *corev1.ContainerStateRunning {
		return &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-d))}
	}
	for what, test := range map[string]struct {
		running  *corev1.ContainerStateRunning
		progress contract.Progress
		prepared bool
		wait     time.Duration
	}{
		"it has not started":      {nil, contract.Progress{}, false, 0},
		"it has just started":     {ran(0), contract.Progress{}, false, preparedAfter},
		"it connects":             {ran(time.Second), contract.Progress{Phase: contract.PhaseConnecting}, false, connectedAfter - time.Second},
		"it was prepared quickly": {ran(startedFor / 2), contract.Progress{Phase: contract.PhasePrepared}, false, startedFor - startedFor/2},
		"it is prepared":          {ran(startedFor), contract.Progress{Phase: contract.PhasePrepared}, true, 0},
		"it says nothing":         {ran(preparedAfter), contract.Progress{}, true, 0},
		"it still connects":       {ran(connectedAfter), contract.Progress{Phase: contract.PhaseConnecting}, true, 0},
	} {
		t.Run(what, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: "mover", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove},
				Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationTarget: "1-x", cachev1alpha1.AnnotationBegin: ""},
			}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: build.ContainerDrainer, State: corev1.ContainerState{Running: test.running}}}
			o := &State{Now: now, Objects: Objects{DrainerPods: []corev1.Pod{pod}}, Progress: map[types.UID]contract.Progress{"uid": test.progress}}
			got := drainers(o.DrainerPods, o.Progress, o.Now)
			if len(got) != 1 || !got[0].Waits || got[0].Prepared != test.prepared {
				t.Errorf("%+v", got)
			}
			if wait := o.MoversPrepare(now); wait != test.wait {
				t.Errorf("the next look is after %s, want %s", wait, test.wait)
			}
		})
	}
}

// A mover that settles may still find items. Routers ask the old owners until the mover reports
// that no items are left.
func TestAMoverHasFoundNothingWhenItSaysSo(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "mover", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove},
		Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationTarget: "1-x"},
	}}
	for _, nothing := range []bool{false, true} {
		got := drainers([]corev1.Pod{pod}, map[types.UID]contract.Progress{"uid": {Phase: contract.PhaseSettling, NothingLeft: nothing}}, time.Unix(5000, 0))
		if len(got) != 1 || got[0].Settles != nothing {
			t.Errorf("nothing is left: %t: %+v", nothing, got)
		}
	}
}

// A copy's pod that does not end is no reason for a roll-out to lose the items of members without volumes.
func TestACopyThatDoesNotEndLosesNoItems(t *testing.T) {
	now := time.Unix(50_000, 0)
	told := metav1.NewTime(now.Add(-time.Hour))
	warm := ring.WarmTarget("made", 0, ring.Record{})
	for what, test := range map[string]struct {
		target string
		mode   cachev1alpha1.StorageMode
		stuck  int
	}{
		"a copy, with volumes":    {warm, "", 1},
		"a copy, without volumes": {warm, cachev1alpha1.StorageMemory, 0},
		"a move, without volumes": {"1-x", cachev1alpha1.StorageMemory, 1},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "drainer", DeletionTimestamp: &told, Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove},
			Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationTarget: test.target},
		}}
		o := &State{Now: now, Cluster: apitest.MakeMemcached("cache").Storage("1Gi").Obj(), Objects: Objects{DrainerPods: []corev1.Pod{pod}}}
		o.Cluster.Spec.Storage.Mode = test.mode
		if stuck := o.stuck(); len(stuck) != test.stuck {
			t.Errorf("%s: %v", what, stuck)
		}
	}
}
