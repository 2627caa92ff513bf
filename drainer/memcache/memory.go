package memcache

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/pace"
)

// A meta add that finds no memory deletes the present value, which may be newer than the item. A classic add
// leaves that value, but costs an answer. So meta adds are only for servers that have memory left which no
// slab class has taken, because then no add is refused. If a classic add finds no memory either (-M), its item
// counts as rejected, and the drain or move fails with ItemsRejected.
//
// Only a meta add carries a Mark. So items that have one are meta adds where memory is short, too, if the server
// evicts: then it refuses one only if the few items that it looks at for eviction are in use at that moment. A copy has
// looked at the owner just before, so that at most a value that a client stored in between is lost, as if it was evicted.
// Without its Mark, an item would be an old value that no later pass replaces or deletes.
const (
	// freeEnough is more than clients and this Writer use up between two looks: a page for each class, and
	// what a fast network brings.
	freeEnough     = 64 << 20
	memoryInterval = 100 * time.Millisecond
)

// freeMemory returns how many of most bytes no slab class has.
func (c *Conn) freeMemory(most int64, stats map[string]string) (int64, error) {
	const page = 1 << 20
	slabs, err := c.Stats("slabs")
	if err != nil {
		return 0, err
	}
	taken, err := strconv.ParseInt(slabs["total_malloced"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w to stats slabs: total_malloced=%q", ErrProtocol, slabs["total_malloced"])
	}
	pool, _ := strconv.ParseInt(stats["slab_global_page_pool"], 10, 64)
	if active := slabs["active_slabs"]; taken == 0 && active != "" && active != "0" {
		taken = most // after a warm restart it doesn't count the restored memory
	}
	return max(0, most-taken) + pool*page, nil
}

// watchMemory makes the Writer careful when the server has little memory left, or can't be asked.
func (w *Writer) watchMemory() {
	if w.careful.Load() {
		return
	}
	conn, err := w.options.Dialer.Dial(w.ctx, w.options.Address)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(w.ctx, func() { conn.Close() })()
	}
	for err == nil {
		var free int64
		if free, err = conn.free(time.Now().Add(w.options.UnreachableTimeout)); err != nil || free < freeEnough {
			break
		}
		if pace.Sleep(w.ctx, memoryInterval) != nil {
			return
		}
	}
	w.careful.Store(true)
}

func (c *Conn) free(deadline time.Time) (int64, error) {
	if err := c.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stats, err := c.Stats("")
	if err != nil {
		return 0, err
	}
	most, err := strconv.ParseInt(stats["limit_maxbytes"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w to stats: limit_maxbytes=%q", ErrProtocol, stats["limit_maxbytes"])
	}
	return c.freeMemory(most, stats)
}
