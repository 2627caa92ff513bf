package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/internal/harness"
)

// drain measures a drain of the population, to one, three and eight survivors, beside the fill that bounds it
// and the tools that people use.
func (p population) drain(ctx context.Context, b *bench) ([]*row, error) {
	dir, err := p.saved(ctx, b)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	save, err := p.packed(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(save)
	tool, copied, err := p.tools(ctx, b)
	if err != nil {
		return nil, err
	}
	var rows []*row
	for _, survivors := range []int{1, 3, 8} {
		more, err := p.compare(ctx, b, volumes{dir, save}, survivors, tool)
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

// scale is drain without the tools, to one survivor.
func (p population) scale(ctx context.Context, b *bench) ([]*row, error) {
	dir, err := p.saved(ctx, b)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	save, err := p.packed(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(save)
	return p.compare(ctx, b, volumes{dir, save}, 1, nil)
}

// volumes are directories with the same items: a volume of a member of mode Mapped, and one of mode Saved.
type volumes struct{ mapped, saved string }

// packed makes the volume of a member of mode Saved out of one of mode Mapped. The caller removes it.
func (p population) packed(ctx context.Context, b *bench, mapped string) (string, error) {
	dir, err := b.volume(p.String() + " saved")
	if err != nil {
		return "", err
	}
	if err := volume.Pack(ctx, mapped, filepath.Join(dir, contract.SaveFile), 1); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// compare measures, in turn, a fill of so many empty servers, and a drain of each volume into as many.
func (p population) compare(ctx context.Context, b *bench, from volumes, survivors int, tool *row) ([]*row, error) {
	what := fmt.Sprintf("%s to %d", p, survivors)
	limit := &row{what: what, how: "raw fill: the limit", items: p.items, bytes: p.bytes(), tool: tool}
	saved := &row{what: what, how: "**drainer drain**, Saved", items: p.items, bytes: p.bytes(), limit: limit, tool: tool}
	mapped := &row{what: what, how: "drainer drain, Mapped", items: p.items, bytes: p.bytes(), limit: limit, tool: tool}
	rows := []*row{limit, saved, mapped}
	err := harness.InTurn(b.rounds, rows, func(r *row) error {
		switch r {
		case limit:
			return p.fillRound(ctx, r, survivors)
		case saved:
			return p.drainRound(ctx, b, r, from.saved, survivors)
		default:
			return p.drainRound(ctx, b, r, from.mapped, survivors)
		}
	})
	if err != nil {
		return rows, err
	}
	b.progressf("%s: %.2f of the limit, %.2f Mapped", what, saved.rate()/limit.rate(), mapped.rate()/limit.rate())
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
	used, err := fill(ctx, f, p.commands(servers, owner.Owner))
	debug.FreeOSMemory() // the commands took as much memory as the items
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
	used, err := b.receipted(ctx, r.name(), f, "drain", "--dir="+dir)
	if err != nil {
		return err
	}
	items, err := f.items(ctx)
	r.add(used, p.items-items)
	return err
}

// receipted runs a command that moves items among the servers of f, and checks its receipt.
func (b *bench) receipted(ctx context.Context, name string, f fleet, args ...string) (usage, error) {
	receipt := filepath.Join(b.scratch, "receipt-"+strings.ReplaceAll(name, " ", "-")+".json")
	args = append(args, "--client="+client, "--source-id=bench", "--receipt="+receipt)
	for _, s := range f {
		args = append(args, "--server="+s.address())
	}
	cmd, servers := b.drain(ctx, name, args), f.meter()
	used, err := runWatched(cmd)
	if err != nil {
		return used, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	if err := seconds(servers, &used.servers); err != nil {
		return used, err
	}
	var got contract.Receipt
	if data, err := os.ReadFile(receipt); err != nil {
		return used, err
	} else if err := json.Unmarshal(data, &got); err != nil {
		return used, err
	}
	used.phases, used.around = got.Seconds, used.seconds-got.Seconds[contract.PhaseAdding]
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
