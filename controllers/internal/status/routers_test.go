package status

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

// RoutersReady names the trouble, and Ready is false then.
func TestRoutersReadySaysWhatIsTheMatter(t *testing.T) {
	crashes := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-router-a", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	crashes.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "router", RestartCount: 4,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: "a table without servers"}},
	}}
	for name, test := range map[string]struct {
		replicas *int32
		of       *appsv1.DeploymentStatus
		pods     []corev1.Pod
		want     string
		behind   time.Duration
	}{
		"none yet":                    {ptr.To[int32](2), nil, nil, "Deployment cache-router is not there yet", 0},
		"all":                         {ptr.To[int32](2), &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "", 0},
		"an autoscaler's":             {nil, &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "", 0},
		"one is missing":              {ptr.To[int32](2), &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}, nil, "1 of 2 routers are ready", 0},
		"one of an autoscaler's":      {nil, &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}, nil, "1 of 2 routers are ready", 0},
		"more are wanted":             {ptr.To[int32](3), &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "2 of 3 routers are ready", 0},
		"they are replaced":           {ptr.To[int32](2), &appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2}, nil, "routers are being replaced or stopped: 3 exist, 1 are of the new specification, 2 are wanted", 0},
		"the Deployment is not seen":  {ptr.To[int32](2), &appsv1.DeploymentStatus{ObservedGeneration: -1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "routers are being replaced or stopped: 2 exist, 2 are of the new specification, 2 are wanted", 0},
		"one crashes, in its words":   {ptr.To[int32](1), &appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1}, []corev1.Pod{crashes}, "0 of 1 routers are ready: pod cache-router-a, container router: ", 0},
		"no pod, in Kubernetes' word": {ptr.To[int32](1), &appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: "True", Message: "exceeded quota"}}}, nil, "0 of 1 routers are ready: exceeded quota", 0},
		"one is behind for long":      {ptr.To[int32](2), &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "since 1", 2 * claims.StuckAfter},
		"one is behind":               {ptr.To[int32](2), &appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, nil, "", claims.StuckAfter / 2},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(3).with(func(in *Input) {
				in.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: test.replicas}
				in.RouterPods = test.pods
				if test.behind > 0 {
					in.RoutersBehind = []RouterBehind{{Pod: "cache-router-a", Since: now.Add(-test.behind), Why: "it has read table 5, not 7 yet"}}
				}
				if test.of != nil {
					in.Routers = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: *test.of}
				}
			})
			s := compute(t, in)
			c, ready := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionRoutersReady), s.Conditions[0]
			well := test.want == ""
			if (c == nil) != well || c != nil && c.Status != metav1.ConditionFalse || (ready.Status == metav1.ConditionTrue) != well {
				t.Fatalf("%+v, %+v", c, ready)
			}
			if !well && (len(c.Message) < len(test.want) || c.Message[:len(test.want)] != test.want || ready.Reason != cachev1alpha1.ReasonRoutersNotReady) {
				t.Errorf("it says %q, want %q; Ready has %s", c.Message, test.want, ready.Reason)
			}
			want := &cachev1alpha1.RouterStatus{Address: "cache-router." + in.Cluster.Namespace + ".svc:11211"}
			if test.of != nil {
				want.Replicas, want.Ready = test.of.Replicas, test.of.ReadyReplicas
			}
			if test.behind > 0 {
				want.Behind = []string{"cache-router-a"}
			}
			if diff := cmp.Diff(want, s.Router); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRoutersThatHoldAScalingUpAreNamed after five seconds, also those that don't answer.
func TestRoutersThatHoldAScalingUpAreNamed(t *testing.T) {
	late, ago := now.Add(-behindAfter), func(i int) RouterBehind {
		return RouterBehind{Pod: fmt.Sprintf("cache-router-%d", i), Since: now.Add(-behindAfter)}
	}
	many := []RouterBehind{}
	for i := range 2 * maxBehind {
		many = append(many, ago(2*maxBehind-1-i))
	}
	for name, test := range map[string]struct {
		behind []RouterBehind
		want   int
	}{
		"none":                {nil, 0},
		"one for a moment":    {[]RouterBehind{{Pod: "cache-router-0", Since: late.Add(time.Millisecond)}}, 0},
		"one does not answer": {[]RouterBehind{ago(0)}, 1},
		"one says why":        {[]RouterBehind{{"cache-router-0", late, "it waits for 3 requests"}}, 1},
		"many":                {many, maxBehind},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(3).with(func(in *Input) {
				in.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2)}
				in.Routers = &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}}
				in.RoutersBehind = test.behind
			})
			s := compute(t, in)
			if len(s.Router.Behind) != test.want || !slices.IsSorted(s.Router.Behind) {
				t.Errorf("named are %q", s.Router.Behind)
			}
			if test.want > 0 && s.Router.Behind[0] != "cache-router-0" {
				t.Errorf("named are %q", s.Router.Behind)
			}
			if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionRoutersReady); c != nil {
				t.Errorf("%+v", c)
			}
		})
	}
}
