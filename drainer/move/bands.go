package move

import (
	"context"

	"example.com/memcached-operator/drainer/item"
)

const (
	// itemOverhead is how many bytes an item takes besides key and value. Slab classes waste another tenth.
	itemOverhead = 60
	slack        = 10
)

// bands returns the bands in which the layer is read, in order. A running member is read in one band: a pass
// deletes there the items that it has found, so no pass may only count.
func (e *Engine) bands(ctx context.Context, layer item.Source, now ageClock) ([]band, error) {
	if _, running := layer.(*runningMember); running || e.roomForAll(layer.Used()) {
		return everyAge, nil
	}
	demand := make([]int64, len(e.writers))
	byAge := newAgeSizes()
	for it, err := range layer.Items(ctx) {
		if err != nil {
			return nil, err
		}
		if it.State == item.Live {
			size := int64(it.Size() + itemOverhead)
			demand[e.Owner.Owner(it.Key)] += size
			byAge[now.Of(it)] += size
		}
	}
	for i, w := range e.writers {
		if demand[i]+demand[i]/slack > w.Limits().Room {
			return byAge.bands(e.evict()), nil
		}
	}
	return everyAge, nil
}

// roomForAll tells whether there is enough room on every survivor, if none gets more than twice its share of
// the used bytes, which include the waste of slab classes.
func (e *Engine) roomForAll(used int64) bool {
	most := used
	if n := int64(len(e.writers)); n > 2 {
		most = 2 * used / n
	}
	for _, w := range e.writers {
		if most > w.Limits().Room {
			return false
		}
	}
	return true
}

// oldestFirst tells whether the most recently used items of a running member have to come last, so that they are
// not evicted by later ones: if owners may be short of room and evict.
func (e *Engine) oldestFirst(l *runningMember) bool {
	if l.leaving != nil {
		return !e.roomForAll(l.leaving.taken) && e.evict()
	}
	used := e.writers[l.self].Limits().Taken
	for i, w := range e.writers {
		if i != l.self && used > w.Limits().Room {
			return e.evict()
		}
	}
	return false
}

// evict tells whether the survivors make room by eviction.
func (e *Engine) evict() bool {
	for _, w := range e.writers {
		if !w.Limits().EvictsToFree {
			return false
		}
	}
	return true
}
