package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const runbook = "../../docs/runbook.md"

// constants returns the values of the string constants in a Go file whose names
// begin with the prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, prefix) || i >= len(spec.Values) {
				continue
			}
			literal, ok := spec.Values[i].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}

// sections returns the sections of the runbook by their titles.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^### `).Split(string(text), -1)[1:] {
		title, body, _ := strings.Cut(part, "\n")
		if _, twice := all[title]; twice {
			t.Errorf("docs/runbook.md has two sections %s", title)
		}
		body, _, _ = strings.Cut(body, "\n## ")
		all[title] = body
	}
	return all
}

// The alerts' sections are checked against the alert rules, in config/prometheus.
func isAlert(title string) bool { return strings.HasPrefix(title, "Memcached") }

// vacuous matches a line that sends the reader where the page's first paragraph has sent them already.
var vacuous = regexp.MustCompile(`\*\*Look at:\*\* (nothing|([\w']+ )*message)\.\s`)

// asksNothing has the reasons that pass by themselves, or are good.
var asksNothing = map[string]bool{
	ReasonReady: true, ReasonAsWanted: true, ReasonHealthy: true,
	ReasonDraining: true, ReasonMoving: true, ReasonMoveWaits: true, ReasonReceiptInvalid: true,
}

func TestEachReasonHasItsSectionInTheRunbookAndNoOtherIsThere(t *testing.T) {
	reasons := constants(t, "conditions.go", "Reason")
	if len(reasons) < 20 {
		t.Fatalf("found the reasons %v only", reasons)
	}
	all := sections(t)
	for _, reason := range reasons {
		body, ok := all[reason]
		if !ok {
			t.Errorf("docs/runbook.md has no section ### %s: write what it means, what to **Look at:** beside the message, and what to **Do:**", reason)
			continue
		}
		delete(all, reason)
		if strings.Contains(body, "**Do:** ") == asksNothing[reason] {
			t.Errorf("docs/runbook.md, section %s: is there a **Do:**? It asks for nothing: %t", reason, asksNothing[reason])
		}
		if vacuous.MatchString(body) {
			t.Errorf("docs/runbook.md, section %s: a line **Look at:** names nothing but the message", reason)
		}
		if strings.HasPrefix(strings.TrimSpace(body), "**") {
			t.Errorf("docs/runbook.md, section %s does not begin with what it means", reason)
		}
	}
	for title := range all {
		if !isAlert(title) {
			t.Errorf("docs/runbook.md has a section %s, which no reason is called", title)
		}
	}
}

// eventReasons are the reasons of events that a Go file gives as text, not as a constant of this package.
func eventReasons(t *testing.T, file string) (reasons []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		if f, is := call.Fun.(*ast.SelectorExpr); !is || !regexp.MustCompile(`^([Ee]vent|Eventf|claimEvent)$`).MatchString(f.Sel.Name) {
			return true
		}
		for _, arg := range call.Args {
			switch arg := arg.(type) {
			case *ast.SelectorExpr:
				if strings.HasPrefix(arg.Sel.Name, "Reason") {
					return true
				}
			case *ast.BasicLit: // the first text is the reason
				reason, err := strconv.Unquote(arg.Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons = append(reasons, reason)
				return true
			case *ast.Ident:
				if arg.Name == "reason" {
					return true
				}
			}
		}
		return true
	})
	return reasons
}

// These are the events of both kinds, Memcached and StatefulSetDrain. A reason that is a constant has a
// section of its own.
func TestEachEventIsInTheRunbook(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	_, events, _ := strings.Cut(string(text), "\n## Events\n")
	events, _, _ = strings.Cut(events, "\n## ")
	told := map[string]bool{}
	for _, match := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(events, -1) {
		told[match[1]] = true
	}
	recorded := map[string]bool{}
	err = filepath.WalkDir("../../controllers", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			for _, reason := range eventReasons(t, path) {
				recorded[reason] = true
			}
		}
		return err
	})
	if err != nil || len(recorded) < 10 {
		t.Fatalf("found the events %v only: %v", recorded, err)
	}
	for reason := range recorded {
		if !told[reason] {
			t.Errorf("docs/runbook.md, section Events, does not explain %s", reason)
		}
		delete(told, reason)
	}
	for reason := range told {
		t.Errorf("docs/runbook.md, section Events, explains %s, which no event has", reason)
	}
}

func TestEachReasonOfADrainerIsInTheRunbook(t *testing.T) {
	var reasons []string
	for _, pattern := range []string{"../../drainer/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				reasons = append(reasons, constants(t, file, "Reason")...)
				reasons = append(reasons, constants(t, file, "reason")...)
			}
		}
	}
	if len(reasons) < 10 {
		t.Fatalf("found the reasons %v only", reasons)
	}
	table := sections(t)["DrainFailed"]
	for _, reason := range reasons {
		if !strings.Contains(table, "`"+reason+"`") {
			t.Errorf("docs/runbook.md, section DrainFailed does not explain the drainer's %s", reason)
		}
	}
}
