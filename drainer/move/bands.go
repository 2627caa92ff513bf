package move

import (
	"context"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// A survivor that is full evicts what it was given longest ago. So if survivors are
// short of room, items are added in bands by the time of their last access. The least
// recently used come first, so that the most recently used are left. Survivors that
// refuse items when they are full (-M) get the most recently used first. The source is
// read once per band, which bounds the memory.
const (
	bandCount = 8
	// ageStep is how exactly memcached keeps the time of access. Items that were not
	// used for ages steps count as one age.
	ageStep = 60
	ages    = 30 * 24 * 60
	// itemOverhead are an item's bytes besides key and value. Slab classes waste a
	// tenth more.
	itemOverhead = 60
	slack        = 10
)

// band is the items whose age, in steps, is at least from and less than to.
type band struct{ from, to int }

// everything is the one band if there is room.
var everything = []band{{0, ages}}

// clock gives ages as of one moment.
type clock int64

func (c clock) age(it *item.Item) int {
	return int(min(max(0, (int64(c)-it.LastAccess)/ageStep), ages-1))
}

// bands returns those to read the layer in, in their order. A running member is read in
// one: what a pass has found is deleted there, so no pass may be made only to count.
func (e *Engine) bands(ctx context.Context, layer item.Source, now clock) ([]band, error) {
	if _, running := layer.(*runningMember); running || e.roomForAll(layer.Used()) {
		return everything, nil
	}
	demand := make([]int64, len(e.writers))
	byAge := make([]int64, ages)
	for it, err := range layer.Items(ctx) {
		if err != nil {
			return nil, err
		}
		if it.State == item.Live {
			size := int64(it.Size() + itemOverhead)
			demand[e.Owner.Owner(it.Key)] += size
			byAge[now.age(it)] += size
		}
	}
	for i, w := range e.writers {
		if demand[i]+demand[i]/slack > w.Limits().Room {
			return ordered(cut(byAge), e.evict()), nil
		}
	}
	return everything, nil
}

// roomForAll tells whether there is room wherever the items go: no survivor gets more
// than twice its share of the used bytes, which include what slab classes waste.
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

// oldestFirst tells whether the most recently used items of a running member have to come
// last, so that they are left: if others may be short of room, and evict.
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

// cut divides the ages into bands of about the same number of bytes, the most
// recently used first.
func cut(byAge []int64) []band {
	total := int64(0)
	for _, n := range byAge {
		total += n
	}
	var bands []band
	from, sum := 0, int64(0)
	for age, n := range byAge {
		sum += n
		if sum >= total*int64(len(bands)+1)/bandCount && n > 0 && len(bands) < bandCount-1 {
			bands = append(bands, band{from, age + 1})
			from = age + 1
		}
	}
	if from < len(byAge) {
		bands = append(bands, band{from, len(byAge)})
	}
	return bands
}

// ordered reverses the bands if the last ones are those that stay.
func ordered(newestFirst []band, lastStay bool) []band {
	if !lastStay {
		return newestFirst
	}
	oldestFirst := make([]band, 0, len(newestFirst))
	for i := len(newestFirst) - 1; i >= 0; i-- {
		oldestFirst = append(oldestFirst, newestFirst[i])
	}
	return oldestFirst
}

// nowClock is the clock of this moment.
func nowClock() clock { return clock(time.Now().Unix()) }
