package integration

import (
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// manifests are the two ways to apply a file. Each function applies a spec, without the number at the path, if
// one is given.
var manifests = map[string]func(w *world, spec map[string]any, without ...string){
	// kubectl apply sends a merge patch, with null for each field that is gone from the file.
	"client-side apply": func(w *world, spec map[string]any, without ...string) {
		if len(without) == 0 {
			w.create(memcachedOf(spec))
			return
		}
		_ = unstructured.SetNestedField(spec, nil, without...)
		patch := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		w.change(w.memcached(), asJSON(patch.Object))
	},
	"server-side apply": func(w *world, spec map[string]any, without ...string) {
		if len(without) > 0 {
			unstructured.RemoveNestedField(spec, without...)
		}
		m := memcachedOf(spec)
		m.SetNamespace(w.namespace)
		if err := admin.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(m), client.FieldOwner("gitops")); err != nil {
			w.Fatal(err)
		}
	},
}

func memcachedOf(spec map[string]any) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	m.SetGroupVersionKind(cachev1alpha1.GroupVersion.WithKind("Memcached"))
	m.SetName(name)
	return m
}

func storageSpec(size int64) map[string]any {
	return map[string]any{
		"size": size, "storage": map[string]any{"size": "128Mi"}, "routing": map[string]any{"client": "libmemcached-ketama-weighted", "patience": "0s"},
	}
}

// A size is taken out of the manifest to hand it to an autoscaler, as guides for GitOps say.
func TestTheSizeStaysWhenItIsTakenOutOfTheManifest(t *testing.T) {
	for how, apply := range manifests {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			apply(w, storageSpec(1))
			w.settled(1)
			apply(w, storageSpec(1), "size")
			w.eventually("the size in the spec", func() error {
				if n := w.memcached().Spec.Size; n == nil || *n != 1 {
					return fmt.Errorf("size %s, and %d members", asJSON(n), *w.statefulSet().Spec.Replicas)
				}
				return nil
			})
			m := w.settled(1)
			if len(m.Status.LastDrains) > 0 {
				t.Errorf("there were drains: %s", asJSON(m.Status.LastDrains))
			}
			scale := &autoscalingv1.Scale{}
			if err := admin.SubResource("scale").Get(t.Context(), m, scale); err != nil || scale.Spec.Replicas != 1 {
				t.Errorf("an autoscaler reads %d: %v", scale.Spec.Replicas, err)
			}
			w.scale(2)
			w.settled(2)
			apply(w, storageSpec(2), "size") // the manifest is applied again
			w.settled(2)
		})
	}
}

func TestTheNumberOfRoutersStaysWhenItIsTakenOutOfTheManifest(t *testing.T) {
	for how, apply := range manifests {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			spec := func() map[string]any {
				s := storageSpec(2)
				s["router"] = map[string]any{"replicas": int64(3), "resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}
				return s
			}
			apply(w, spec())
			w.settled(2)
			w.allRoutedTo(3, 2)
			apply(w, spec(), "router", "replicas")
			w.settled(2)
			w.eventually("the number is the Deployment's own", func() error {
				if n := w.memcached().Spec.Router.Replicas; n != nil {
					return fmt.Errorf("the spec has %d", *n)
				}
				return nil
			})
			w.change(w.memcached(), `{"spec":{"router":{"resources":{"requests":{"cpu":"1"}}}}}`)
			w.eventually("routers with other resources", func() error {
				d := w.routerDeployment()
				if cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" || *d.Spec.Replicas != 3 {
					return fmt.Errorf("cpu %s, %d routers", cpu, *d.Spec.Replicas)
				}
				return nil
			})
			w.allRoutedTo(3, 2)
			w.change(w.routerDeployment(), `{"spec":{"replicas":4}}`)
			w.allRoutedTo(4, 2)
			w.settled(2)
			w.allRoutedTo(4, 2)
		})
	}
}

// TestAClusterWithoutASizeIsToldItsOwn because an autoscaler needs a size to begin with.
func TestAClusterWithoutASizeIsToldItsOwn(t *testing.T) {
	for kind, spec := range map[string]map[string]any{"with storage": storageSpec(0), "without": {"containerPort": int64(11211)}} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			delete(spec, "size")
			w.create(memcachedOf(spec))
			if n := w.settled(1).Spec.Size; n == nil || *n != 1 {
				t.Errorf("size %s", asJSON(n))
			}
			w.scale(2)
			w.settled(2)
		})
	}
}
