package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// example is a Memcached of the samples or of docs/examples: as it is written, and with the defaults.
type example struct {
	file            string
	written, object map[string]any
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	server := theAPIServer(t)
	for _, pattern := range []string{"../../config/samples/cache_*.yaml", "../../docs/examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			document, _, _ := strings.Cut(string(text), "\n---\n") // what a Memcached needs besides comes after it
			e := example{file: file, object: server.parse(t, document)}
			if err := yaml.Unmarshal([]byte(document), &e.written); err != nil || e.written["kind"] != "Memcached" {
				t.Fatalf("%s begins with a %v, %v", file, e.written["kind"], err)
			}
			all = append(all, e)
		}
	}
	return all
}

func TestTheAPITakesEachExample(t *testing.T) {
	server := theAPIServer(t)
	for _, e := range examples(t) {
		if errs := server.refuses(t, e.object, nil); len(errs) > 0 {
			t.Errorf("%s: %v", e.file, errs)
		}
	}
}

// A person who looks for a feature copies it from an example.
func TestEachFieldOfTheSpecHasAnExample(t *testing.T) {
	all, fields := examples(t), 0
	shown := func(path ...string) {
		fields++
		for _, e := range all {
			if _, is, err := unstructured.NestedFieldNoCopy(e.written, path...); is && err == nil {
				return
			}
		}
		t.Errorf("no example has %s", strings.Join(path, "."))
	}
	for name, field := range theAPIServer(t).schema.Properties["spec"].Properties {
		shown("spec", name)
		if name == "resources" { // Kubernetes' own fields
			continue
		}
		for inner := range field.Properties {
			shown("spec", name, inner)
		}
	}
	if fields < 80 {
		t.Errorf("found %d fields only", fields)
	}
}
