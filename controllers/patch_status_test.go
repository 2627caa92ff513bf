package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// statusWrites is an API server that gives the same answer to each write of a status.
type statusWrites struct {
	client.Client
	status statusWriter
}

type statusWriter struct {
	client.SubResourceWriter
	answer error
	n      int
}

func (s *statusWrites) Status() client.SubResourceWriter { return &s.status }

func (s *statusWriter) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	s.n++
	return s.answer
}

// TestAStatusThatWasNotWrittenIsNotKept: the reconcile's Memcached may be remembered as
// written, and then the next one would find nothing to write.
func TestAStatusThatWasNotWrittenIsNotKept(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi").Size(1).Defaulted().Obj()
	cluster.UID = "memcached"
	cluster.Spec.Memory, cluster.Spec.Storage.Mode = ptr.To(resource.MustParse("100Mi")), cachev1alpha1.StorageMapped // a volume without room to replay
	resourceOf := schema.GroupResource{Resource: "memcacheds"}
	for what, write := range map[string]func(context.Context, *MemcachedReconciler, *outcome) error{
		"the status": func(ctx context.Context, r *MemcachedReconciler, seen *outcome) error {
			return r.writeStatus(ctx, seen, plan.Plan{Size: plan.Size{Replicas: 1}}, nil)
		},
		"ahead of a roll-out": func(ctx context.Context, r *MemcachedReconciler, seen *outcome) error {
			return r.writeEarlyWarning(ctx, seen, plan.Plan{Size: plan.Size{Replicas: 1}})
		},
		"of what was not observed": func(ctx context.Context, r *MemcachedReconciler, seen *outcome) error {
			_, err := r.unobserved(ctx, seen.Cluster, apierrors.NewForbidden(resourceOf, "cache", nil))
			return err
		},
	} {
		for name, answer := range map[string]error{
			"written":             nil,
			"no answer":           errors.New("connection refused"),
			"another one's write": apierrors.NewConflict(resourceOf, "cache", nil),
			"gone":                apierrors.NewNotFound(resourceOf, "cache"),
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				server := &statusWrites{status: statusWriter{answer: answer}}
				r := &MemcachedReconciler{Client: server, Clock: testingclock.NewFakePassiveClock(time.Unix(5000, 0)), Events: events.NewFakeRecorder(10)}
				seen := &outcome{State: &observe.State{Cluster: cluster.DeepCopy(), Objects: observe.Objects{Pods: []corev1.Pod{{}}}}}
				err := write(t.Context(), r, seen)
				if server.status.n != 1 || name == "no answer" && !errors.Is(err, answer) || name == "gone" && apierrors.IsNotFound(err) {
					t.Fatalf("%d writes, %v", server.status.n, err)
				}
				diff := cmp.Diff(cluster.Status, seen.Cluster.Status)
				if answer == nil && diff == "" || answer != nil && diff != "" {
					t.Errorf("kept is: -before +after:\n%s", diff)
				}
			})
		}
	}
}

// An object whose status was not written has the status that the API server has.
func TestAStatusOfEitherKindIsRestored(t *testing.T) {
	for name, test := range map[string]struct{ before, after client.Object }{
		"Memcached":        {&cachev1alpha1.Memcached{}, &cachev1alpha1.Memcached{Status: cachev1alpha1.MemcachedStatus{Phase: cachev1alpha1.PhaseDegraded}}},
		"StatefulSetDrain": {&cachev1alpha1.StatefulSetDrain{}, &cachev1alpha1.StatefulSetDrain{Status: cachev1alpha1.StatefulSetDrainStatus{Replicas: 3}}},
	} {
		server := &statusWrites{status: statusWriter{answer: errors.New("connection refused")}}
		end := &ending{Client: server, now: time.Unix(5000, 0), statuses: &remembered.Statuses{}, refused: &remembered.Refusals{}}
		written, wait, err := end.write(t.Context(), test.before, test.after, remembered.Change{Urgent: true})
		if written || wait != 0 || err == nil || server.status.n != 1 {
			t.Errorf("%s: written %v, waits %s, %v, %d writes", name, written, wait, err, server.status.n)
		}
		if diff := cmp.Diff(test.before, test.after); diff != "" {
			t.Errorf("%s: -before +after:\n%s", name, diff)
		}
	}
}
