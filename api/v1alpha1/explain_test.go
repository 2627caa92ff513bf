package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// kubectl explain shows these comments.
func TestEachFieldOfTheAPIIsExplained(t *testing.T) {
	fields := 0
	inspectTypes(t, func(n ast.Node) bool {
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

// A person who leaves a field out wants to know its default.
func TestEachOptionalFieldOfTheSpecTellsItsDefault(t *testing.T) {
	fields := 0
	inspectTypes(t, func(n ast.Node) bool {
		if of, ok := n.(*ast.TypeSpec); ok && ofStatus[of.Name.Name] {
			return false
		}
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil || len(field.Names) == 0 || !strings.Contains(comments(field.Doc), "+optional") {
			return true
		}
		if _, object := field.Type.(*ast.Ident); object && strings.Contains(field.Tag.Value, "omitzero") {
			return true // an object of ours, whose fields have their own
		}
		fields++
		doc := field.Doc.Text()
		if !strings.Contains(doc, "Defaults") && !strings.Contains(doc, "default)") && !strings.Contains(doc, "If unset") {
			t.Errorf("field %s: its comment must tell its default (\"Defaults to …\", \"(the default)\", \"If unset, …\"): %q", field.Names[0].Name, doc)
		}
		return true
	})
	if fields < 50 {
		t.Errorf("found %d optional fields only", fields)
	}
}

// ofStatus are the types that only the operator writes.
var ofStatus = map[string]bool{
	"Memcached": true, "MemcachedStatus": true, "RouterStatus": true, "DrainStatus": true, "DrainReceipt": true,
	"StatefulSetDrain": true, "StatefulSetDrainStatus": true, "MemberDrain": true, "MemberDrained": true,
}

// inspectTypes visits the source of both kinds.
func inspectTypes(t *testing.T, visit func(ast.Node) bool) {
	t.Helper()
	for _, name := range []string{"memcached_types.go", "statefulsetdrain_types.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, visit)
	}
}

// comments returns the comments with their markers, which Text leaves out.
func comments(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	var b strings.Builder
	for _, c := range group.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

// CEL's asInteger fails for a quantity that was written as 1.5Gi.
func TestNoRuleAsksForAQuantitysInteger(t *testing.T) {
	text, err := os.ReadFile("memcached_types.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.Contains(line, "XValidation:rule=") {
			continue
		}
		rules++
		if strings.Contains(line, "asInteger(") {
			t.Errorf("line %d: int(quantity(…).asApproximateFloat() + 0.5) in place of asInteger(): %s", i+1, line)
		}
	}
	if rules < 30 {
		t.Errorf("found %d rules only", rules)
	}
}
