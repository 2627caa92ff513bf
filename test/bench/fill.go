package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// connections to each server of a fill: as many as the drainer opens, and more
// don't fill faster.
const connections = 2

// fill sends all items, whose commands lie ready, as fast as the servers take
// them, and returns what that took.
func fill(ctx context.Context, f fleet, commands [][][]byte) (usage, error) {
	errs := make(chan error, len(f)*connections)
	var wg sync.WaitGroup
	begin, own, servers := time.Now(), ownCPU(), f.cpu()
	for i, s := range f {
		for _, list := range commands[i] {
			wg.Go(func() {
				if err := pour(ctx, s.address(), list); err != nil {
					errs <- err
				}
			})
		}
	}
	wg.Wait()
	used := usage{seconds: time.Since(begin).Seconds(), cpu: ownCPU() - own, servers: f.cpu() - servers}
	close(errs)
	return used, <-errs
}

func pour(ctx context.Context, address string, commands []byte) error {
	const block = 128 << 10
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for len(commands) > 0 {
		n := min(len(commands), block)
		if _, err := conn.Write(commands[:n]); err != nil {
			return err
		}
		commands = commands[n:]
	}
	if _, err := conn.Write([]byte("mn\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
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
		s.kill()
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
	return dir, s.endWithin(syscall.SIGUSR1, wholeFile)
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
		err = fmt.Errorf("%v keeps %d of %d items: the benchmark's own mistake", s.cmd.Args, n, p.items)
	}
	return err
}
