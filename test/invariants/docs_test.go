package invariants

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDocsTellOfEachInvariantAndItsTests reads the table of docs/promises.md: its numbers are those of All,
// each row says what keeps the invariant, and the tests that it names exist.
func TestDocsTellOfEachInvariantAndItsTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[int]string{}
	exist := testsBelow(t, "../..")
	row := regexp.MustCompile(`(?m)^\| (\d+) ([^|]+) \| ([^|]+) \| [^| ][^|]* \|$`)
	for _, cells := range row.FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.Atoi(cells[1])
		if err != nil {
			t.Fatal(err)
		}
		documented[number] = cells[2]
		named := regexp.MustCompile("`((?:Test|Fuzz)[^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("invariant %d has no test", number)
		}
		for _, name := range named {
			if !exist[name[1]] {
				t.Errorf("invariant %d: there is no %s", number, name[1])
			}
		}
	}
	for _, i := range All {
		if documented[i.Number] != i.Name {
			t.Errorf("invariant %d is %q, documented as %q", i.Number, i.Name, documented[i.Number])
		}
	}
	for number := 1; number <= 18; number++ {
		if documented[number] == "" {
			t.Errorf("invariant %d isn't documented", number)
		}
	}
}

// testsBelow returns the names of all tests in a directory and in those below it.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range declared.FindAllSubmatch(source, -1) {
			names[string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
