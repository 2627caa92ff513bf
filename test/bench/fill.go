package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/harness"
)

// connections is how many a fill opens to each server: as many as the drainer does. More don't fill faster.
const connections = 2

// fill sends the commands, which are in memory, as fast as the servers take them, and returns the usage.
func fill(ctx context.Context, f fleet, commands [][][]byte) (usage, error) {
	group, sending := errgroup.WithContext(ctx)
	begin, own, servers := time.Now(), harness.StartMeter(os.Getpid()), f.meter()
	for i, s := range f {
		for _, list := range commands[i] {
			group.Go(func() error {
				return pour(sending, s.address(), func(w io.Writer) error {
					_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{bytes.NewReader(list)}, make([]byte, 128<<10))
					return err
				})
			})
		}
	}
	err := group.Wait()
	used := usage{seconds: time.Since(begin).Seconds()}
	return used, errors.Join(err, seconds(own, &used.cpu), seconds(servers, &used.servers))
}

// pour sends commands that have no answers, and waits until the server has carried them out.
func pour(ctx context.Context, address string, send func(io.Writer) error) error {
	conn, err := harness.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := send(conn); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("mn\r\n")); err != nil {
		return err
	}
	line, err := conn.Answers.ReadString('\n')
	if err == nil && line != "MN\r\n" {
		err = fmt.Errorf("a fill was answered by %q", line)
	}
	return err
}

// filled starts a memcached with all of the items.
func (p population) filled(ctx context.Context, args ...string) (*server, error) {
	s, err := memcached(ctx, p.memory(), args...)
	if err != nil {
		return nil, err
	}
	if err := p.into(ctx, s); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// saved makes the volume of a departed member with all of the items saved. The caller
// removes it.
func (p population) saved(ctx context.Context, b *bench) (dir string, err error) {
	dir, err = b.volume(p.String())
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	s, err := p.filled(ctx, "-e", filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return "", err
	}
	const wholeFile = 10 * time.Minute // it writes back all that it maps
	return dir, s.End(syscall.SIGUSR1, wholeFile)
}

// into fills s and checks that it holds every item.
func (p population) into(ctx context.Context, s *server) error {
	owner, err := fleet{s}.owner()
	if err != nil {
		return err
	}
	if _, err := fill(ctx, fleet{s}, p.commands(1, owner.Owner)); err != nil {
		return err
	}
	n, err := s.items(ctx)
	if err == nil && n != p.items {
		err = fmt.Errorf("%v keeps %d of %d items: the benchmark's own mistake", s.Cmd.Args, n, p.items)
	}
	return err
}
