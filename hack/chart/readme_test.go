package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// table is a table of all values in values.yaml: name, default, and comment.
func table(values string) string {
	var rows strings.Builder
	rows.WriteString("| value | default | |\n|---|---|---|\n")
	var path, comment []string
	for line := range strings.Lines(values) {
		text := strings.TrimSpace(line)
		if said, is := strings.CutPrefix(text, "#"); is {
			comment = append(comment, strings.TrimSpace(said))
			continue
		}
		name, value, is := strings.Cut(text, ":")
		if !is {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		path = append(path[:depth], name)
		value = strings.TrimSpace(value)
		if value != "" {
			value = "`" + value + "`"
		}
		if value != "" || comment != nil {
			fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", strings.Join(path, "."), value, strings.ReplaceAll(strings.Join(comment, " "), "|", `\|`))
		}
		comment = nil
	}
	return rows.String()
}

func TestTheChartsReadmeHasEachValue(t *testing.T) {
	var text [2]string
	for i, name := range []string{"values.yaml", "README.md"} {
		content, err := os.ReadFile(filepath.Join(chartDir, name))
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(content)
	}
	want := table(text[0])
	if strings.Count(want, "\n") < 50 {
		t.Fatalf("only these values were found:\n%s", want)
	}
	if !strings.Contains(text[1], want) {
		t.Errorf("the chart's README.md needs this table:\n%s", want)
	}
}
