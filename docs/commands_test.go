package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A release that was installed in a namespace is not found from another one: each command of Helm in the documentation names it.
func TestEachCommandOfHelmNamesTheNamespace(t *testing.T) {
	command := regexp.MustCompile("helm (install|upgrade|rollback|uninstall|test) memcached-operator[^`\n]*")
	root, commands := "..", 0
	for _, folder := range []string{"README.md", "docs", "charts"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range command.FindAllString(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
				if commands++; !strings.Contains(found, "--namespace memcached-operator-system") {
					t.Errorf("%s: %s", path, found)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if commands < 6 {
		t.Errorf("%d commands are found", commands)
	}
}
