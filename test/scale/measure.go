package main

import (
	"context"
	"sync"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// column has one phase's work and costs.
type column struct {
	name string
	// per is the number of clusters, scale-downs or members that the costs are divided
	// by; 0 if there is nothing to divide.
	per int
	// seconds is how long the phase took, by its own definition. notes has its further figures, by the name of
	// the row.
	seconds float64
	notes   map[string]string
	// rested is after how many seconds the manager had nothing left to do.
	rested float64

	reconciles, errors, cpu float64
	memory                  harness.Memory
	peakDepth               float64
	waitMean, waitP99       float64 // seconds
	calls                   counts
	refused                 int
}

func (c *column) writes() int { return c.calls.sum(call.write) }
func (c *column) reads() int  { return c.calls.sum(call.read) }

// phase is a piece of work to measure. A phase returns the seconds that it took by its own definition, and
// may start another manager.
type phase func(ctx context.Context, c *column) (seconds float64, err error)

// measure runs the phase and lets the manager come to rest.
func (w *world) measure(ctx context.Context, name string, per int, settle bool, f phase) (*column, error) {
	w.say("%s", name)
	c := &column{name: name, per: per, notes: map[string]string{}}
	calls, refused, err := w.audit.read()
	if err != nil {
		return nil, err
	}
	before, err := w.manager().load(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.manager().resetPeak(); err != nil {
		return nil, err
	}
	first, began := w.manager(), time.Now()
	depth := w.sampleDepth(ctx)
	profiled := w.profileCPU(ctx, name)
	if c.seconds, err = f(ctx, c); err == nil && settle {
		err = w.settle(ctx)
	}
	c.rested = time.Since(began).Seconds()
	c.peakDepth = depth()
	profiled()
	if err != nil {
		return nil, err
	}
	if w.manager() != first {
		before = &load{} // this phase has started it
	}
	return c, w.fill(ctx, c, before, calls, refused)
}

// fill reads the figures again, and computes the differences.
func (w *world) fill(ctx context.Context, c *column, before *load, calls counts, refused int) error {
	after, err := w.manager().load(ctx)
	if err != nil {
		return err
	}
	now, refusedNow, err := w.audit.read()
	if err != nil {
		return err
	}
	c.calls, c.refused = now.minus(calls), refusedNow-refused
	c.reconciles, c.errors = after.reconciles-before.reconciles, after.errors-before.errors
	c.cpu, c.memory = after.cpu-before.cpu, after.memory
	c.waitP99 = waitQuantile(after, before, 0.99)
	if n := after.waitCount - before.waitCount; n > 0 {
		c.waitMean = (after.waitedFor - before.waitedFor) / n
	}
	w.say("%s: %.1f s, %.0f reconciles, %d writes, %.1f CPU s, peak RSS %.0f MiB",
		c.name, c.seconds, c.reconciles, c.writes(), c.cpu, mebibytes(c.memory.Peak))
	return w.manager().profile(ctx, w.options.profiles, c.name+" heap", "heap")
}

// sampleDepth samples the queue's depth until highest. A scrape with a thousand clusters costs the manager 0.1
// s of CPU time, so there is only one in five seconds.
func (w *world) sampleDepth(ctx context.Context) (highest func() float64) {
	return harness.Highest(5*time.Second, func() float64 {
		if m := w.manager(); m != nil {
			if l, err := m.load(ctx); err == nil {
				return l.depth
			}
		}
		return 0
	})
}

// profileCPU profiles the first seconds of a phase, if profiles are asked for. done waits for the end of the
// profile.
func (w *world) profileCPU(ctx context.Context, name string) (done func()) {
	if w.options.profiles == "" {
		return func() {}
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.manager().profile(ctx, w.options.profiles, name+" CPU", "profile?seconds=20"); err != nil {
			w.say("no CPU profile: %v", err) // a phase that stops the manager has none
		}
	})
	return group.Wait
}

// settle waits until the manager has had nothing to do for a while.
func (w *world) settle(ctx context.Context) error {
	const quiet = 3 * time.Second
	last, since, asked := -1.0, time.Now(), time.Time{}
	return w.until(ctx, w.options.limit, "the manager rests", func() (string, bool) {
		if time.Since(asked) < time.Second {
			return "it was asked a moment ago", false // each question costs CPU time
		}
		asked = time.Now()
		l, err := w.manager().load(ctx)
		if err != nil {
			return err.Error(), false
		}
		if l.reconciles != last || l.depth+l.active > 0 {
			last, since = l.reconciles, time.Now()
		}
		return "it reconciles", time.Since(since) > quiet
	})
}
