package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
)

// A StatefulSet deletes a claim that a person has held: its volume is set aside, and the person still finds it by the name.
func TestAClaimIsFoundByItsNameAfterItsVolumeIsSetAside(t *testing.T) {
	claim := func(name, asideOf string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		if asideOf != "" {
			c.Annotations = map[string]string{cachev1alpha1.AnnotationAsideOf: asideOf}
		}
		return c
	}
	s := &Session{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(
		claim("data-spool-0", ""), claim("data-spool-0-aside-1", "a"), claim("data-spool-1-aside-1", "b"),
		claim("data-spool-2-aside-1", "c"), claim("data-spool-2-aside-2", "d"), claim("data-spool-3-aside-1", ""),
	).Build()}
	for name, want := range map[string]string{
		"data-spool-0": "data-spool-0", "data-spool-0-aside-1": "data-spool-0-aside-1", "data-spool-1": "data-spool-1-aside-1",
	} {
		if c, err := s.Claim(t.Context(), name); err != nil || c.Name != want {
			t.Errorf("%s: %v, %v, want %s", name, c, err, want)
		}
	}
	for _, name := range []string{"data-spool", "data-spool-3", "data-spool-4"} {
		if c, err := s.Claim(t.Context(), name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if c, err := s.Claim(t.Context(), "data-spool-2"); err == nil || !strings.Contains(err.Error(), "data-spool-2-aside-2") {
		t.Errorf("one of two: %v, %v", c, err)
	}
}
