package v1alpha1_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

// The API server estimates what each rule costs at most, and refuses a CRD whose rules cost too much. Its own
// validation shows that before there is an API server.
func TestTheAPIServerTakesTheCRDsWithTheirRules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%d CRDs: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var versioned apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &versioned); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&versioned.Spec)
		versioned.Status.StoredVersions = []string{"v1alpha1"}
		var crd apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, &crd, nil); err != nil {
			t.Fatal(err)
		}
		for _, why := range validation.ValidateCustomResourceDefinition(t.Context(), &crd) {
			t.Errorf("%s: %v", filepath.Base(file), why)
		}
	}
}
