package v1alpha1_test

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// apiServer does to an object what the API server does to it by the CRD, with the same libraries, and
// without a control plane.
type apiServer struct {
	schema *structuralschema.Structural
	types  validation.SchemaValidator
	rules  *cel.Validator
}

// theAPIServer has the CRD of Memcacheds that is installed. theAPIServer compiles all rules, once.
func theAPIServer(t *testing.T) *apiServer {
	t.Helper()
	return theAPIServerOf(t, "Memcached")
}

// theAPIServerOf has the CRD of another kind.
func theAPIServerOf(t *testing.T, kind string) *apiServer {
	t.Helper()
	server, err := compiled[kind]()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// compiled has the CRD of each kind.
var compiled = map[string]func() (*apiServer, error){
	"Memcached":        sync.OnceValues(func() (*apiServer, error) { return compile("memcacheds") }),
	"StatefulSetDrain": sync.OnceValues(func() (*apiServer, error) { return compile("statefulsetdrains") }),
}

func compile(crds string) (*apiServer, error) {
	text, err := os.ReadFile("../../config/crd/bases/cache.example.com_" + crds + ".yaml")
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	props := &apiextensions.JSONSchemaProps{}
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		return nil, err
	}
	schema, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	types, _, err := validation.NewSchemaValidator(props)
	return &apiServer{schema, types, cel.NewValidator(schema, true, celconfig.PerCallLimit)}, err
}

// parse reads an object as a person writes it. parse fails if a field is unknown, as kubectl apply does.
func (s *apiServer) parse(t *testing.T, text string) map[string]any {
	t.Helper()
	inJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	var object map[string]any
	if err == nil {
		object, err = s.decode(inJSON)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	unknown := pruning.PruneWithOptions(object, s.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		t.Fatalf("unknown fields %v in\n%s", unknown, text)
	}
	return object
}

// of returns an object of the API's type as the API server stores it.
func (s *apiServer) of(t *testing.T, typed any) map[string]any {
	t.Helper()
	inJSON, err := json.Marshal(typed)
	var object map[string]any
	if err == nil {
		object, err = s.decode(inJSON)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// decode reads an object, and adds the defaults.
func (s *apiServer) decode(inJSON []byte) (object map[string]any, err error) {
	err = apijson.Unmarshal(inJSON, &object) // integers stay integers
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.schema)
	defaulting.Default(object, s.schema)
	return object, err
}

// refuses returns why the API server refuses the object. old is the object that it replaces; nil if there is
// none. Rules are asked only about objects whose types are right.
func (s *apiServer) refuses(t *testing.T, object, old map[string]any) field.ErrorList {
	t.Helper()
	errs := append(validation.ValidateCustomResource(nil, object, s.types), listtype.ValidateListSetsAndMaps(nil, s.schema, object)...)
	if len(errs) > 0 {
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	errs, left := s.rules.Validate(t.Context(), nil, s.schema, object, before, celconfig.RuntimeCELCostBudget)
	if left < 0 {
		t.Error("the rules take more time than the API server gives them")
	}
	return errs
}

// wants expects that the object is refused with these words, or taken if want is empty.
func (s *apiServer) wants(t *testing.T, object, old map[string]any, want string) {
	t.Helper()
	errs := s.refuses(t, object, old)
	if want == "" && len(errs) > 0 || want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want)) {
		t.Errorf("want %q, got %v", want, errs)
	}
}
