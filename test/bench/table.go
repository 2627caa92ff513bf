package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/harness"
)

// row is one way to move or read items, measured in some rounds.
type row struct {
	what, how string
	items     int
	bytes     int64
	seconds   []float64
	// lost is the number of lost items in each round; nil if nothing is stored.
	lost []int
	// cpu, supervisors and servers are the CPU seconds in each round: of the program, of supervisors that
	// stream, and of the servers that are filled. nil: not measured.
	cpu, supervisors, servers []float64
	// around is how many of the seconds were before the first item and after the last. anonymous is the peak of
	// the anonymous memory in bytes. nil: not measured.
	around    []float64
	anonymous []int64
	// phases of the last round, see usage.
	phases map[contract.Phase]float64
	// limit bounds this row. tool is memcached-tool with the same items.
	limit, tool *row
}

func (r *row) add(u usage, lost int) {
	r.seconds = append(r.seconds, u.seconds)
	r.lost = append(r.lost, lost)
	r.phases = u.phases
	if u.cpu > 0 {
		r.cpu = append(r.cpu, u.cpu)
	}
	if u.supervisors > 0 {
		r.supervisors = append(r.supervisors, u.supervisors)
	}
	if u.servers > 0 {
		r.servers = append(r.servers, u.servers)
	}
	if u.around > 0 {
		r.around = append(r.around, u.around)
	}
	if u.anonymous > 0 {
		r.anonymous = append(r.anonymous, u.anonymous)
	}
}

// name of the row, for files.
func (r *row) name() string { return r.what + " " + strings.Trim(r.how, "*") }

// rate in items a second, by the median.
func (r *row) rate() float64 { return float64(r.items) / harness.Median(r.seconds) }

// perItem is the CPU time that all programs together take for an item, in seconds.
func (r *row) perItem() float64 {
	return (harness.Median(r.cpu) + harness.Median(r.supervisors) + harness.Median(r.servers)) / float64(r.items)
}

// printTable prints the rows. Rates are compared by the item, because tools are measured with fewer items.
func printTable(out io.Writer, rows []*row) {
	fmt.Fprintln(out, harness.Header("items", "how", "rounds:", "items/s:", "MB/s:", "start and end, ms:", "of the limit:", "by CPU time:",
		"× memcached-tool:", "lost:", "CPU, ns an item:", "memcached's:", "peak anonymous, MiB:"))
	what := ""
	for _, r := range rows {
		if len(r.seconds) == 0 {
			continue
		}
		cells := r.cells()
		if r.what == what {
			cells[0] = ""
		}
		what = r.what
		fmt.Fprintln(out, harness.Row(cells...))
	}
}

// printPhases prints the phases of those rows that have receipts. With few items, most of the time is not for
// the items. The rest is the process's start and end.
func printPhases(out io.Writer, rows []*row) {
	phases := []contract.Phase{contract.PhaseConnecting, contract.PhasePrepared, contract.PhaseAdding, contract.PhaseSettling}
	header := []string{"items", "how", "ms:", "start and end:"}
	for _, p := range phases {
		header = append(header, string(p)+":")
	}
	fmt.Fprintln(out, "\n"+harness.Header(header...))
	for _, r := range rows {
		if r.phases == nil {
			continue
		}
		all := r.seconds[len(r.seconds)-1]
		ms := func(seconds float64) any { return fmt.Sprintf("%.0f", 1e3*seconds) }
		var cells []any
		rest := all
		for _, p := range phases {
			rest -= r.phases[p]
			cells = append(cells, ms(r.phases[p]))
		}
		fmt.Fprintln(out, harness.Row(append([]any{r.what, r.how, ms(all), ms(rest)}, cells...)...))
	}
}

func (r *row) cells() []any {
	ratio := func(to *row, format string) string {
		if to == nil || len(to.seconds) == 0 {
			return ""
		}
		return fmt.Sprintf(format, r.rate()/to.rate())
	}
	around, byCPU := "", ""
	if len(r.around) > 0 {
		around = grouped(int(1e3 * harness.Median(r.around)))
	}
	if l := r.limit; l != nil && len(r.servers) > 0 && len(l.servers) > 0 {
		byCPU = fmt.Sprintf("%.2f", l.perItem()/r.perItem())
	}
	each := func(seconds []float64) string {
		if len(seconds) == 0 {
			return ""
		}
		return grouped(int(1e9 * harness.Median(seconds) / float64(r.items)))
	}
	own := each(r.cpu)
	if len(r.supervisors) > 0 {
		own += " + " + each(r.supervisors)
	}
	lost, anonymous := "", ""
	if r.lost != nil {
		lost = grouped(slices.Max(r.lost))
	}
	if len(r.anonymous) > 0 {
		anonymous = fmt.Sprintf("%.0f", float64(slices.Max(r.anonymous))/(1<<20))
	}
	return []any{r.what, r.how, len(r.seconds), grouped(int(r.rate())),
		grouped(int(float64(r.bytes) / harness.Median(r.seconds) / 1e6)),
		around, ratio(r.limit, "%.2f"), byCPU, ratio(r.tool, "%.1f"), lost, own, each(r.servers), anonymous}
}

// count writes 1000000 as "1 M".
func count(n int) string {
	if n%1_000_000 == 0 {
		return fmt.Sprintf("%d M", n/1_000_000)
	}
	return fmt.Sprintf("%d k", n/1000)
}

// grouped writes 1234567 as "1 234 567".
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s %03d", grouped(n/1000), n%1000)
}
