package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"
)

// kubectl explain shows these comments.
func TestEachFieldOfTheAPIIsExplained(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "memcached_types.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil || len(field.Names) == 0 {
			return true
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if field.Names[0].Name == "Items" {
			return true
		}
		fields++
		if doc := field.Doc.Text(); !strings.HasPrefix(doc, name) || len(strings.Fields(doc)) < 4 {
			t.Errorf("field %s: its comment must begin with its name, and explain it: %q", name, doc)
		}
		return true
	})
	if fields < 60 {
		t.Errorf("found %d fields only", fields)
	}
}
