package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/internal/harness"
)

// ringChange is a scaling. Each member gives away, while it runs, the items that another member owns now.
type ringChange struct {
	population
	from, to int
}

func (c ringChange) String() string { return fmt.Sprintf("%s, %d → %d", c.population, c.from, c.to) }

// plan says which items move. The ring is consistent, because with modulo nearly all items would move.
type plan struct {
	before, after routing.Owner
	moved         int
	bytes         int64
	// sources are the members that have something to move. has is how many items each member has in the end,
	// and gets how many of these are new to it.
	sources   map[int]bool
	has, gets []int
}

func (c ringChange) plan(f fleet) (*plan, error) {
	p := &plan{sources: map[int]bool{}, has: make([]int, len(f)), gets: make([]int, len(f))}
	var err error
	if p.before, err = f[:c.from].owner(); err != nil {
		return nil, err
	}
	if p.after, err = f[:c.to].owner(); err != nil {
		return nil, err
	}
	var key []byte
	for i := range c.items {
		key = appendKey(key[:0], i)
		from, to := p.before.Owner(key), p.after.Owner(key)
		p.has[to]++
		if from != to {
			p.gets[to]++
			p.moved++
			p.bytes += int64(c.size(i)) + keyLength
			p.sources[from] = true
		}
	}
	return p, nil
}

// move measures the live moves of a ring change. The limit adds the items at their new owners and deletes them
// by CAS at the old ones, at the same time, over as many connections, by commands that are in memory. In one
// row supervisors stream the items, in the other one movers ask memcached for them.
func (c ringChange) move(ctx context.Context, b *bench) ([]*row, error) {
	limit := &row{what: c.String(), how: "adds, and deletes by CAS: the limit"}
	streamed := &row{what: c.String(), how: "**drainer move**, streamed", limit: limit}
	asked := &row{what: c.String(), how: "drainer move, by the protocol", limit: limit}
	rows := []*row{limit, streamed, asked}
	err := harness.InTurn(b.rounds, rows, func(r *row) error { return c.round(ctx, b, r, nil, r == limit, r == streamed) })
	if err != nil {
		return rows, err
	}
	b.progressf("%s: %.2f of the limit streamed, %.2f by the protocol", c, streamed.rate()/limit.rate(), asked.rate()/limit.rate())
	return rows, nil
}

// scale is one round of move with many items, streamed only. Then the movers run once more: they look at all
// items that are left, and move none.
func (c ringChange) scale(ctx context.Context, b *bench) ([]*row, error) {
	limit := &row{what: c.String(), how: "adds, and deletes by CAS: the limit"}
	streamed := &row{what: c.String(), how: "**drainer move**, streamed", limit: limit}
	nothing := &row{what: c.String(), how: "once more: nothing moves"}
	rows := []*row{limit, streamed, nothing}
	if err := c.round(ctx, b, limit, nil, true, false); err != nil {
		return rows, err
	}
	return rows, c.round(ctx, b, streamed, nothing, false, true)
}

// round measures one ring change into r. If rerun isn't nil, round runs the movers once more, and measures
// that into rerun.
func (c ringChange) round(ctx context.Context, b *bench, r, rerun *row, limit, streamed bool) error {
	f, remove, err := b.members(ctx, max(c.from, c.to), c.memory())
	if err != nil {
		return err
	}
	defer remove()
	p, err := c.plan(f)
	if err != nil {
		return err
	}
	if _, err := fill(ctx, f, c.commands(len(f), func(key []byte) int { return p.before.Owner(key) })); err != nil {
		return err
	}
	debug.FreeOSMemory()
	if n, err := f.items(ctx); err != nil || n != c.items {
		return fmt.Errorf("%d of %d items are kept: the benchmark's own mistake: %w", n, c.items, err)
	}
	r.items, r.bytes = p.moved, p.bytes
	var used usage
	if limit {
		used, err = c.addAndDelete(ctx, f, p)
	} else {
		used, err = c.runMovers(ctx, b, f, p, r.name(), streamed)
	}
	if err != nil {
		return err
	}
	lost, err := c.lost(ctx, f, p)
	r.add(used, lost)
	if err != nil || rerun == nil {
		return err
	}
	if used, err = c.runMovers(ctx, b, f, p, rerun.name(), streamed); err != nil {
		return err
	}
	for i := range p.sources {
		rerun.items += p.has[i]
	}
	lost, err = c.lost(ctx, f, p)
	rerun.add(used, lost)
	return err
}

// lost counts the items that members lack, and those that they have too many.
func (c ringChange) lost(ctx context.Context, f fleet, p *plan) (int, error) {
	sum := 0
	for i, s := range f {
		n, err := s.items(ctx)
		if err != nil {
			return 0, err
		}
		sum += max(n-p.has[i], p.has[i]-n)
	}
	return sum, nil
}

// runMovers runs a mover for each member that has something to move, all at once.
func (c ringChange) runMovers(ctx context.Context, b *bench, f fleet, p *plan, name string, streamed bool) (sum usage, err error) {
	used, errs := make([]usage, len(f)), make([]error, len(f))
	var all sync.WaitGroup
	begin, servers, supervisors := time.Now(), f.meter(), harness.StartMeter(f.supervisors()...)
	anonymous := watch(f.supervisors()...)
	for i := range p.sources {
		args := []string{"move", "--source=" + f[i].address(), "--scratch=" + b.scratch}
		if streamed {
			args = append(args, "--"+contract.FlagExportPort+"="+strconv.Itoa(f[i].export))
		}
		all.Go(func() {
			used[i], errs[i] = b.receipted(ctx, fmt.Sprintf("%s %d", name, i), f[:c.to], args...)
		})
	}
	all.Wait()
	sum.anonymous = anonymous()
	for i, u := range used {
		if errs[i] != nil {
			return sum, errs[i]
		}
		sum.cpu += u.cpu
		sum.anonymous = max(sum.anonymous, u.anonymous)
		if sum.around = max(sum.around, u.around); u.seconds > sum.seconds {
			sum.seconds, sum.phases = u.seconds, u.phases
		}
	}
	sum.seconds = time.Since(begin).Seconds()
	return sum, errors.Join(seconds(servers, &sum.servers), seconds(supervisors, &sum.supervisors))
}

// members are running members under their supervisors, with their files in memory.
func (b *bench) members(ctx context.Context, n, memory int) (f fleet, remove func(), err error) {
	var dirs []string
	remove = func() {
		f.kill()
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
	}
	for range n {
		var s *server
		var more []string
		s, more, err = b.exporting(ctx, memory)
		dirs = append(dirs, more...)
		if err != nil {
			remove()
			return nil, nil, err
		}
		f = append(f, s)
	}
	return f, remove, nil
}

// exporting starts a member under its supervisor, with its file in memory. The caller removes
// the directories.
func (b *bench) exporting(ctx context.Context, memory int) (s *server, dirs []string, err error) {
	dirs = []string{memoryRoot, b.scratch}
	for i := range dirs {
		if dirs[i], err = os.MkdirTemp(dirs[i], "drainer-bench-"); err != nil {
			return nil, dirs[:i], err
		}
		b.remove = append(b.remove, dirs[i])
	}
	port, err := harness.FreePort()
	if err != nil {
		return nil, dirs, err
	}
	exportPort, err := harness.FreePort()
	if err != nil {
		return nil, dirs, err
	}
	serve := contract.Supervise{MemoryDir: dirs[0], Dir: dirs[1], Port: int32(port), ExportPort: int32(exportPort),
		Command: append([]string{"memcached"}, harness.MemcachedArgs(port, memory)...)}
	if s, err = start(ctx, port, b.drainer, serve.Args()...); err != nil {
		return nil, dirs, err
	}
	s.export = exportPort
	err = until(ctx, "the manifest has memcached's process", func() bool {
		m, err := volume.ReadManifest(dirs[0])
		if err == nil {
			s.child = m.PID
		}
		return s.child != 0
	})
	if err != nil {
		s.Kill()
	}
	return s, dirs, err
}

// addAndDelete adds the items of the move at their new owners, and deletes them at the old ones.
func (c ringChange) addAndDelete(ctx context.Context, f fleet, p *plan) (usage, error) {
	lists := c.commands(len(f), func(key []byte) int {
		if to := p.after.Owner(key); to != p.before.Owner(key) {
			return to
		}
		return nowhere
	})
	for i := range p.sources {
		deletes, err := c.deletes(ctx, f[i], func(key []byte) bool {
			return p.before.Owner(key) == i && p.after.Owner(key) != i
		})
		if err != nil {
			return usage{}, err
		}
		for j, list := range deletes {
			lists[i][j] = append(lists[i][j], list...)
		}
	}
	debug.FreeOSMemory()
	return fill(ctx, f, lists)
}

// deletes returns, for each connection, quiet deletes by CAS of the items that leave the source.
func (p population) deletes(ctx context.Context, source *server, leaves func(key []byte) bool) ([][]byte, error) {
	conn, err := harness.Dial(ctx, source.address())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	lists := make([][]byte, connections)
	const portion = 1000
	for from := 0; from < p.items; from += portion {
		var request []byte
		var keys [][]byte
		for i := from; i < min(from+portion, p.items); i++ {
			if key := appendKey(nil, i); leaves(key) {
				keys = append(keys, key)
				request = append(append(append(request, "mg "...), key...), " c\r\n"...)
			}
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		for i, key := range keys {
			line, err := conn.Answers.ReadString('\n')
			if err != nil {
				return nil, err
			}
			var cas uint64
			if _, err := fmt.Sscanf(line, "HD c%d", &cas); err != nil {
				return nil, fmt.Errorf("mg %s: %q: %w", key, line, err)
			}
			to := &lists[i%connections]
			*to = append(append(append(*to, "md "...), key...), " C"...)
			*to = append(strconv.AppendUint(*to, cas, 10), " q\r\n"...)
		}
	}
	return lists, nil
}
