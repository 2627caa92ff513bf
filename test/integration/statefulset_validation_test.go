package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const aStatefulSetDrain = `
apiVersion: cache.example.com/v1alpha1
kind: StatefulSetDrain
metadata: {name: queue}
spec:
  statefulSetName: queue
  template:
    spec:
      containers: [{name: drain, image: drainer, volumeMounts: [{name: data, mountPath: /data}], aFieldOfALaterKubernetes: {a: 1}}]
`

func statefulSetDrain(t *testing.T, namespace string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(aStatefulSetDrain), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(namespace)
	return o
}

func TestAStatefulSetDrainThatCannotWorkIsRefusedWithASentence(t *testing.T) {
	w := newNamespace(t)
	for what, test := range map[string]struct {
		value any
		path  []string
		want  string
	}{
		"a name that is no name":        {"Queue", []string{"spec", "statefulSetName"}, "statefulSetName must be the name of a StatefulSet, such as queue"},
		"no StatefulSet":                {nil, []string{"spec", "statefulSetName"}, "statefulSetName: Required"},
		"no template":                   {nil, []string{"spec", "template"}, "template: Required"},
		"no spec of pods":               {map[string]any{}, []string{"spec", "template"}, "template.spec: Required"},
		"a receipt about nothing":       {"1 == 1", []string{"spec", "receipt"}, "receipt must be a CEL expression about the drainer's termination message"},
		"a receipt about another thing": {"myreceipt.found == 1", []string{"spec", "receipt"}, "receipt must be a CEL expression about the drainer's termination message"},
		"a deadline of no time":         {"1s", []string{"spec", "activeDeadline"}, "activeDeadline must be from 30s to 8760h"},
		"an unknown policy":             {"Forget", []string{"spec", "policy"}, "Unsupported value"},
		"no drains at once":             {int64(0), []string{"spec", "parallelism"}, "greater than or equal to 1"},
		"a label of the operator's":     {map[string]any{"cache.example.com/cluster": "a"}, []string{"spec", "template", "metadata", "labels"}, "template.metadata.labels must not have keys of cache.example.com"},
		"a label that is too long":      {map[string]any{"team": strings.Repeat("a", 64)}, []string{"spec", "template", "metadata", "labels"}, "template.metadata.labels: a key has at most 317 characters"},
		"a name that is no label value": {strings.Repeat("a", 64), []string{"metadata", "name"}, "the name must be a DNS label of at most 63 characters"},
		"the smallest":                  {"queue", []string{"spec", "statefulSetName"}, ""},
		"a receipt":                     {"receipt.found == receipt.moved + receipt.skipped", []string{"spec", "receipt"}, ""},
		"a receipt in brackets":         {"size(receipt) > 0", []string{"spec", "receipt"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			o := statefulSetDrain(t, w.namespace)
			unstructured.RemoveNestedField(o.Object, test.path...)
			if test.value != nil {
				if err := unstructured.SetNestedField(o.Object, test.value, test.path...); err != nil {
					t.Fatal(err)
				}
			}
			err := admin.Create(t.Context(), o, client.DryRunAll)
			if got := fmt.Sprint(err); test.want != "" && !strings.Contains(got, test.want) || test.want == "" && err != nil {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
}

func TestTheAPIServerTakesEachSampleOfAStatefulSetDrain(t *testing.T) {
	w := newNamespace(t)
	files, err := filepath.Glob("../../config/samples/statefulsetdrain_*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("samples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range strings.Split(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(one), &o.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			o.SetNamespace(w.namespace)
			if err := admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: %s: %v", file, o.GetKind(), err)
			}
			if o.GetKind() != "StatefulSetDrain" {
				continue
			}
			template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
			pod, _, _ := unstructured.NestedMap(template, "spec")
			pod["restartPolicy"] = "Never"
			pod["volumes"] = []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}}}
			template["spec"] = pod
			job := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "drain", "namespace": w.namespace},
				"spec": map[string]any{"template": template},
			}}
			if err := admin.Create(t.Context(), job, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: a Job of its template: %v", file, err)
			}
		}
	}
}

// The API server knows fields of pods that this operator's release may not know.
func TestAStatefulSetDrainKeepsItsWholeTemplate(t *testing.T) {
	w := newNamespace(t)
	o := statefulSetDrain(t, w.namespace)
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers: %v, %v", containers, err)
	}
	if a, found, err := unstructured.NestedInt64(containers[0].(map[string]any), "aFieldOfALaterKubernetes", "a"); !found || a != 1 || err != nil {
		t.Errorf("the API server has dropped a field: %v", containers[0])
	}
	for field, want := range map[string]any{"policy": "Drain", "parallelism": int64(1), "backoffLimit": int64(6), "activeDeadline": "1h"} {
		if got, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", field); got != want {
			t.Errorf("%s is %v by default, want %v", field, got, want)
		}
	}
	before := o.DeepCopy()
	if err := unstructured.SetNestedField(o.Object, "other", "spec", "statefulSetName"); err != nil {
		t.Fatal(err)
	}
	err = admin.Patch(t.Context(), o, client.MergeFrom(before))
	if want := "statefulSetName can't be changed: create another StatefulSetDrain"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
}
