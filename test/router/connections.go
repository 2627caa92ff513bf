package main

import (
	"context"
	"fmt"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// connections prints how much memory a connection takes: an idle one that has asked once, and a busy one that
// asks for twenty values of 200 bytes at a time.
func (w *world) connections(ctx context.Context, targets []target) error {
	n := w.o.idle
	if n == 0 {
		return nil
	}
	fmt.Println(harness.Header("what", "memory without connections, MiB:", "of an idle connection, KiB:", "of a busy one, KiB:"))
	for _, t := range targets {
		if len(t.pids) == 0 {
			continue
		}
		none, err := t.memory()
		if err != nil {
			return err
		}
		idle, err := whileIdle(ctx, t, n)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		busy, err := w.whileBusy(ctx, t, n)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		each := func(all int64) string { return fmt.Sprintf("%.1f", float64(all-none)/float64(n)/1024) }
		fmt.Println(harness.Row(t.name, fmt.Sprintf("%.1f", float64(none)/(1<<20)), each(idle), each(busy)))
	}
	fmt.Println()
	return nil
}

// memory returns the anonymous memory of the target's process, in bytes.
func (t target) memory() (int64, error) {
	m, err := harness.MemoryOf(t.pids[0])
	return m.Anonymous, err
}

// whileIdle returns the memory with n connections that have asked once.
func whileIdle(ctx context.Context, t target, n int) (int64, error) {
	for range n {
		conn, err := harness.Dial(ctx, t.address)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(harness.Patience))
		if _, err := conn.Write([]byte("get none\r\n")); err != nil {
			return 0, err
		}
		if line, err := conn.Answers.ReadString('\n'); err != nil || line != "END\r\n" {
			return 0, fmt.Errorf("it answered %q: %w", line, err)
		}
	}
	return t.memory()
}

// whileBusy returns the most memory while n connections are busy.
func (w *world) whileBusy(ctx context.Context, t target, n int) (int64, error) {
	most := harness.Highest(50*time.Millisecond, func() int64 {
		now, _ := t.memory()
		return now
	})
	_, err := w.run(ctx, t, load{kind: "hits", connections: n, pipeline: 20, size: 200, o: w.o})
	return most(), err
}
