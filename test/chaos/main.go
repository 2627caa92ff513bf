// Command chaos runs a load against a cluster of members while things are killed and the size changes, at
// random by a seed, and then looks for every value that a member has acknowledged. Command chaos needs the
// cluster of test/cluster with the operator deployed, on this machine: make chaos provides both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/summary"
)

// options are those of the command line.
type options struct {
	seed uint64
	// deeds is how many faults there are; 0 if duration says how long they go on.
	deeds    int
	duration time.Duration
	// round is how long faults go on before the check, and roundDeeds how many there are.
	round      time.Duration
	roundDeeds int
	// patience bounds each wait for the cluster to come to rest.
	patience time.Duration
	// moves is spec.routing.moves of the cluster.
	moves cachev1alpha1.MoveMode
	// routed is set if the load asks routers, and no client asks members itself.
	routed bool
	// inPods is set if the members have no volumes. Then no fault deletes a member's pod, which has the only copy of its items.
	inPods bool
	// verbose prints each fault when it happens.
	verbose bool
}

func main() {
	o := options{round: 30 * time.Second, roundDeeds: 8, patience: 15 * time.Minute}
	minutes := flag.Float64("minutes", 2, "How long faults go on.")
	flag.IntVar(&o.deeds, "deeds", 0, "How many faults there are, instead of --minutes.")
	flag.Uint64Var(&o.seed, "seed", 0, "Seed of what happens; 0 takes one of the clock.")
	flag.StringVar((*string)(&o.moves), "moves", string(cachev1alpha1.MovesLive), "The cluster's spec.routing.moves: Live or Off.")
	flag.BoolVar(&o.routed, "routers", false, "The load asks routers (spec.router).")
	flag.BoolVar(&o.inPods, "in-pods", false, "The members have no volumes (storage.mode Memory).")
	flag.BoolVar(&o.verbose, "verbose", false, "Print each fault when it happens.")
	flag.Parse()
	if (o.routed || o.inPods) && o.moves != cachev1alpha1.MovesLive {
		fmt.Println("chaos: --routers and --in-pods need --moves=Live: what is not moved is missed, or lost")
		os.Exit(2)
	}
	o.duration = time.Duration(*minutes * float64(time.Minute))
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	deployed.QuietLogs()
	what := fmt.Sprintf("for %v, moves %s", o.duration, o.moves)
	if o.deeds > 0 {
		what = fmt.Sprintf("%d of them, moves %s", o.deeds, o.moves)
	}
	if o.routed {
		what += ", through routers"
	}
	if o.inPods {
		what += ", without volumes"
	}
	fmt.Printf("chaos: seed %d, %s\n", o.seed, what)
	if err := run(o); err != nil {
		fmt.Printf("chaos: FAIL, seed %d: %v\n", o.seed, err)
		os.Exit(1)
	}
	if err := summary.Add("chaos: PASS, seed %d, faults: %s", o.seed, what); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// run makes the cluster, and rounds of faults under load.
func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println(w.dump())
		}
		err = errors.Join(err, w.remove())
	}()
	if err := w.create(ctx, minSize+1); err != nil {
		return err
	}
	l, err := newLoad(w, o.seed)
	if err != nil {
		return err
	}
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	l.start(loadCtx)
	f := newFaults(w, o.seed)
	end, left := time.Now().Add(o.duration), o.deeds
	for spare := o.routed; left > 0 || o.deeds == 0 && time.Now().Before(end); spare = o.routed && !spare {
		if o.deeds > 0 {
			err = f.round(ctx, min(o.roundDeeds, left), 0, spare)
			left -= o.roundDeeds
		} else {
			err = f.round(ctx, 0, min(o.round, time.Until(end)), spare)
		}
		if err != nil {
			return err
		}
		if err := w.settle(ctx, f); err != nil {
			return err
		}
		if err := check(ctx, w, l); err != nil {
			return err
		}
	}
	stopLoad()
	l.wait()
	if err := check(ctx, w, l); err != nil {
		return err
	}
	f.print()
	l.print()
	return w.checkInvariants(ctx)
}
