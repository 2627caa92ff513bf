package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is what clients do.
type load struct {
	kind                        string // mix, hits, misses
	connections, pipeline, size int
	o                           *options
}

// sets is their share, in percent.
func (l load) sets() int {
	if l.kind == "mix" {
		return 10
	}
	return 0
}

// run measures one target.
func (w *world) run(ctx context.Context, t target, l load) (result, error) {
	if err := l.fill(t.address); err != nil {
		return result{}, err
	}
	var workers sync.WaitGroup
	all := make([]worker, l.connections)
	before, membersBefore, err := w.usage(t)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.o.duration)
	defer cancel()
	for i := range all {
		workers.Go(func() { all[i].err = all[i].work(ctx, t.address, l) })
	}
	<-ctx.Done()
	workers.Wait()
	took := time.Since(began)
	after, membersAfter, err := w.usage(t)
	if err != nil {
		return result{}, err
	}
	var times []time.Duration
	requests := 0
	for i := range all {
		if all[i].err != nil {
			return result{}, all[i].err
		}
		times = append(times, all[i].times...)
		requests += all[i].requests
	}
	slices.Sort(times)
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	n := float64(requests)
	return result{
		rate: n / took.Seconds(), p50: micros(times[len(times)/2]), p99: micros(times[len(times)*99/100]),
		cpu: micros(after-before) / n, members: micros(membersAfter-membersBefore) / n,
	}, nil
}

func (w *world) usage(t target) (own, members time.Duration, err error) {
	if own, err = cpu(t.pid); err != nil {
		return 0, 0, err
	}
	for _, pid := range w.members {
		one, err := cpu(pid)
		if err != nil {
			return 0, 0, err
		}
		members += one
	}
	return own, members, nil
}

// fill stores all keys.
func (l load) fill(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	value := bytes.Repeat([]byte("v"), l.size)
	for i := range l.o.keys {
		fmt.Fprintf(w, "set key-%d 0 0 %d\r\n%s\r\n", i, l.size, value)
		if i%100 != 99 && i != l.o.keys-1 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for range i%100 + 1 {
			if line, err := r.ReadSlice('\n'); err != nil || string(line) != "STORED\r\n" {
				return fmt.Errorf("fill: %q: %w", line, err)
			}
		}
	}
	return nil
}

// worker is one connection.
type worker struct {
	times    []time.Duration
	requests int
	err      error
}

func (k *worker) work(ctx context.Context, address string, l load) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReaderSize(conn, 64<<10)
	value := bytes.Repeat([]byte("v"), l.size)
	var out []byte
	gets, what := make([]bool, l.pipeline), "get key-"
	if l.kind == "misses" {
		what = "get none-"
	}
	answer := make([]byte, l.size+len("\r\nEND\r\n"))
	for ctx.Err() == nil {
		out = out[:0]
		for i := range gets {
			key := int64(rand.IntN(l.o.keys))
			if gets[i] = rand.IntN(100) >= l.sets(); gets[i] {
				out = append(strconv.AppendInt(append(out, what...), key, 10), "\r\n"...)
				continue
			}
			out = append(strconv.AppendInt(append(out, "set key-"...), key, 10), " 0 0 "...)
			out = append(strconv.AppendInt(out, int64(l.size), 10), "\r\n"...)
			out = append(append(out, value...), "\r\n"...)
		}
		began := time.Now()
		if _, err := conn.Write(out); err != nil {
			return err
		}
		for _, get := range gets {
			line, err := r.ReadSlice('\n')
			switch {
			case err != nil:
				return err
			case get && l.kind == "misses" && string(line) != "END\r\n", get && l.kind != "misses" && !bytes.HasPrefix(line, []byte("VALUE key-")), !get && string(line) != "STORED\r\n":
				return fmt.Errorf("answer %q", line)
			}
			if get && l.kind != "misses" {
				if _, err := io.ReadFull(r, answer); err != nil {
					return err
				}
			}
		}
		k.times = append(k.times, time.Since(began))
		k.requests += l.pipeline
	}
	return nil
}
