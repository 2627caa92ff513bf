// Command continuity measures what an application sees of a scaling, second by second: the share of hits,
// errors and latencies of a cache-aside load, while a cluster is scaled, gets another memory or image, loses a
// member, or has a node drained. The command compares this operator, with live moves, without them, with routers,
// with rollout Moved, and without volumes, with a plain StatefulSet, for applications that follow the list at once,
// 20 s or 60 s late, and for one of twenty processes, each late by its own share of a minute. The command prints one
// table, and draws a curve for each run: make bench-continuity.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

const usage = `It measures each chosen event of each chosen system, for each list and each load, and prints a row for each: about
two minutes, and as long as the list is late. Each of the flags that choose takes several names, with commas between
them. One row, and the restarts through routers:

  make bench-continuity CONTINUITY_FLAGS='--events="3 to 2" --systems=operator --lists="60 s late" --loads=uniform'
  make bench-continuity CONTINUITY_FLAGS='--events="another memory,SIGKILL,node drained" --systems="operator with routers"'
  make bench-continuity CONTINUITY_FLAGS='--events="another memory,another image,node drained" --systems="operator with routers and Moved" --loads=uniform'
  make bench-continuity CONTINUITY_FLAGS='--systems="Memory with routers,Memory,plain StatefulSet" --lists="at once"'

`

// options of all runs.
type options struct {
	keys, valueSize, rate int
	seed                  uint64
	before, after         time.Duration
	image                 string
	out                   string
	asksTwice             bool
}

func main() {
	var o options
	flag.IntVar(&o.keys, "keys", 30_000, "Keys that the application uses.")
	flag.IntVar(&o.valueSize, "value-size", 200, "Bytes of a value.")
	flag.IntVar(&o.rate, "rate", 2000, "Requests a second.")
	flag.Uint64Var(&o.seed, "seed", 1, "Seed of the requests' keys.")
	flag.DurationVar(&o.before, "before", 10*time.Second, "How long the load runs before the event.")
	flag.DurationVar(&o.after, "after", 30*time.Second, "How long it runs after it, at least: it goes on until the cluster is as wanted, and a late application has followed.")
	flag.StringVar(&o.image, "image", "example.com/memcached:debian", "The plain StatefulSet's image.")
	flag.BoolVar(&o.asksTwice, "again", false, "The application asks once more if a request fails. Its library, gomemcache, doesn't.")
	flag.StringVar(&o.out, "out", "bin/continuity", "The directory for the curves, as SVG and CSV.")
	systems := flag.String("systems", strings.Join(names(systems()), ","), "The systems to measure.")
	events := flag.String("events", strings.Join(names(events()), ","), "What happens to them.")
	lists := flag.String("lists", strings.Join(names(followings()), ","), "When the application follows the list.")
	loads := flag.String("loads", "uniform,zipf", "How the keys are asked for.")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	deployed.QuietLogs()
	harness.Main("continuity", func(ctx context.Context) error {
		runs, err := choose(*systems, *events, *lists, *loads)
		if err != nil {
			return err
		}
		return measure(ctx, &o, runs)
	})
}

// one is a run: an event, a system, and a load.
type one struct {
	system system
	event  happening
	list   following
	zipf   bool
}

// following is when the processes of an application learn of a list.
type following struct {
	name string
	// late has for each process how much later that is.
	late []time.Duration
}

func (f following) called() string { return f.name }

// atOnce is a name.
const atOnce = "at once"

func followings() []following {
	const processes, minute = 20, time.Minute
	spread := make([]time.Duration, processes)
	for i := range spread {
		spread[i] = time.Duration(i) * minute / processes
	}
	return []following{
		{atOnce, []time.Duration{0}},
		{"20 s late", []time.Duration{minute / 3}},
		{"60 s late", []time.Duration{minute}},
		{"spread", spread}, // as kubelets do it
	}
}

func (r *one) String() string {
	load := "uniform"
	if r.zipf {
		load = "zipf"
	}
	return fmt.Sprintf("%s, %s, list %s, %s", r.event.name, r.system.name, r.list.name, load)
}

func (r *one) file() string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(r.String())
}

// choose returns the runs. The runs of an event follow each other.
func choose(systemNames, eventNames, lists, loads string) (runs []one, err error) {
	chosenSystems, err := pick(systems(), systemNames)
	if err != nil {
		return nil, err
	}
	chosenEvents, err := pick(events(), eventNames)
	if err != nil {
		return nil, err
	}
	chosenLists, err := pick(followings(), lists)
	if err != nil {
		return nil, err
	}
	for _, load := range strings.Split(loads, ",") {
		if load != "uniform" && load != "zipf" {
			return nil, fmt.Errorf("%q is neither uniform nor zipf", load)
		}
		for _, e := range chosenEvents {
			for _, list := range chosenLists {
				if list.name != atOnce && !e.changesList {
					continue // there is nothing to learn
				}
				for _, s := range chosenSystems {
					if list.name != atOnce && s.routed {
						continue // its list is one address
					}
					runs = append(runs, one{system: s, event: e, list: list, zipf: load == "zipf"})
				}
			}
		}
	}
	return runs, nil
}

type named interface{ called() string }

func names[T named](all []T) (out []string) {
	for _, a := range all {
		out = append(out, a.called())
	}
	return out
}

func pick[T named](all []T, chosen string) (out []T, err error) {
	for _, name := range strings.Split(chosen, ",") {
		found := false
		for _, a := range all {
			if a.called() == name {
				out, found = append(out, a), true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q is none of %s", name, strings.Join(names(all), ", "))
		}
	}
	return out, nil
}

func measure(ctx context.Context, o *options, runs []one) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	fmt.Println(header)
	for i := range runs {
		r := &runs[i]
		seconds, err := r.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		if err := errors.Join(
			os.WriteFile(filepath.Join(o.out, r.file()+".csv"), seconds.csv(), 0o644),
			os.WriteFile(filepath.Join(o.out, r.file()+".svg"), draw(r.String(), seconds), 0o644),
		); err != nil {
			return err
		}
		fmt.Println(row(r, seconds))
	}
	return nil
}

// run makes a cluster, fills it, and lets the event happen under load.
func (r *one) run(ctx context.Context, o *options) (result *curve, err error) {
	const bound = 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.remove()) }()
	if err := r.system.create(ctx, w, r.event.members); err != nil {
		return nil, err
	}
	a, err := newApplication(ctx, w, o, r)
	if err != nil {
		return nil, err
	}
	if err := a.fill(ctx); err != nil {
		return nil, err
	}
	stop := a.start(ctx)
	defer stop()
	if err := harness.Sleep(ctx, o.before); err != nil {
		return nil, err
	}
	a.curve.event = time.Since(a.curve.began)
	if err := r.event.happen(ctx, w, &r.system); err != nil {
		return nil, err
	}
	if err := harness.Sleep(ctx, o.after+slices.Max(r.list.late)); err != nil {
		return nil, err
	}
	if err := r.system.settle(ctx, w); err != nil {
		return nil, err
	}
	if err := harness.Sleep(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	stop()
	return a.curve, nil
}
