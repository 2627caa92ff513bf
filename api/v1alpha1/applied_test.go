package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kubectl apply keeps the object that it applies in an annotation, and annotations are bounded.
// All CRDs together fit into one, so there is room for others' annotations on each.
func TestTheCRDsCanBeAppliedByKubectl(t *testing.T) {
	const most = 262144
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("the CRDs are %v, %v", files, err)
	}
	all := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		const others = 24 << 10 // others' annotations need room, too
		if len(object) > most-others {
			t.Errorf("%s has %d bytes, of which kubectl apply's annotation takes %d at most", file, len(object), most)
		}
		all += len(object)
	}
	if all > most {
		t.Errorf("the CRDs have %d bytes, want %d at most", all, most)
	}
}

// A template is whatever the API server takes as a pod: a description of pods here would be larger
// than all other fields, and older than the API server's own.
func TestTheCRDOfStatefulSetDrainsHasNoDescriptionOfPods(t *testing.T) {
	text, err := os.ReadFile("../../config/crd/bases/cache.example.com_statefulsetdrains.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"containers:", "volumeMounts:", "initContainers:", "tolerations:"} {
		if strings.Contains(string(text), field) {
			t.Errorf("the CRD describes %s", strings.TrimSuffix(field, ":"))
		}
	}
	if !strings.Contains(string(text), "x-kubernetes-preserve-unknown-fields: true") {
		t.Error("the API server would drop a template's fields")
	}
}
