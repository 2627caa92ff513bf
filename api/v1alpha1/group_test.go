package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// A fork changes the group in one place of the programs.
func TestOneConstantNamesTheGroup(t *testing.T) {
	t.Parallel()
	var named []string
	for _, folder := range []string{"api", "cmd/manager", "cmd/drainer", "controllers", "drainer"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && strings.Contains(text.Value, cachev1alpha1.Group) {
					named = append(named, files.Position(text.Pos()).String())
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(named) != 1 {
		slices.Sort(named)
		t.Errorf("these name the group, use the constant Group:\n%s", strings.Join(named, "\n"))
	}
}
