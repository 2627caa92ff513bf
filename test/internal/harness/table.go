package harness

import (
	"fmt"
	"strings"
)

// Header is the head of a table in Markdown. The numbers of a column whose name ends with a colon are
// aligned to the right.
func Header(columns ...string) string {
	cells, rule := make([]any, len(columns)), "|"
	for i, c := range columns {
		name, right := strings.CutSuffix(c, ":")
		cells[i] = name
		if right {
			rule += "---:|"
		} else {
			rule += "---|"
		}
	}
	return Row(cells...) + "\n" + rule
}

// Row is a row of such a table.
func Row(cells ...any) string {
	var b strings.Builder
	b.WriteString("|")
	for _, c := range cells {
		fmt.Fprintf(&b, " %v |", c)
	}
	return b.String()
}
