package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"

	"example.com/memcached-operator/drainer/contract"
)

// migrate measures a drain of the population, to one survivor and to three,
// beside the fill that bounds it and the tools that people use.
func (p population) migrate(ctx context.Context, b *bench) ([]*row, error) {
	dir, err := p.saved(ctx, b)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tool, copied, err := p.tools(ctx, b)
	if err != nil {
		return nil, err
	}
	var rows []*row
	for _, survivors := range []int{1, 3} {
		more, err := p.compare(ctx, b, dir, survivors, tool)
		rows = append(rows, more...)
		if survivors == 1 {
			tool.limit, copied.limit, copied.tool = more[0], more[0], tool
			rows = append(rows, tool, copied)
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// scale is migrate without the tools, to one survivor.
func (p population) scale(ctx context.Context, b *bench) ([]*row, error) {
	dir, err := p.saved(ctx, b)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return p.compare(ctx, b, dir, 1, nil)
}

// compare fills, and drains dir into, as many servers that start empty, in
// turn.
func (p population) compare(ctx context.Context, b *bench, dir string, survivors int, tool *row) ([]*row, error) {
	what := fmt.Sprintf("%s to %d", p, survivors)
	limit := &row{what: what, how: "raw fill: the limit", items: p.items, bytes: p.bytes(), tool: tool}
	ours := &row{what: what, how: "**drainer migrate**", items: p.items, bytes: p.bytes(), limit: limit, tool: tool}
	rows := []*row{limit, ours}
	for range b.rounds {
		if err := p.fillRound(ctx, limit, survivors); err != nil {
			return rows, err
		}
		if err := p.drainRound(ctx, b, ours, dir, survivors); err != nil {
			return rows, err
		}
	}
	b.progressf("%s: %.2f of the limit", what, ours.rate()/limit.rate())
	return rows, nil
}

func (p population) fillRound(ctx context.Context, r *row, servers int) error {
	f, err := newFleet(ctx, servers, p.memory())
	if err != nil {
		return err
	}
	defer f.kill()
	owner, err := f.owner()
	if err != nil {
		return err
	}
	used, err := fill(ctx, f, p.commands(owner, servers))
	debug.FreeOSMemory() // the commands: as much as the items
	if err != nil {
		return err
	}
	items, err := f.items(ctx)
	r.add(used, p.items-items)
	return err
}

func (p population) drainRound(ctx context.Context, b *bench, r *row, dir string, survivors int) error {
	f, err := newFleet(ctx, survivors, p.memory())
	if err != nil {
		return err
	}
	defer f.kill()
	used, err := b.receipted(ctx, r.what, f, "migrate", "--dir="+dir)
	if err != nil {
		return err
	}
	items, err := f.items(ctx)
	r.add(used, p.items-items)
	return err
}

// receipted runs a command that moves items among the servers of f, and looks at its
// receipt.
func (b *bench) receipted(ctx context.Context, name string, f fleet, args ...string) (usage, error) {
	receipt := filepath.Join(b.scratch, "receipt.json")
	args = append(args, "--client="+client, "--source-id=bench", "--receipt="+receipt)
	for _, s := range f {
		args = append(args, "--server="+s.address())
	}
	cmd, before, supervisors := b.drain(ctx, name, args), f.cpu(), f.supervisorsCPU()
	used, err := runWatched(cmd)
	if err != nil {
		return used, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	used.servers = f.cpu() - before
	used.cpu += f.supervisorsCPU() - supervisors
	var got contract.Receipt
	if data, err := os.ReadFile(receipt); err != nil {
		return used, err
	} else if err := json.Unmarshal(data, &got); err != nil {
		return used, err
	}
	return used, got.AddsUp("bench")
}

// drain is the drainer's command, or, for a profile, the same in a child of
// this program.
func (b *bench) drain(ctx context.Context, name string, args []string) *exec.Cmd {
	if b.profile == "" {
		return exec.CommandContext(ctx, b.drainer, args...)
	}
	return b.profiled(ctx, name, append([]string{"drain"}, args...))
}
