// Command scale measures the manager beside a thousand clusters: a real control
// plane, kwok (which plays nodes and pods), and the manager, each as processes
// of their own that end with this one. It prints one table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"example.com/memcached-operator/test/internal/watchdog"
)

// options say what is measured, and how much of it.
type options struct {
	root, kwok, manager string
	// steps are the numbers of clusters, in growing order.
	steps []int
	// idle is how long the manager is watched at rest.
	idle time.Duration
	// resync is how often it resyncs, while it is watched until it has reconciled each cluster
	// twice.
	resync     time.Duration
	scaleDowns int
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
	steps := flag.String("clusters", "100,300,1000", "Numbers of clusters, in growing order.")
	flags := flag.String("manager-flags", "", "Further flags of the manager, separated by blanks.")
	flag.StringVar(&o.root, "root", ".", "The repository.")
	flag.StringVar(&o.kwok, "kwok", "bin/kwok", "The kwok program.")
	flag.StringVar(&o.manager, "manager", "bin/manager", "The manager's program: another one than this tree's, to compare.")
	flag.DurationVar(&o.idle, "idle", 2*time.Minute, "How long the manager is watched at rest.")
	flag.DurationVar(&o.resync, "resync", 30*time.Second, "How often it resyncs, when it is watched doing so; 0 leaves that out.")
	flag.IntVar(&o.scaleDowns, "scale-downs", 200, "Clusters that lose a member at once.")
	flag.IntVar(&o.largeFrom, "large-from", 200, "Members of the large cluster; 0 for none.")
	flag.IntVar(&o.largeTo, "large-to", 100, "Members that it is scaled to.")
	flag.IntVar(&o.foreign, "foreign", 10000, "Foreign pods, claims and Jobs, of each.")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "Bound of the whole.")
	flag.StringVar(&o.profiles, "profiles", "", "Directory for profiles and the audit log.")
	flag.Parse()
	o.managerFlags = strings.Fields(*flags)
	var err error
	if o.steps, err = parseSteps(*steps); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = runAndPrint(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func parseSteps(text string) ([]int, error) {
	var steps []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n <= 0 || len(steps) > 0 && n <= steps[len(steps)-1] {
			return nil, fmt.Errorf("--clusters=%s: want numbers in growing order", text)
		}
		steps = append(steps, n)
	}
	return steps, nil
}

func runAndPrint(ctx context.Context, o options) error {
	columns, err := run(ctx, o, os.Stderr)
	if len(columns) > 0 {
		fmt.Printf("\n%d CPUs; (in parentheses: for each cluster, scale-down or member)\n\n", runtime.NumCPU())
		printTable(os.Stdout, columns)
	}
	return err
}

// run measures all phases. Where one fails, it returns those before.
func run(ctx context.Context, o options, out io.Writer) (columns []*column, err error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	dog, err := watchdog.Start("scale")
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
	log, err := os.ReadFile(w.audit.path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.options.profiles, "audit.log"), log, 0o600)
}
