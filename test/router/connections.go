package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// connections prints what memory a connection takes: one that has asked once and is idle, and one
// that asks for twenty values of 200 bytes at a time.
func (w *world) connections(ctx context.Context, targets []target) error {
	n := w.o.idle
	if n == 0 {
		return nil
	}
	fmt.Println("| what | memory without connections, MiB | of an idle connection, KiB | of a busy one, KiB |")
	fmt.Println("|---|---:|---:|---:|")
	for _, t := range targets {
		if t.pid == 0 {
			continue
		}
		none, err := memory(t.pid)
		if err != nil {
			return err
		}
		idle, err := w.whileIdle(t, n)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		busy, err := w.whileBusy(ctx, t, n)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		each := func(all float64) float64 { return (all - none) / float64(n) / 1024 }
		fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", t.name, none/(1<<20), each(idle), each(busy))
	}
	fmt.Println()
	return nil
}

// whileIdle is the memory with n connections that have asked for something once.
func (w *world) whileIdle(t target, n int) (float64, error) {
	for range n {
		conn, err := net.Dial("tcp", t.address)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write([]byte("get none\r\n")); err != nil {
			return 0, err
		}
		b := make([]byte, len("END\r\n"))
		if _, err := conn.Read(b); err != nil || string(b) != "END\r\n" {
			return 0, fmt.Errorf("it answered %q: %w", b, err)
		}
	}
	return memory(t.pid)
}

// whileBusy is the most memory while n connections are busy.
func (w *world) whileBusy(ctx context.Context, t target, n int) (most float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.run(ctx, t, load{kind: "hits", connections: n, pipeline: 20, size: 200, o: w.o})
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			return most, err
		case <-time.After(50 * time.Millisecond):
			now, err := memory(t.pid)
			if err != nil {
				return 0, err
			}
			most = max(most, now)
		}
	}
}
