package v1alpha1

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// kubectl apply keeps the object that it applies in an annotation, and annotations are bounded.
func TestTheCRDCanBeAppliedByKubectl(t *testing.T) {
	const most = 262144
	text, err := os.ReadFile("../../config/crd/bases/cache.example.com_memcacheds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	const others = 32 << 10 // others' annotations need room, too
	if len(object) > most-others {
		t.Errorf("the CRD has %d bytes, of which kubectl apply's annotation takes %d at most", len(object), most)
	}
}
