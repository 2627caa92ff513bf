package main

import (
	"context"
	"fmt"
	"strings"

	"example.com/memcached-operator/test/internal/harness"
)

// copiedServers is how many memcacheds are copied, to as many others.
const copiedServers = 3

// copy measures a pass of a copy from running memcacheds, which list their items. The limit is a fill of the same
// servers.
func (p population) copy(ctx context.Context, b *bench) ([]*row, error) {
	what := fmt.Sprintf("%s, a copy to %d", p, copiedServers)
	limit := &row{what: what, how: "fill: the limit", items: p.items, bytes: p.bytes()}
	copied := &row{what: what, how: "**drainer copy**, listed", items: p.items, bytes: p.bytes(), limit: limit}
	rows := []*row{limit, copied}
	err := harness.InTurn(b.rounds, rows, func(r *row) error {
		if r == limit {
			return p.fillRound(ctx, r, copiedServers)
		}
		return p.copyRound(ctx, b, r)
	})
	if err != nil {
		return rows, err
	}
	b.progressf("%s: %.2f of the limit", what, copied.rate()/limit.rate())
	return rows, nil
}

func (p population) copyRound(ctx context.Context, b *bench, r *row) error {
	from, err := newFleet(ctx, copiedServers, p.memory())
	if err != nil {
		return err
	}
	defer from.kill()
	owner, err := from.owner()
	if err != nil {
		return err
	}
	if _, err := fill(ctx, from, p.commands(copiedServers, owner.Owner)); err != nil {
		return err
	}
	to, err := newFleet(ctx, copiedServers, p.memory())
	if err != nil {
		return err
	}
	defer to.kill()
	var addresses []string
	for _, s := range from {
		addresses = append(addresses, s.address())
	}
	used, err := b.receipted(ctx, r.name(), to, "copy", "--passes=1", "--scratch="+b.scratch, "--from=memcached:"+strings.Join(addresses, ","))
	if err != nil {
		return err
	}
	items, err := to.items(ctx)
	r.add(used, p.items-items)
	return err
}
