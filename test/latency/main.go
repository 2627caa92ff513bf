// Command latency measures the steps of scale-downs on the cluster of test/cluster, by the API server's own
// events, and counts the operator's writes in its audit log. Command latency prints a table for a Memcached,
// and one for a StatefulSetDrain: make bench-latency.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

// timeout bounds the whole.
const timeout = 18 * time.Minute

func main() {
	scaleDowns := flag.Int("scale-downs", 10, "How many members leave, one after the other.")
	items := flag.Int("items", 20_000, "Items of 100 bytes that the cluster holds.")
	sample := flag.String("sample", "config/samples/statefulsetdrain_"+spool+".yaml", "The StatefulSet and the StatefulSetDrain that are measured, too.")
	audit := flag.String("audit", "/var/lib/memcached-operator-cluster/logs/audit.log", "The API server's log of the operator's writes.")
	flag.Parse()
	deployed.QuietLogs()
	harness.Main("latency", func(ctx context.Context) error { return run(ctx, *scaleDowns, *items, *sample, *audit) })
}

func run(ctx context.Context, scaleDowns, items int, sample, audit string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	if err := b.create(ctx, scaleDowns+1); err != nil {
		return err
	}
	if err := b.fill(ctx, items); err != nil {
		return err
	}
	log := &harness.AuditLog{Path: audit}
	if _, err := b.writes(log); err != nil {
		return fmt.Errorf("%w; a cluster that was brought up by an earlier version has none: make cluster-down", err)
	}
	measured, err := b.repeat(ctx, log, scaleDowns, b.scaleCluster)
	if err != nil {
		return err
	}
	print(rows, measured, fmt.Sprintf("Memcached, %d items of 100 bytes", items))
	if err := b.createSpool(ctx, sample, scaleDowns+1); err != nil {
		return err
	}
	if _, err := b.writes(log); err != nil {
		return err
	}
	if measured, err = b.repeat(ctx, log, scaleDowns, b.scaleSpool); err != nil {
		return err
	}
	print(rowsOfDrain, measured, "StatefulSetDrain, "+sample)
	return nil
}

// repeat scales down by one member again and again, until one is left.
func (b *bench) repeat(ctx context.Context, log *harness.AuditLog, scaleDowns int, scale func(context.Context, int) (scaleDown, error)) (measured []scaleDown, err error) {
	for size := scaleDowns; size >= 1; size-- {
		one, err := scale(ctx, size)
		if err != nil {
			return nil, fmt.Errorf("scale down to %d: %w", size, err)
		}
		if one.written, err = b.writes(log); err != nil {
			return nil, err
		}
		measured = append(measured, one)
	}
	return measured, nil
}

// row is a row of the table: a value of a scale-down (NaN if it was not seen), and its target, at most; 0 if
// there is none.
type row struct {
	name   string
	of     func(*scaleDown) float64
	target float64
}

func between(from, to moment) func(*scaleDown) float64 {
	return func(s *scaleDown) float64 {
		if s.at[from].IsZero() || s.at[to].IsZero() {
			return math.NaN()
		}
		return s.at[to].Sub(s.at[from]).Seconds()
	}
}

// seconds are NaN if they are not known.
func seconds(d time.Duration) float64 {
	if d <= 0 {
		return math.NaN()
	}
	return d.Seconds()
}

// apart returns the ratio of the planned and the actual duration, the greater one divided by the smaller one.
// The plan has whole seconds.
func apart(s *scaleDown) float64 {
	said, took := seconds(s.planned), math.Max(1, math.Round(seconds(s.took)))
	return math.Max(said/took, took/said)
}

var rows = []row{
	{"scaled → member's pod gone, s", between(scaled, podGone), 0},
	{"pod gone → Job created, s", between(podGone, jobCreated), 0},
	{"pod gone → drainer's pod created, s", between(podGone, drainerCreated), 0.4},
	{"drainer's pod created → drainer ended, s", between(drainerCreated, drainerEnded), 0},
	{"drainer ended → claim gone, s", between(drainerEnded, claimGone), 1.4},
	{"Job Complete → claim gone, s", between(jobComplete, claimGone), 0},
	{"scaled → claim gone, s", between(scaled, claimGone), 0},
	{"the receipt's duration, s", func(s *scaleDown) float64 { return seconds(s.took) }, 0},
	{"what kubectl mc plan said of it, s", func(s *scaleDown) float64 { return seconds(s.planned) }, 0},
	{"how many times as much the one is as the other", apart, 2},
	{"API writes of the operator", func(s *scaleDown) float64 { return float64(s.all) }, 15},
	{"events among these", func(s *scaleDown) float64 { return float64(s.events) }, 0},
}

// rowsOfDrain are those of a StatefulSetDrain, which sets the volume aside before it drains.
var rowsOfDrain = []row{
	{"scaled → member's pod gone, s", between(scaled, podGone), 0},
	{"pod gone → volume bound, s", between(podGone, volumeBound), 0},
	{"volume bound → drainer's pod created, s", between(volumeBound, drainerCreated), 1},
	{"drainer's pod created → drainer ended, s", between(drainerCreated, drainerEnded), 0},
	{"drainer ended → claim gone, s", between(drainerEnded, claimGone), 1.4},
	{"scaled → claim gone, s", between(scaled, claimGone), 0},
	{"API writes of the operator", func(s *scaleDown) float64 { return float64(s.all) }, 0},
	{"events among these", func(s *scaleDown) float64 { return float64(s.events) }, 0},
}

func print(rows []row, measured []scaleDown, what string) {
	fmt.Printf("\n%s: %d scale-downs by one member, load average %s\n\n", what, len(measured), harness.LoadAverage())
	fmt.Println(harness.Header("", "median:", "least:", "most:", "target:"))
	for _, r := range rows {
		var values []float64
		for i := range measured {
			if v := r.of(&measured[i]); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue // a moment that was never seen
		}
		target := ""
		if r.target > 0 {
			target = fmt.Sprintf("≤ %g", r.target)
		}
		fmt.Println(harness.Row(r.name, number(harness.Median(values)), number(slices.Min(values)), number(slices.Max(values)), target))
	}
}

func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
