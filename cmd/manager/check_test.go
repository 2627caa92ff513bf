package main

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"example.com/memcached-operator/controllers"
)

// kinds is an API server that serves these, or answers with an error.
type kinds struct {
	discovery.ServerResourcesInterface
	names []string
	err   error
}

func (k kinds) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	var list metav1.APIResourceList
	for _, name := range k.names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: name})
	}
	return &list, k.err
}

func TestACheckNamesWhatIsMissing(t *testing.T) {
	all := []string{"Memcached", "StatefulSetDrain"}
	for name, test := range map[string]struct {
		api  kinds
		want string
	}{
		"all kinds":   {kinds{names: all}, ""},
		"an old CRD":  {kinds{names: all[:1]}, "does not know StatefulSetDrain"},
		"no CRD":      {kinds{err: errors.New("not found")}, "are the CRDs installed?"},
		"a late list": {kinds{names: all, err: errors.New("busy")}, "busy"},
	} {
		if err := kindsAreServed(test.api); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestACheckWaitsForTheDeploymentOfThePresentSpec(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "manager"}
	ready := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
	for name, test := range map[string]struct {
		change func(*appsv1.DeploymentStatus)
		want   bool
	}{
		"ready":            {func(*appsv1.DeploymentStatus) {}, true},
		"an earlier spec":  {func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }, false},
		"the earlier pods": {func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 0 }, false},
		"both at once":     {func(s *appsv1.DeploymentStatus) { s.Replicas = 2 }, false},
		"not available":    {func(s *appsv1.DeploymentStatus) { s.Conditions = nil }, false},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 2},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}, Status: *ready.DeepCopy()}
		test.change(&d.Status)
		err := isReady(t.Context(), fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(d).Build(), key)
		if (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := isReady(t.Context(), fake.NewClientBuilder().WithScheme(controllers.NewScheme()).Build(), key); err == nil {
		t.Error("a Deployment that is not there is ready")
	}
}

func TestAChecksDeploymentIsNamed(t *testing.T) {
	if err := runCheck(nil, nil); err == nil || !strings.Contains(err.Error(), "NAMESPACE/NAME") {
		t.Errorf("without a Deployment: %v", err)
	}
}
