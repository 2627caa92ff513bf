package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// load has the clients' work.
type load struct {
	kind                        string // mix, hits, misses
	connections, pipeline, size int
	o                           *options
}

// sets is the percentage of sets.
func (l load) sets() int {
	if l.kind == "mix" {
		return 10
	}
	return 0
}

// run measures one target.
func (w *world) run(ctx context.Context, t target, l load) (result, error) {
	if err := l.fill(ctx, t.address); err != nil {
		return result{}, err
	}
	own, members := harness.StartMeter(t.pids...), harness.StartMeter(w.members...)
	did, err := harness.Closed(ctx, t.address, l.connections, w.o.duration, l.client)
	if err != nil {
		return result{}, err
	}
	ownUsed, err := own.Used()
	membersUsed, err2 := members.Used()
	n := float64(did.Requests)
	return result{
		rate: did.Rate(), p50: harness.Micros(did.Times.Percentile(50)), p99: harness.Micros(did.Times.Percentile(99)),
		cpu: harness.Micros(ownUsed) / n, members: harness.Micros(membersUsed) / n,
	}, errors.Join(err, err2)
}

// fill stores all keys.
func (l load) fill(ctx context.Context, address string) error {
	conn, err := harness.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	w := bufio.NewWriter(conn)
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
			if line, err := conn.Answers.ReadSlice('\n'); err != nil || string(line) != "STORED\r\n" {
				return fmt.Errorf("fill: %q: %w", line, err)
			}
		}
	}
	return nil
}

// client returns each client's work: it sends a pipeline of requests, and reads the answers.
func (l load) client(int) func(*harness.Conn) (int, error) {
	value := bytes.Repeat([]byte("v"), l.size)
	var out []byte
	gets, what := make([]bool, l.pipeline), "get key-"
	if l.kind == "misses" {
		what = "get none-"
	}
	answer := make([]byte, l.size+len("\r\nEND\r\n"))
	return func(conn *harness.Conn) (int, error) {
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
		if _, err := conn.Write(out); err != nil {
			return 0, err
		}
		for _, get := range gets {
			line, err := conn.Answers.ReadSlice('\n')
			switch {
			case err != nil:
				return 0, err
			case get && l.kind == "misses" && string(line) != "END\r\n", get && l.kind != "misses" && !bytes.HasPrefix(line, []byte("VALUE key-")), !get && string(line) != "STORED\r\n":
				return 0, fmt.Errorf("answer %q", line)
			}
			if get && l.kind != "misses" {
				if _, err := io.ReadFull(conn.Answers, answer); err != nil {
					return 0, err
				}
			}
		}
		return l.pipeline, nil
	}
}
