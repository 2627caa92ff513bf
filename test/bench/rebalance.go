package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
)

// rebalance measures a live move: a member under its supervisor has all of the items, and
// gives half of them to a server that starts empty. The limit is to add these there and to
// delete them here by their CAS, at the same time, by commands that lie ready, over as many
// connections. One row is of items that the supervisor streams, the other of items that
// memcached is asked for.
func (p population) rebalance(ctx context.Context, b *bench) ([]*row, error) {
	what := "half of " + p.String() + " to another"
	limit := &row{what: what, how: "adds, and deletes by CAS: the limit"}
	streamed := &row{what: what, how: "**drainer rebalance**, streamed", limit: limit}
	asked := &row{what: what, how: "drainer rebalance, by the protocol", limit: limit}
	rows := []*row{limit, streamed, asked}
	for range b.rounds {
		for _, r := range rows {
			if err := p.rebalanceRound(ctx, b, r, r == limit, r == streamed); err != nil {
				return rows, err
			}
		}
	}
	b.progressf("%s: %.2f of the limit streamed, %.2f by the protocol", what, streamed.rate()/limit.rate(), asked.rate()/limit.rate())
	return rows, nil
}

func (p population) rebalanceRound(ctx context.Context, b *bench, r *row, limit, streamed bool) error {
	other, err := memcached(ctx, p.memory())
	if err != nil {
		return err
	}
	defer other.kill()
	source, remove, err := b.exporting(ctx, p.memory())
	if err != nil {
		return err
	}
	defer remove()
	defer source.kill()
	f := fleet{source, other}
	owner, err := f.owner()
	if err == nil {
		err = p.into(ctx, source)
	}
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	half := 0
	var key []byte
	for i := range p.items {
		if key = appendKey(key[:0], i); owner.Owner(key) == 1 {
			half++
		}
	}
	r.items, r.bytes = half, p.bytes()*int64(half)/int64(p.items)
	var used usage
	if limit {
		used, err = p.addAndDelete(ctx, f, owner)
	} else {
		args := []string{"rebalance", "--source=" + source.address(), "--scratch=" + b.scratch}
		if streamed {
			args = append(args, "--"+contract.FlagExportPort+"="+strconv.Itoa(source.export))
		}
		used, err = b.receipted(ctx, r.what, f, args...)
	}
	if err != nil {
		return err
	}
	moved, err := other.items(ctx)
	if err != nil {
		return err
	}
	left, err := source.items(ctx)
	r.add(used, max(half-moved, p.items-moved-left))
	return err
}

// exporting starts a member under its supervisor, with its file in memory.
func (b *bench) exporting(ctx context.Context, memory int) (s *server, remove func(), err error) {
	dirs := []string{memoryRoot, b.scratch}
	for i := range dirs {
		if dirs[i], err = os.MkdirTemp(dirs[i], "drainer-bench-"); err != nil {
			return nil, nil, err
		}
		b.remove = append(b.remove, dirs[i])
	}
	remove = func() {
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	exportPort, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	serve := contract.Serve{MemoryDir: dirs[0], Dir: dirs[1], Port: int32(port), ExportPort: int32(exportPort),
		Command: append([]string{"memcached"}, memcachedArgs(port, memory)...)}
	if s, err = start(ctx, port, b.drainer, serve.Args()...); err != nil {
		return nil, nil, err
	}
	s.export = exportPort
	err = waitUntil(ctx, func() bool {
		m, err := volume.ReadManifest(dirs[0])
		if err == nil {
			s.child = m.PID
		}
		return s.child != 0
	})
	return s, remove, err
}

// addAndDelete adds the items of the second server there, and deletes them at the first.
func (p population) addAndDelete(ctx context.Context, f fleet, owner routing.Owner) (usage, error) {
	deletes, err := p.deletes(ctx, f[0], owner)
	if err != nil {
		return usage{}, err
	}
	adds := p.commands(owner, 2)[1]
	debug.FreeOSMemory()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	begin, own, servers := time.Now(), ownCPU(), f.cpu()
	wg.Go(func() { _, errs[0] = fill(ctx, fleet{f[1]}, [][][]byte{adds}) })
	wg.Go(func() { _, errs[1] = fill(ctx, fleet{f[0]}, [][][]byte{deletes}) })
	wg.Wait()
	used := usage{seconds: time.Since(begin).Seconds(), cpu: ownCPU() - own, servers: f.cpu() - servers}
	if errs[0] != nil {
		return used, errs[0]
	}
	return used, errs[1]
}

// deletes are quiet deletes by CAS of what the second server owns, for each connection.
func (p population) deletes(ctx context.Context, source *server, owner routing.Owner) ([][]byte, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", source.address())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	lists := make([][]byte, connections)
	r := bufio.NewReaderSize(conn, 1<<20)
	const portion = 1000
	for from := 0; from < p.items; from += portion {
		var request []byte
		var keys [][]byte
		for i := from; i < min(from+portion, p.items); i++ {
			if key := appendKey(nil, i); owner.Owner(key) == 1 {
				keys = append(keys, key)
				request = append(append(append(request, "mg "...), key...), " c\r\n"...)
			}
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		for i, key := range keys {
			line, err := r.ReadString('\n')
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
