package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"example.com/memcached-operator/test/internal/harness"
)

// Rows that only some phases have.
const (
	rowReady  = "ready after, s"
	rowMedian = "one, median, s"
	rowLast   = "one, last, s"
	rowStarve = "last / median"
)

// printTable prints one table: a column per phase, a row per measure. A number
// in parentheses is per cluster, scale-down or member.
func printTable(out io.Writer, columns []*column) {
	header := []string{"seconds", rowReady, rowMedian, rowLast, rowStarve, "reconciles", "errors", "CPU, s",
		"RSS, MiB", "RSS, peak, MiB", "queue, deepest", "queue, mean wait, ms", "queue, p99 wait below, ms",
		"API reads", "API writes", "of these refused"}
	calls := allCalls(columns)
	names := []string{""}
	rows := make([][]any, len(header)+len(calls))
	for i, name := range header {
		rows[i] = []any{name}
	}
	for i, c := range calls {
		rows[len(header)+i] = []any{"`" + c.String() + "`"}
	}
	for _, c := range columns {
		names = append(names, c.name+":")
		for i, cell := range c.cells() {
			rows[i] = append(rows[i], cell)
		}
		for i, call := range calls {
			rows[len(header)+i] = append(rows[len(header)+i], c.each(float64(c.calls[call])))
		}
	}
	fmt.Fprintln(out, harness.Header(names...))
	for _, row := range rows {
		fmt.Fprintln(out, harness.Row(row...))
	}
}

// cells in the order of printTable's header.
func (c *column) cells() []string {
	number := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	return []string{
		fmt.Sprintf("%.1f", c.seconds),
		c.notes[rowReady], c.notes[rowMedian], c.notes[rowLast], c.notes[rowStarve],
		c.each(c.reconciles), number(c.errors), c.cpuCell(),
		number(mebibytes(c.memory.Resident)), number(mebibytes(c.memory.Peak)), number(c.peakDepth),
		c.milliseconds(c.waitMean), c.milliseconds(c.waitP99),
		c.each(float64(c.reads())), c.each(float64(c.writes())), number(float64(c.refused)),
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// each shows a count, and the count for each cluster, scale-down or member.
func (c *column) each(v float64) string {
	if c.per == 0 || v == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.0f (%.1f)", v, v/float64(c.per))
}

// milliseconds shows how long keys waited; empty if there was no reconcile.
func (c *column) milliseconds(seconds float64) string {
	if c.reconciles == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", 1000*seconds)
}

func (c *column) cpuCell() string {
	if c.per == 0 {
		return fmt.Sprintf("%.2f", c.cpu)
	}
	return fmt.Sprintf("%.1f (%.0f ms)", c.cpu, 1000*c.cpu/float64(c.per))
}

// allCalls returns the calls of all phases, reads before writes.
func allCalls(columns []*column) []call {
	all := map[call]bool{}
	for _, c := range columns {
		for k := range c.calls {
			if k.read() || k.write() {
				all[k] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b call) int {
		if a.write() != b.write() {
			if b.write() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
}
