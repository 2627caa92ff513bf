// Command router measures "drainer route" beside a direct connection, twemproxy (Debian's nutcracker), and
// memcached's own proxy, in one run: throughput, latency, CPU time of a request, and memory of a connection.
// Command router prints two tables in Markdown: make bench-router.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

type options struct {
	drainer, memcached, nutcracker string
	duration                       time.Duration
	connections, pipelines, sizes  *[]int
	members, keys, rounds          int
	threads, idle                  int
	only, proxy                    string
	kinds                          []string
}

func main() {
	var o options
	flag.StringVar(&o.drainer, "drainer", "bin/drainer", "The drainer's program.")
	flag.StringVar(&o.memcached, "memcached", "memcached", "memcached's program.")
	flag.StringVar(&o.nutcracker, "nutcracker", "nutcracker", "twemproxy's program; left out if it is not there.")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "How long each row is measured in each round.")
	flag.IntVar(&o.rounds, "rounds", 3, "Rounds; the table shows medians.")
	flag.IntVar(&o.members, "members", 2, "Members behind the routers.")
	flag.IntVar(&o.keys, "keys", 10_000, "Keys.")
	flag.IntVar(&o.threads, "threads", 2, "The router's threads.")
	flag.StringVar(&o.only, "only", "", "Measure only this: direct, router, twemproxy or proxy.")
	flag.StringVar(&o.proxy, "proxy", "", "A memcached that has a proxy (hack/memcached-suite.sh); empty leaves the proxy out.")
	flag.IntVar(&o.idle, "idle", 1000, "How many connections the memory of one is measured with; 0 leaves that out.")
	kinds := flag.String("loads", "mix,hits,misses", "What clients do, a list with commas: mix (a tenth sets, the others are hits), hits, misses.")
	o.connections = harness.Numbers("connections", "Connections, a list with commas.", 1, 50, 1000)
	o.pipelines = harness.Numbers("pipelines", "Requests that a connection sends before it reads, a list with commas.", 1, 20)
	o.sizes = harness.Numbers("sizes", "Sizes of values in bytes, a list with commas.", 200, 10000)
	flag.Parse()
	o.kinds = strings.Split(*kinds, ",")
	harness.Main("router", func(ctx context.Context) error { return measure(ctx, &o) })
}

// target is a measured server.
type target struct {
	name    string
	address string
	pids    []int // the process between the client and the members; none if direct
}

func measure(ctx context.Context, o *options) error {
	w := &world{o: o}
	defer w.end()
	targets, err := w.start(ctx)
	if err != nil {
		return err
	}
	if err := w.connections(ctx, targets); err != nil {
		return err
	}
	fmt.Println(harness.Header("load", "size:", "connections:", "pipeline:", "what", "requests/s:", "p50 µs:", "p99 µs:", "its CPU µs/request:", "members' CPU µs/request:"))
	for _, l := range o.loads() {
		results := map[string][]result{}
		err := harness.InTurn(o.rounds, targets, func(t target) error {
			r, err := w.run(ctx, t, l)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			results[t.name] = append(results[t.name], r)
			return nil
		})
		if err != nil {
			return err
		}
		for _, t := range targets {
			fmt.Println(harness.Row(append([]any{l.kind, l.size, l.connections, l.pipeline, t.name}, cells(results[t.name])...)...))
		}
	}
	return nil
}

// loads returns the loads in the table's order. loads leaves out misses of a second size, because a miss has
// no size, and pipelines of twenty 10 kB values on a thousand connections, which would measure memory only.
func (o *options) loads() (all []load) {
	for _, kind := range o.kinds {
		for i, size := range *o.sizes {
			for _, connections := range *o.connections {
				for _, pipeline := range *o.pipelines {
					if kind == "misses" && i > 0 || size*connections*pipeline > 100<<20 {
						continue
					}
					all = append(all, load{kind: kind, connections: connections, pipeline: pipeline, size: size, o: o})
				}
			}
		}
	}
	return all
}

// result is that of one row in one round: requests a second, and microseconds.
type result struct{ rate, p50, p99, cpu, members float64 }

// cells are those of a row's figures: medians of all rounds.
func cells(rounds []result) []any {
	of := func(format string, field func(result) float64) any {
		var values []float64
		for _, r := range rounds {
			values = append(values, field(r))
		}
		return fmt.Sprintf(format, harness.Median(values))
	}
	return []any{
		of("%.0f", func(r result) float64 { return r.rate }), of("%.0f", func(r result) float64 { return r.p50 }),
		of("%.0f", func(r result) float64 { return r.p99 }), of("%.1f", func(r result) float64 { return r.cpu }),
		of("%.1f", func(r result) float64 { return r.members }),
	}
}
