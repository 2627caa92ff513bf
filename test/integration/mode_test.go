package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// TestClustersKeepTheirModeWhenTheDefaultChanges shows that clusters that were created when the default was
// Mapped stay so, even if a manifest without a mode is applied. The test uses another API group, so that no
// other test sees the old CRD.
func TestClustersKeepTheirModeWhenTheDefaultChanges(t *testing.T) {
	tier.Second(t, "TestEachRuleOfTheAPIRefusesASpecWithItsMessage")
	w := newNamespace(t)
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "memcacheds." + cachev1alpha1.Group}, crd); err != nil {
		t.Fatal(err)
	}
	const group = "before.example.com"
	earlier := &unstructured.Unstructured{Object: map[string]any{"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "spec": crd.Object["spec"]}}
	earlier.SetName("memcacheds." + group)
	set(t, earlier.Object, group, "spec", "group")
	unstructured.RemoveNestedField(earlier.Object, "spec", "names", "shortNames")
	version := func() map[string]any {
		return earlier.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	}
	mode := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "storage", "properties", "mode", "default"}
	today, _, _ := unstructured.NestedString(version(), mode...)
	if today != string(cachev1alpha1.StorageSaved) {
		t.Fatalf("the default is %q", today)
	}
	set(t, version(), string(cachev1alpha1.StorageMapped), mode...)
	if err := admin.Create(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), earlier); err != nil {
			t.Error(err)
		}
	})

	kubectl := func(verb, object string, size int) error {
		manifest := fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: Memcached\nmetadata: {name: %s, namespace: %s}\n"+
			"spec: {size: %d, storage: {size: 1Gi}, routing: {client: dalli}}\n", group, object, w.namespace, size)
		cmd, err := plane.Kubectl(t.Context(), t.TempDir(), append(strings.Fields(verb), "-f", "-")...)
		if err != nil {
			return err
		}
		cmd.Stdin = strings.NewReader(manifest)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", verb, err, out)
		}
		return nil
	}
	modeOf := func(object string) (mode string, size int64) {
		mc := &unstructured.Unstructured{}
		mc.SetAPIVersion(group + "/v1alpha1")
		mc.SetKind("Memcached")
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: object}, mc); err != nil {
			t.Fatal(err)
		}
		mode, _, _ = unstructured.NestedString(mc.Object, "spec", "storage", "mode")
		size, _, _ = unstructured.NestedInt64(mc.Object, "spec", "size")
		return mode, size
	}
	ways := map[string]string{"by-the-client": "apply", "by-the-server": "apply --server-side"}
	for object, verb := range ways {
		w.eventually("the kind is served", func() error { return kubectl(verb, object, 2) })
		if mode, _ := modeOf(object); mode != "Mapped" {
			t.Fatalf("%s: the mode is %q", object, mode)
		}
	}

	before := earlier.DeepCopy()
	set(t, version(), today, mode...)
	// An update would fail, because the API server has written conditions meanwhile.
	if err := admin.Patch(t.Context(), earlier, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	made := 0
	w.eventually("new clusters have the new default", func() error {
		made++
		object := fmt.Sprintf("new-%d", made)
		if err := kubectl("create", object, 2); err != nil {
			return err
		}
		if mode, _ := modeOf(object); mode != today {
			return errors.New("it is still " + mode)
		}
		return nil
	})
	for object, verb := range ways {
		if err := kubectl(verb, object, 3); err != nil {
			t.Error(err)
		}
		if mode, size := modeOf(object); mode != "Mapped" || size != 3 {
			t.Errorf("%s: the mode is %q, and the size %d", object, mode, size)
		}
	}
	// A replace removes fields that the manifest doesn't have, as docs/hazards.md says.
	if err := kubectl("replace", "by-the-client", 2); err == nil || !strings.Contains(err.Error(), "storage.mode can't be changed") {
		t.Errorf("replaced with %v", err)
	}
}

// set sets a field of an object.
func set(t *testing.T, object map[string]any, value string, fields ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object, value, fields...); err != nil {
		text, _ := yaml.Marshal(object)
		t.Fatalf("%v: %s", err, text)
	}
}
