package v1alpha1_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// othersFlags are those of other programs in the docs.
var othersFlags = strings.Fields(`
	kubectl: cascade clusterrole delete-emptydir-data for force manifest overwrite previous raw server-side serviceaccount rm
	helm: create-namespace no-hooks reuse-values take-ownership
	others: enable-large-client-flags invert-match rawfile`)

func TestTheFlagsThatTheDocsNameExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, flag := range othersFlags {
		known[flag] = true
	}
	literal := regexp.MustCompile(`"(?:--)?([a-z][a-z0-9-]*)[= "]`)
	for _, folder := range []string{"cmd", "drainer", "hack", "test"} {
		for _, path := range sources(t, folder) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range literal.FindAllSubmatch(text, -1) {
				known[string(found[1])] = true
			}
		}
	}
	for page, text := range pages(t) {
		for _, flag := range regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]*)`).FindAllStringSubmatch(text, -1) {
			if !known[flag[1]] {
				t.Errorf("%s names --%s, which no program has", page, flag[1])
			}
		}
	}
}

// sources returns the Go files of a folder, without tests.
func sources(t *testing.T, folder string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has %d files, %v", folder, len(paths), err)
	}
	return paths
}

// On OpenShift, mc is a MachineConfig.
func TestTheDocsUseNoShortNameThatOthersHave(t *testing.T) {
	t.Parallel()
	for page, text := range pages(t) {
		for _, command := range regexp.MustCompile(`kubectl [a-z]+ mc[. /].*`).FindAllString(text, -1) {
			t.Errorf("%s has %s: write memcached", page, command)
		}
	}
}

func TestTheTargetsOfMakeThatTheDocsNameExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages(t) {
		for _, line := range regexp.MustCompile("(?m)(?:`|^)make ((?:[a-z0-9-]+ ?)+)(?:`|$| *#| *[A-Z]+=|…)").FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(line[1]) {
				if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
					t.Errorf("%s names make %s, which the Makefile doesn't have", page, target)
				}
			}
		}
	}
}

// A field is named by its path below spec, with spec. before it or not, and status. before it; a value of the chart as
// in helm --set.
func TestTheFieldsAndValuesThatTheDocsNameExist(t *testing.T) {
	t.Parallel()
	var values map[string]any
	text, err := os.ReadFile("../../charts/memcached-operator/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	var roots []structuralschema.Structural
	for kind := range compiled {
		schema := theAPIServerOf(t, kind).schema
		roots = append(roots, *schema, schema.Properties["spec"])
	}
	others := regexp.MustCompile(`^metadata\.|^spec\.claimRef$|\.(go|crt|key)$`) // of every object, of a volume, of files
	named, seen := regexp.MustCompile("`([a-z][a-zA-Z]*(?:\\.[a-z][a-zA-Z]*)*)(?:: ([A-Z][A-Za-z]*))?`"), 0
	for page, text := range pages(t) {
		for _, field := range named.FindAllStringSubmatch(withoutBlocks(text), -1) {
			path, value := strings.Split(field[1], "."), field[2]
			of := func(path []string, value string) bool {
				return slices.ContainsFunc(roots, func(s structuralschema.Structural) bool { return has(&s, path, value) })
			}
			if len(path) == 1 && value == "" || others.MatchString(field[1]) || !of(path[:1], "") {
				continue
			}
			seen++
			if !of(path, value) && !isValue(values, path) {
				t.Errorf("%s names %s, which is no field with that value, and none of the chart's", page, field[0])
			}
		}
	}
	if seen < 150 {
		t.Errorf("found %d fields only", seen)
	}
}

func withoutBlocks(page string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(page, "")
}

// has tells whether the schema has a field, and, if it is an enumeration, the value.
func has(s *structuralschema.Structural, path []string, value string) bool {
	for s.Items != nil {
		s = s.Items
	}
	if len(path) == 0 {
		return value == "" || s.ValueValidation == nil || len(s.ValueValidation.Enum) == 0 ||
			slices.ContainsFunc(s.ValueValidation.Enum, func(v structuralschema.JSON) bool { return fmt.Sprint(v.Object) == value })
	}
	if s.XPreserveUnknownFields {
		return true
	}
	if inner, is := s.Properties[path[0]]; is {
		return has(&inner, path[1:], value)
	}
	return s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil && has(s.AdditionalProperties.Structural, path[1:], value)
}

func isValue(values map[string]any, path []string) bool {
	value, is := values[path[0]]
	inner, _ := value.(map[string]any)
	return is && (len(path) == 1 || isValue(inner, path[1:]))
}

// The manifests on the pages are taken as they are written.
func TestTheAPITakesEachManifestOfTheDocs(t *testing.T) {
	t.Parallel()
	seen := 0
	for page, text := range pages(t) {
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			for document := range strings.SplitSeq(block[1], "\n---\n") {
				var written struct {
					APIVersion string `json:"apiVersion"`
					Kind       string `json:"kind"`
				}
				if err := yaml.Unmarshal([]byte(document), &written); err != nil {
					t.Errorf("%s: %v in\n%s", page, err, document)
				}
				if written.APIVersion != cachev1alpha1.GroupVersion.String() {
					continue
				}
				seen++
				s := theAPIServerOf(t, written.Kind)
				if errs := s.refuses(t, s.parse(t, document), nil); len(errs) > 0 {
					t.Errorf("%s: %v in\n%s", page, errs, document)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("found %d manifests only", seen)
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	page = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return all
}

// pages returns the README and the pages of the docs, by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, texts := []string{"../../README.md"}, map[string]string{}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/design/*.md", "../../docs/guides/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 5 {
			t.Fatalf("found the pages %v only: %v", found, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// TestTheFilesThatTheDocsNameExist: a file or a folder is named from the root, a source file from the folder with the
// packages, too.
func TestTheFilesThatTheDocsNameExist(t *testing.T) {
	for page, text := range pages(t) {
		for _, file := range regexp.MustCompile("(?:`|apply -[fk] )((?:api|charts|cmd|config|controllers|docs|drainer|hack|test|version)(?:/[a-zA-Z0-9_.-]+)+|[a-z0-9_./-]+/[a-z0-9_]+\\.go)[`\\s]").FindAllStringSubmatch(text, -1) {
			if strings.Contains(file[1], "NAME") || strings.HasSuffix(file[1], ".rb") { // yours
				continue
			}
			if !slices.ContainsFunc([]string{"../..", "../../controllers/internal", "../../drainer"}, func(folder string) bool {
				_, err := os.Stat(filepath.Join(folder, file[1]))
				return err == nil
			}) {
				t.Errorf("%s names %s, which is not there", page, file[1])
			}
		}
	}
}

func TestTheLinksOfTheDocsLeadSomewhere(t *testing.T) {
	for page, text := range pages(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
			} else if to, err := os.ReadFile(target); anchor != "" && (err != nil || !anchors(string(to))[anchor]) {
				t.Errorf("%s links to %s, which has no such section", page, link[1])
			}
		}
	}
}
