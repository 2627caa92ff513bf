package tier

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source has the contents of this repository's test files.
type source struct {
	// tests are the names of all test functions, and whether each is of the second tier as a whole.
	tests map[string]bool
	// shownBy has each name that a call of Second gives, and the place of the call.
	shownBy map[string]string
}

func read(t *testing.T) source {
	t.Helper()
	s := source{tests: map[string]bool{}, shownBy: map[string]string{}}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			return s.add(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s source) add(path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil {
			continue
		}
		// Packages may share a test's name. The name is of the second tier if all of them are.
		_, before := s.tests[f.Name.Name]
		first := before && !s.tests[f.Name.Name]
		if isTest(f.Name.Name) {
			s.tests[f.Name.Name] = false
		}
		for i, stmt := range f.Body.List {
			// Only a call among the first statements is for the whole test.
			if name, ok := second(stmt); ok && i < 3 {
				s.tests[f.Name.Name] = !first
				s.shownBy[name] = files.Position(stmt.Pos()).String()
			}
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if name, ok := second(n); ok {
				s.shownBy[name] = files.Position(n.Pos()).String()
			}
			return true
		})
	}
	return nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}

// second returns the name that a call of Second gives.
func second(n ast.Node) (shownBy string, ok bool) {
	if stmt, is := n.(*ast.ExprStmt); is {
		n = stmt.X
	}
	call, is := n.(*ast.CallExpr)
	if !is || len(call.Args) != 2 {
		return "", false
	}
	f, is := call.Fun.(*ast.SelectorExpr)
	if !is || f.Sel.Name != "Second" {
		return "", false
	}
	if from, is := f.X.(*ast.Ident); !is || from.Name != "tier" {
		return "", false
	}
	text, is := call.Args[1].(*ast.BasicLit)
	if !is {
		return "", true
	}
	shownBy, err := strconv.Unquote(text.Value)
	return shownBy, err == nil
}

// Pages tell of tests in more places than the tables that the tests below read.
func TestTheTestsThatTheDocsNameExist(t *testing.T) {
	s := read(t)
	pages := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 5 {
			t.Fatalf("found the pages %v only: %v", found, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1) {
			if _, is := s.tests[name]; !is {
				t.Errorf("%s names %s, which is no test", page, name)
			}
		}
	}
}

// The first tier must show the same as the second, by a test that exists.
func TestEachTestOfTheSecondTierNamesOneOfTheFirst(t *testing.T) {
	s := read(t)
	for name, where := range s.shownBy {
		test, _, _ := strings.Cut(name, "/")
		if ofSecond, there := s.tests[test]; !there || ofSecond {
			t.Errorf("%s: %q is no test of make test", where, name)
		}
	}
}

// Each row of the table and each line of the lists in docs/promises.md names tests that make test runs. Lines
// in bold say how invariants are explored.
func TestEachPromiseHasATestOfTheFirstTier(t *testing.T) {
	s := read(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	for line := range strings.Lines(string(text)) {
		tests := line // of a list
		if cells := strings.Split(line, "|"); len(cells) >= 4 {
			if strings.Contains(cells[1], "---") || strings.TrimSpace(cells[2]) == "test" {
				continue
			}
			tests = cells[2]
		} else if !strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "- **") {
			continue
		}
		promises++
		names := regexp.MustCompile("`((Test|Fuzz)[A-Za-z0-9_]+)").FindAllStringSubmatch(tests, -1)
		if len(names) == 0 {
			t.Errorf("no test shows the promise: %s", line)
		}
		for _, name := range names {
			if ofSecond, there := s.tests[name[1]]; !there || ofSecond {
				t.Errorf("%s is no test of make test: %s", name[1], line)
			}
		}
	}
	if promises < 100 {
		t.Errorf("%d promises were read", promises)
	}
}

// rows are the first cells of the table's rows after the heading in a page of the docs.
func rows(t *testing.T, page, heading string) (first []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if section, _, _ = strings.Cut(section, "\n## "); !found {
		t.Fatalf("%s has no %s", page, heading)
	}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) >= 4 {
			first = append(first, strings.TrimSpace(cells[1]))
		}
	}
	if len(first) < 5 {
		t.Fatalf("%s, %s has the rows %q only", page, heading, first)
	}
	return first[2:]
}

// The table tells users the outcome; docs/promises.md has the tests.
func TestEachRowBesideTheScaleDownControllerHasATest(t *testing.T) {
	told, tested := rows(t, "statefulsets.md", "## Beside the StatefulSet Scale-Down Controller"), rows(t, "promises.md", "## Any StatefulSet")
	if !slices.Equal(told, tested) {
		t.Errorf("docs/statefulsets.md tells %q, docs/promises.md has tests of %q", told, tested)
	}
}
