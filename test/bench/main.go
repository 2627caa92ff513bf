// Command bench measures the drainer against its bounds: its own memcached processes on the loopback
// interface, the fastest way to fill them, and the tools that people use instead. The tables go to standard
// output, in Markdown, and the progress to standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// options choose the measurements, and how often they are repeated.
type options struct {
	drainer string
	dir     string
	run     *regexp.Regexp
	rounds  int
	short   bool
	profile string
	gib     *[]float64
	// millions of items of the drains in which only their number differs.
	millions *[]int
}

func main() {
	switch { // children of this program
	case len(os.Args) == 4 && os.Args[1] == "read":
		readChild(os.Args[2], os.Args[3])
		return
	case len(os.Args) > 4 && os.Args[1] == "profile":
		os.Exit(profileChild(os.Args[2], os.Args[3:]))
	}
	var o options
	flag.StringVar(&o.drainer, "drainer", "bin/drainer", "The drainer's program.")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "Directory of the warm files: on a real disk, for the reads from a dropped cache.")
	run := flag.String("run", "", "Measure only the rows whose name matches this regular expression; see -list.")
	list := flag.Bool("list", false, "Print the rows' names and end.")
	flag.IntVar(&o.rounds, "rounds", 3, "Rounds of each row; the table shows medians.")
	flag.BoolVar(&o.short, "short", false, "A quick look: one round, a tenth of the items.")
	flag.StringVar(&o.profile, "profile", "", "Write CPU profiles of the drains, copies and reads into this directory.")
	o.gib = harness.Numbers("gib", "The sizes of saves, in GiB: a list with commas. Each takes as much memory, and room in -dir.", 1.0)
	o.millions = harness.Numbers("millions", "How many million items the rows \"scale\" and \"live scale\" have: a list with commas. 50 take 15 GiB of memory and 10 of -dir.", 1, 3, 10)
	timeout := flag.Duration("timeout", time.Hour, "Bound of the whole.")
	flag.Parse()
	o.run = regexp.MustCompile(*run)
	if o.short {
		o.rounds, *o.gib, *o.millions = 1, []float64{0.25}, (*o.millions)[:1]
	}
	if *list {
		for _, g := range groups(&o) {
			fmt.Println(g.name)
		}
		fmt.Println(modesName)
		fmt.Println(savesName)
		return
	}
	harness.Main("bench", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		if o.profile != "" {
			if err := os.MkdirAll(o.profile, 0o755); err != nil {
				return err
			}
		}
		return measure(ctx, &o)
	})
}

// group is a set of rows that are measured together, on the same items.
type group struct {
	name string
	rows func(ctx context.Context, b *bench) ([]*row, error)
}

// groups returns all groups, in the table's order.
func groups(o *options) []group {
	million := 1_000_000
	if o.short {
		million /= 10
	}
	var all []group
	for _, p := range []population{
		{name: "10 B", size: fixed(10), items: million},
		{name: "100 B", size: fixed(100), items: million},
		{name: "1 kB", size: fixed(1000), items: million},
		{name: "10 kB", size: fixed(10_000), items: million / 10},
		{name: "mix", size: mixed, items: million, metadata: true},
	} {
		all = append(all, group{"drain " + p.name, p.drain})
	}
	for _, n := range *o.millions {
		p := population{name: "10 B", size: fixed(10), items: n * million}
		all = append(all, group{fmt.Sprintf("scale %d M", n), p.scale})
	}
	for _, p := range []population{
		{name: "10 B", size: fixed(10), items: 4 * million},
		{name: "100 B", size: fixed(100), items: 4 * million},
		{name: "1 kB", size: fixed(1000), items: 2 * million},
	} {
		all = append(all, group{"read " + p.name, p.read})
	}
	for _, p := range []population{
		{name: "10 B", size: fixed(10), items: million},
		{name: "100 B", size: fixed(100), items: million},
		{name: "1 kB", size: fixed(1000), items: million},
		{name: "10 kB", size: fixed(10_000), items: million / 10},
		{name: "mix", size: mixed, items: million, metadata: true},
	} {
		// A half moves, a third, and all items of a leaving member.
		for _, sizes := range [][2]int{{1, 2}, {2, 3}, {3, 2}} {
			c := ringChange{p, sizes[0], sizes[1]}
			all = append(all, group{"move " + c.String(), c.move})
		}
	}
	for _, n := range *o.millions {
		c := ringChange{population{name: "10 B", size: fixed(10), items: n * million}, 1, 2}
		all = append(all, group{fmt.Sprintf("live scale %d M", n), c.scale})
	}
	for _, p := range []population{
		{name: "10 B", size: fixed(10), items: million},
		{name: "1 kB", size: fixed(1000), items: million},
		{name: "10 kB", size: fixed(10_000), items: million / 10},
		{name: "mix", size: mixed, items: million, metadata: true},
	} {
		all = append(all, group{"copy " + p.name, p.copy})
	}
	p := population{name: "100 B", size: fixed(100), items: million}
	return append(all, group{"replay", p.replay})
}

// bench is one run.
type bench struct {
	*options
	// scratch is a directory of this run. remove are further directories to be removed.
	scratch string
	remove  []string
}

func measure(ctx context.Context, o *options) error {
	if _, err := os.Stat(o.drainer); err != nil {
		return fmt.Errorf("the drainer's program is needed (make build): %w", err)
	}
	scratch, err := os.MkdirTemp(o.dir, "drainer-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	b := &bench{options: o, scratch: scratch}
	defer func() {
		for _, dir := range b.remove {
			os.RemoveAll(dir)
		}
	}()
	var rows []*row
	for _, g := range groups(o) {
		if !o.run.MatchString(g.name) {
			continue
		}
		start := time.Now()
		b.progressf("%s …", g.name)
		more, err := g.rows(ctx, b)
		rows = append(rows, more...)
		if err != nil {
			printTable(os.Stdout, rows)
			return fmt.Errorf("%s: %w", g.name, err)
		}
		b.progressf("%s: %.0f s", g.name, time.Since(start).Seconds())
	}
	if len(rows) > 0 {
		fmt.Printf("%s; load %s\n\n", time.Now().UTC().Format(time.RFC3339), harness.LoadAverage())
		printTable(os.Stdout, rows)
		if o.short {
			printPhases(os.Stdout, rows)
		}
	}
	if o.run.MatchString(modesName) {
		compared, err := modes(ctx, b)
		fmt.Printf("\n%s; load %s\n\n", time.Now().UTC().Format(time.RFC3339), harness.LoadAverage())
		printModes(os.Stdout, compared)
		if err != nil {
			return err
		}
	}
	if o.run.MatchString(savesName) {
		measured, err := saves(ctx, b)
		fmt.Printf("\n%s; load %s\n\n", time.Now().UTC().Format(time.RFC3339), harness.LoadAverage())
		printSaves(os.Stdout, measured)
		return err
	}
	if len(rows) == 0 && !o.run.MatchString(modesName) {
		return errors.New("no row matches -run; see -list")
	}
	return nil
}

// modesName selects the comparison of the storage modes, which has a table of its own.
const modesName = "modes"

func (b *bench) progressf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// volume makes an empty directory for a warm file.
func (b *bench) volume(name string) (string, error) {
	dir := filepath.Join(b.scratch, strings.ReplaceAll(name, " ", "-"))
	return dir, os.MkdirAll(dir, 0o755)
}

func printJSON(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
