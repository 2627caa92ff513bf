package integration

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// Package v1alpha1 asks the API server's libraries about every rule. This asks an API server.
func TestTheControlPlaneAppliesTheRulesOfTheAPI(t *testing.T) {
	w := newNamespace(t)
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a refusal that says %q, got %v", want, err)
		}
	}
	stored := apitest.MakeMemcached(name).Namespace(w.namespace).Storage("1Gi")
	refused(admin.Create(t.Context(), stored.Memory("1Gi").Obj(), client.DryRunAll), "storage.size must be larger than memory")
	object := stored.Memory("64Mi").Obj()
	w.create(object)
	refused(admin.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":{"size":"512Mi"}}}`))), "storage.size can't shrink")
}

// The scale subresource has the same limits.
func TestScaleBeyondTheLimitIsRefused(t *testing.T) {
	w := newNamespace(t)
	w.create(apitest.MakeMemcached(name).Obj())
	if err := w.tryScale(513); err == nil {
		t.Error("scaled to 513")
	}
	if err := w.tryScale(512); err != nil {
		t.Error(err)
	}
}
