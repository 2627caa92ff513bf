package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// others stands for the packages that this one imports: nothing is known of them.
type others struct{}

func (others) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}

// usesOf returns the files whose functions, types, methods and fields each file of a folder uses.
func usesOf(t *testing.T, folder string) map[string]map[string]string {
	t.Helper()
	positions := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	found := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: others{}, Error: func(error) {}}
	pkg, _ := config.Check("plan", positions, files, found) // its errors are about the other packages
	uses := map[string]map[string]string{}
	for at, object := range found.Uses {
		from, to := positions.File(at.Pos()).Name(), ""
		if object.Pkg() == pkg && object.Pos().IsValid() {
			to = positions.File(object.Pos()).Name()
		}
		if to != "" && to != from {
			if uses[from] == nil {
				uses[from] = map[string]string{}
			}
			uses[from][to] = object.Name()
		}
	}
	return uses
}

// The files of a plan build on each other: no two use each other, nor in a circle through others.
func TestFilesUseEachOtherInOneDirection(t *testing.T) {
	uses := usesOf(t, ".")
	if len(uses) < 10 {
		t.Fatalf("%d files use others: %v", len(uses), uses)
	}
	for len(uses) > 0 {
		free := slices.DeleteFunc(slices.Sorted(maps.Keys(uses)), func(file string) bool {
			return slices.ContainsFunc(slices.Collect(maps.Keys(uses[file])), func(used string) bool { return uses[used] != nil })
		})
		if len(free) == 0 {
			t.Fatalf("these use each other in a circle: %v", uses)
		}
		for _, file := range free {
			delete(uses, file)
		}
	}
}
