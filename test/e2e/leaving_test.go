package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// straggler is an application that is never told of a new list.
type straggler struct {
	stop   context.CancelFunc
	ended  chan struct{}
	calls  int
	failed []string
	stored []app.Object
}

// straggle starts an application with the list of that size. The application reads these objects, and stores
// others, one call after the other.
func (f *fixture) straggle(size int, objects []app.Object) *straggler {
	f.Helper()
	s := &straggler{ended: make(chan struct{})}
	client := memcache.NewFromSelector(f.app(size))
	client.Timeout = wait.Long // no call may fail, however slow the machine is
	ctx, cancel := context.WithCancel(f.ctx)
	s.stop = cancel
	go func() {
		defer close(s.ended)
		defer client.Close()
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			o := app.Object{Key: fmt.Sprintf("late-%d", s.calls), Value: []byte("stored by the old list")}
			if err := client.Set(&memcache.Item{Key: o.Key, Value: o.Value}); err != nil {
				s.failed = append(s.failed, err.Error())
			} else {
				s.stored = append(s.stored, o)
			}
			// The object may have been moved. The test only needs an answer.
			if _, err := client.Get(objects[s.calls%len(objects)].Key); err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
				s.failed = append(s.failed, err.Error())
			}
			s.calls += 2
		}
	}()
	return s
}

// preparesWithin is how long the operator waits for movers before it changes the list.
const preparesWithin = 10 * time.Second

// wasPrepared checks that the only mover had started before clients were told of the new list, and that the
// mover was told to begin. If its pod took too long to start, the list may come first.
func (f *fixture) wasPrepared() {
	f.Helper()
	var list corev1.ConfigMap
	f.must(kube.Get(f.ctx, f.key(f.name+"-servers"), &list))
	told, marked := time.Time{}, f.claim(2).Annotations[cachev1alpha1.AnnotationLeaving]
	for _, m := range list.ManagedFields {
		told = m.Time.Time // of the last write
	}
	at, err := time.Parse(time.RFC3339, marked)
	f.must(err)
	for _, pod := range f.pods() {
		begin, is := pod.Annotations[cachev1alpha1.AnnotationBegin]
		if !is {
			continue
		}
		if begin == "" || begin != pod.Annotations[cachev1alpha1.AnnotationTarget] {
			f.Errorf("the mover's annotations are %v", pod.Annotations)
		}
		running := pod.Status.ContainerStatuses[0].State.Running
		f.Logf("marked at %s, clients told at %s, the mover is %+v", marked, told.UTC().Format(time.RFC3339), running)
		if told.Sub(at) < preparesWithin && (running == nil || running.StartedAt.After(told)) {
			f.Error("clients were told before the mover had started")
		}
		return
	}
	f.Error("there is no mover")
}

// A leaving member gives its items away while it runs. Meanwhile it serves an application that has the old
// list, until the application stops calling.
func TestALeavingMemberServesAnApplicationThatHasTheOldList(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	spec := persistent(3)
	spec.Routing.Patience = &metav1.Duration{Duration: wait.Long}
	f := setup(t, spec)
	objects := small(2000)
	f.fill(3, objects)
	f.expectAll(2, append(objects, f.leavesWhenNoClientCalls(objects)...))
}

// leavesWhenNoClientCalls scales three members to two. Three applications read these objects, and store
// others. The third member gives its items away when two of them have followed, and leaves when the last one
// stops. leavesWhenNoClientCalls returns the objects of that one.
func (f *fixture) leavesWhenNoClientCalls(objects []app.Object) (stored []app.Object) {
	f.Helper()
	old, others := f.straggle(3, objects), []*straggler{f.straggle(3, objects), f.straggle(3, objects)}
	f.scale(2)
	f.eventually("status says that clients call member 2", func() bool {
		for _, d := range f.memcached().Status.Drains {
			if d.Ordinal == 2 && d.Phase == cachev1alpha1.DrainLeaving && d.Reason == cachev1alpha1.ReasonStillCalled {
				f.Log(d.Message)
				return strings.Contains(d.Message, "commands")
			}
		}
		return false
	})
	for _, s := range others {
		s.stop()
		<-s.ended
		others = append(others, f.straggle(2, objects))
	}
	f.expectAllSoon(2, objects)
	f.wasPrepared()
	if pod := f.pod(2); pod == nil || pod.DeletionTimestamp != nil {
		f.Error("member 2 is called, and leaves")
	}

	old.stop()
	<-old.ended
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)
	f.Logf("%d calls by the old list, of which %d failed", old.calls, len(old.failed))
	if len(old.failed) > 0 || old.calls == 0 {
		f.Errorf("calls by the old list failed: %q", old.failed)
	}
	for _, s := range others {
		s.stop()
		<-s.ended
		if len(s.failed) > 0 {
			f.Errorf("calls of an application that follows failed: %q", s.failed)
		}
	}
	last := f.memcached().Status.LastDrains
	if len(last) == 0 || last[0].Moved == 0 || last[0].Found != 0 {
		f.Errorf("the drain still found items: %+v", last)
	}
	return old.stored
}
