// Command scale measures the manager beside a thousand clusters. A real control plane, kwok (which plays
// nodes and pods), and the manager are processes of their own that end with this one. Command scale prints
// one table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
	"example.com/memcached-operator/test/tied"
)

// options choose the measurements, and their sizes.
type options struct {
	root, kwok, manager string
	// steps are the numbers of clusters, in growing order.
	steps []int
	// idle is how long the manager is watched at rest.
	idle time.Duration
	// resync is how often the manager resyncs in the phase in which it reconciles each cluster twice.
	resync     time.Duration
	scaleDowns int
	// routed is how many clusters with routers are created, and lose a member.
	routed int
	// largeFrom members of one cluster shrink to largeTo.
	largeFrom, largeTo int
	foreign            int
	// limit of each wait, timeout of the whole.
	limit, timeout time.Duration
	managerFlags   []string
	// profiles is a directory for a heap and a CPU profile of each phase, and the
	// audit log; empty for none.
	profiles string
}

func main() {
	o := options{limit: 12 * time.Minute}
	steps := harness.Numbers("clusters", "Numbers of clusters, in growing order.", 100, 300, 1000)
	flags := flag.String("manager-flags", "", "Further flags of the manager, separated by blanks.")
	flag.StringVar(&o.root, "root", ".", "The repository.")
	flag.StringVar(&o.kwok, "kwok", "bin/kwok", "The kwok program.")
	flag.StringVar(&o.manager, "manager", "bin/manager", "The manager's program: another one than this tree's, to compare.")
	flag.DurationVar(&o.idle, "idle", 2*time.Minute, "How long the manager is watched at rest.")
	flag.DurationVar(&o.resync, "resync", 30*time.Second, "How often it resyncs in the phase resync; 0 leaves the phase out.")
	flag.IntVar(&o.scaleDowns, "scale-downs", 200, "Clusters that lose a member at once.")
	flag.IntVar(&o.routed, "routed", 50, "Clusters with routers and discovery that are created, and lose a member.")
	flag.IntVar(&o.largeFrom, "large-from", 200, "Members of the large cluster; 0 for none.")
	flag.IntVar(&o.largeTo, "large-to", 100, "Members that it is scaled to.")
	flag.IntVar(&o.foreign, "foreign", 10000, "Foreign StatefulSets, pods, claims and Jobs, of each.")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "Bound of the whole.")
	flag.StringVar(&o.profiles, "profiles", "", "Directory for profiles and the audit log.")
	flag.Parse()
	o.managerFlags = strings.Fields(*flags)
	o.steps = *steps
	harness.Main("scale", func(ctx context.Context) error {
		if !slices.Equal(o.steps, slices.Compact(slices.Sorted(slices.Values(o.steps)))) {
			return fmt.Errorf("--clusters=%v: want numbers in growing order", o.steps)
		}
		return runAndPrint(ctx, o)
	})
}

func runAndPrint(ctx context.Context, o options) error {
	columns, err := run(ctx, o, os.Stderr)
	if len(columns) > 0 {
		fmt.Printf("\n%d CPUs; (in parentheses: for each cluster, scale-down or member)\n\n", runtime.NumCPU())
		printTable(os.Stdout, columns)
	}
	return err
}

// run measures all phases. If one fails, run returns those before it.
func run(ctx context.Context, o options, out io.Writer) (columns []*column, err error) {
	deployed.QuietLogs()
	dog, err := tied.Watch("scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dog.Stop()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it takes longer than %s", o.timeout))
	defer cancel()
	w, err := newWorld(ctx, o, dog.Dir, out)
	defer func() {
		cancel()
		w.close()
		err = errors.Join(err, w.keepAudit())
	}()
	if err != nil {
		return nil, err
	}
	if err := w.startManager(ctx); err != nil {
		return nil, err
	}
	for _, s := range w.script() {
		if s.before != nil {
			if err := s.before(ctx); err != nil {
				return columns, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		c, err := w.measure(ctx, s.name, s.per, !s.restless, s.phase)
		if err != nil {
			return columns, fmt.Errorf("%s: %w", s.name, err)
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// keepAudit copies the audit log to the profiles.
func (w *world) keepAudit() error {
	if w.options.profiles == "" || w.audit == nil {
		return nil
	}
	log, err := os.ReadFile(w.audit.log.Path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.options.profiles, "audit.log"), log, 0o600)
}
