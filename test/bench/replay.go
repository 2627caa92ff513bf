package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/internal/harness"
)

// replay measures how fast a killed member has its items back, from the start of its supervisor to the last
// item. The limit is a raw fill of a memcached that maps a file on the same disk.
func (p population) replay(ctx context.Context, b *bench) ([]*row, error) {
	what := p.String() + " after a kill"
	limit := &row{what: what, how: "raw fill with -e: the limit", items: p.items, bytes: p.bytes()}
	ours := &row{what: what, how: "**drainer supervise**, replay", items: p.items, bytes: p.bytes(), limit: limit}
	rows := []*row{limit, ours}
	dir, err := b.volume("member")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	member, err := b.serve(ctx, dir, p.memory())
	if err != nil {
		return nil, err
	}
	defer func() { _ = crash(member, dir) }()
	if err := p.into(ctx, member); err != nil {
		return nil, err
	}
	for range b.rounds {
		if err := p.mappedRound(ctx, b, limit); err != nil {
			return rows, err
		}
		if err := until(ctx, "the manifest follows", func() bool { return recorded(dir) >= p.items/10*9 }); err != nil {
			return rows, err
		}
		if err := crash(member, dir); err != nil {
			return rows, err
		}
		begin := time.Now()
		if member, err = b.serve(ctx, dir, p.memory()); err != nil {
			return rows, err
		}
		stop := watch(member.PID())
		err := until(ctx, "the replay ends", func() bool { return !aside(dir) })
		seconds, anonymous := time.Since(begin).Seconds(), stop()
		if err != nil {
			return rows, err
		}
		items, err := member.items(ctx)
		if err != nil {
			return rows, err
		}
		ours.add(usage{seconds: seconds, anonymous: anonymous}, p.items-items)
	}
	b.progressf("%s: %.2f of the limit", what, ours.rate()/limit.rate())
	return rows, nil
}

// serve starts a member on dir.
func (b *bench) serve(ctx context.Context, dir string, memory int) (*server, error) {
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{"supervise", "--dir=" + dir, "--port=" + strconv.Itoa(port), "--", "memcached"}
	return start(ctx, port, b.drainer, append(args, harness.MemcachedArgs(port, memory)...)...)
}

// crash kills memcached and its supervisor at once, as the OOM killer would.
func crash(s *server, dir string) error {
	m, err := volume.ReadManifest(dir)
	s.Kill()
	if err != nil {
		return err
	}
	_ = syscall.Kill(m.PID, syscall.SIGKILL)
	return until(context.Background(), "memcached has ended", func() bool { return syscall.Kill(m.PID, 0) != nil })
}

// recorded is how many items the supervisor knows of.
func recorded(dir string) int {
	m, err := volume.ReadManifest(dir)
	if err != nil || m.Image == nil {
		return 0
	}
	return int(m.Image.Items)
}

// aside tells whether a file waits for its replay.
func aside(dir string) bool {
	found, err := volume.Kept(dir)
	return err != nil || len(found) > 0
}

func until(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	return harness.Until(ctx, 2*time.Millisecond, what, func() error {
		if is() {
			return nil
		}
		return errors.New("not yet")
	})
}

// mappedRound fills a memcached that maps its memory to a file.
func (p population) mappedRound(ctx context.Context, b *bench, r *row) error {
	dir, err := b.volume("mapped")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := memcached(ctx, p.memory(), "-e", filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return err
	}
	defer s.Kill()
	owner, err := fleet{s}.owner()
	if err != nil {
		return err
	}
	used, err := fill(ctx, fleet{s}, p.commands(1, owner.Owner))
	if err != nil {
		return err
	}
	items, err := s.items(ctx)
	r.add(used, p.items-items)
	return err
}
