package model

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/observe"
)

// The first write of a StatefulSet and the later ones send the same configuration, so the result of
// admission is not written again.
func TestAFirstWriteThatAdmissionChangedIsNotRepeated(t *testing.T) {
	w := newWorld(t, &Options{})
	s := w.onlyMemcached()
	version := func() string {
		set := &appsv1.StatefulSet{}
		if err := s.Client.Get(t.Context(), clusterKey, set); err != nil {
			t.Fatal(err)
		}
		return set.ResourceVersion
	}
	write := func(present *observe.Objects) {
		t.Helper()
		if _, err := s.applier().Apply(t.Context(), w.base, present, []action.Action{action.ApplyStatefulSet{Replicas: *w.base.Spec.Size}}); err != nil {
			t.Fatal(err)
		}
	}
	write(&observe.Objects{})
	changed := get[appsv1.StatefulSet](s, clusterName)
	changed.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = quantity.MustParse("1")
	before := version()
	write(&observe.Objects{StatefulSet: changed})
	if after := version(); after != before {
		t.Errorf("the StatefulSet is written again: %s after %s", after, before)
	}
}
