package build

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/drainer/routing"
)

// TestEveryClientOfTheDrainerCanBeSet: the API's list of clients is the
// drainer's.
func TestEveryClientOfTheDrainerCanBeSet(t *testing.T) {
	data, err := os.ReadFile("../../../config/crd/bases/cache.example.com_memcacheds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	var got []string
	for _, value := range spec.Properties["routing"].Properties["client"].Enum {
		var client string
		if err := yaml.Unmarshal(value.Raw, &client); err != nil {
			t.Fatal(err)
		}
		got = append(got, client)
	}
	slices.Sort(got)
	if diff := cmp.Diff(routing.Clients(), got); diff != "" {
		t.Errorf("spec.routing.client: -drainer +API:\n%s", diff)
	}
	list := strings.Join(routing.Clients(), ", ") + " (docs/clients.md)"
	if !slices.ContainsFunc(spec.XValidations, func(r apiextensionsv1.ValidationRule) bool {
		return strings.HasPrefix(r.Message, "routing.client is needed") && strings.HasSuffix(r.Message, list)
	}) {
		t.Errorf("the rule that asks for routing.client doesn't list %s", list)
	}
}
