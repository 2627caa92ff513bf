package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// example is a document of the samples or of docs/examples: as it is written, and with the defaults.
type example struct {
	file, kind      string
	written, object map[string]any
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	for _, pattern := range []string{"../../config/samples/cache_*.yaml", "../../config/samples/statefulsetdrain_*.yaml", "../../docs/examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			document, _, _ := strings.Cut(string(text), "\n---\n") // what it needs besides comes after it
			e := example{file: file}
			err = yaml.Unmarshal([]byte(document), &e.written)
			if e.kind, _ = e.written["kind"].(string); err != nil || compiled[e.kind] == nil {
				t.Fatalf("%s begins with a %v, %v", file, e.written["kind"], err)
			}
			e.object = theAPIServerOf(t, e.kind).parse(t, document)
			all = append(all, e)
		}
	}
	return all
}

func TestTheAPITakesEachExample(t *testing.T) {
	for _, e := range examples(t) {
		if errs := theAPIServerOf(t, e.kind).refuses(t, e.object, nil); len(errs) > 0 {
			t.Errorf("%s: %v", e.file, errs)
		}
	}
}

// A person who looks for a feature copies it from an example.
func TestEachFieldOfTheSpecHasAnExample(t *testing.T) {
	all, fields := examples(t), 0
	for kind := range compiled {
		shown := func(path ...string) {
			fields++
			for _, e := range all {
				if _, is, err := unstructured.NestedFieldNoCopy(e.written, path...); is && err == nil && e.kind == kind {
					return
				}
			}
			t.Errorf("no example of a %s has %s", kind, strings.Join(path, "."))
		}
		for name, field := range theAPIServerOf(t, kind).schema.Properties["spec"].Properties {
			shown("spec", name)
			if name == "resources" { // Kubernetes' own fields
				continue
			}
			for inner := range field.Properties {
				shown("spec", name, inner)
			}
		}
	}
	if fields < 90 {
		t.Errorf("found %d fields only", fields)
	}
}
