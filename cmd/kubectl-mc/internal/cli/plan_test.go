package cli

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/controllers"
)

func planOf(in string) *planFlags {
	return &planFlags{command: &command{io: genericiooptions.IOStreams{In: strings.NewReader(in), Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}}}, file: "-"}
}

// A manifest of another namespace, or of another operator that has Memcacheds, is not a plan for this one.
func TestAManifestOfAnotherMemcachedIsRefused(t *testing.T) {
	m := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "staging"}}
	const ours = "apiVersion: cache.example.com/v1alpha1\n"
	for text, takes := range map[string]bool{
		ours + "kind: Memcached\nmetadata: {name: cache}\nspec: {size: 2}":                     true,
		ours + "kind: Memcached\nmetadata: {name: cache, namespace: staging}\nspec: {size: 2}": true,
		ours + "kind: Memcached\nmetadata: {name: cache, namespace: shop}\nspec: {size: 2}":    false,
		ours + "kind: Memcached\nmetadata: {name: other}\nspec: {size: 2}":                     false,
		ours + "kind: StatefulSetDrain\nmetadata: {name: cache}":                               false,
		"apiVersion: kubedb.com/v1\nkind: Memcached\nmetadata: {name: cache}\nspec: {size: 2}": false,
		"kind: Memcached\nmetadata: {name: cache}\nspec: {size: 2}":                            false,
	} {
		if spec, err := planOf(text).readSpec(m); (err == nil) != takes || takes && *spec.Size != 2 {
			t.Errorf("%s: %v, %v", text, spec, err)
		}
	}
}

// A yes is about the shown plan.
func TestAChangeIsNotMadeAfterAnother(t *testing.T) {
	for name, test := range map[string]struct {
		other func(*cachev1alpha1.Memcached)
		size  int32
	}{
		"nothing else":      {func(*cachev1alpha1.Memcached) {}, 2},
		"another spec":      {func(m *cachev1alpha1.Memcached) { m.Spec.Size, m.Generation = ptr.To[int32](10), 8 }, 10},
		"another Memcached": {func(m *cachev1alpha1.Memcached) { m.Spec.Size, m.UID = ptr.To[int32](10), "other" }, 10},
		"a status":          {func(m *cachev1alpha1.Memcached) { m.Status.Phase = cachev1alpha1.PhaseDegraded }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			before := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "shop", UID: "uid", Generation: 7}}
			before.Spec.Size = ptr.To[int32](3)
			change, now := before.DeepCopy(), before.DeepCopy()
			change.Spec.Size = ptr.To[int32](2)
			test.other(now)
			s := &kube.Session{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(now).Build()}
			err := planOf("").make(t.Context(), s, before, change)
			if err2 := s.Get(t.Context(), client.ObjectKeyFromObject(now), now); err2 != nil || *now.Spec.Size != test.size || (err == nil) != (test.size == 2) {
				t.Errorf("the size is %d, want %d: %v, %v", *now.Spec.Size, test.size, err, err2)
			}
		})
	}
}
