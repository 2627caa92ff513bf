package main

import (
	"context"
	"runtime/debug"
)

// rebalance measures a placement: a running server has all of the items, and gives half
// of them to another one that starts empty, beside a raw fill of that one with the same
// half. Each item is listed, read, added, and deleted, by servers that share the CPUs,
// so the limit is far.
func (p population) rebalance(ctx context.Context, b *bench) ([]*row, error) {
	what := "half of " + p.String() + " to another"
	limit := &row{what: what, how: "raw fill: the limit"}
	ours := &row{what: what, how: "**drainer rebalance**", limit: limit}
	rows := []*row{limit, ours}
	for range b.rounds {
		if err := p.rebalanceRound(ctx, b, limit, ours); err != nil {
			return rows, err
		}
	}
	b.progressf("%s: %.2f of the limit", what, ours.rate()/limit.rate())
	return rows, nil
}

func (p population) rebalanceRound(ctx context.Context, b *bench, limit, ours *row) error {
	f, err := newFleet(ctx, 3, p.memory())
	if err != nil {
		return err
	}
	defer f.kill()
	source, filled, other := f[0], f[1], f[2]
	owner, err := fleet{source, other}.owner()
	if err != nil {
		return err
	}
	used, err := fill(ctx, fleet{filled}, p.commands(owner, 2)[1:])
	debug.FreeOSMemory()
	if err != nil {
		return err
	}
	half, err := filled.items(ctx)
	if err != nil {
		return err
	}
	limit.items, limit.bytes = half, p.bytes()*int64(half)/int64(p.items)
	ours.items, ours.bytes = limit.items, limit.bytes
	limit.add(used, 0)
	filled.kill()
	if err := p.into(ctx, source); err != nil {
		return err
	}
	debug.FreeOSMemory()
	if used, err = b.receipted(ctx, ours.what, fleet{source, other}, "rebalance", "--source="+source.address(), "--scratch="+b.scratch); err != nil {
		return err
	}
	moved, err := other.items(ctx)
	if err != nil {
		return err
	}
	left, err := source.items(ctx)
	ours.add(used, max(half-moved, p.items-moved-left))
	return err
}
