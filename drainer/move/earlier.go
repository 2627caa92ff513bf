package move

import (
	"hash/maphash"
	"sync"
)

// earlier has, for each moved key, the sum of the value that its owner was given. A client with an old list
// may store the key at the member again. Then the owner's value is not a client's, but the member's earlier
// one.
type earlier struct {
	mu   sync.Mutex
	seed maphash.Seed
	// table has a place for each hash, and a few beside it. If they are taken, the key is not remembered.
	// Usually the most recently used items are moved first.
	table []remembered
}

type remembered struct{ key, sum uint64 }

const (
	// mostEarlier bounds the memory, to 16 MiB.
	mostEarlier = 1 << 20
	placesOfOne = 8
)

// give records that the owners are given the items, and sets the values that they were given before.
func (e *earlier) give(items ...*misplaced) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.table == nil {
		e.table = make([]remembered, mostEarlier+placesOfOne)
	}
	for _, it := range items {
		key := maphash.Bytes(e.seed, it.Key)
		at := key % mostEarlier
		places := e.table[at : at+placesOfOne]
		for i := range places {
			if p := &places[i]; p.key == 0 && p.sum == 0 || p.key == key {
				it.before, p.key, p.sum = p.sum, key, it.sum
				break
			}
		}
	}
}

// sum returns different sums for different values or flags.
func (e *earlier) sum(value []byte, flags uint64) uint64 {
	var h maphash.Hash
	h.SetSeed(e.seed)
	maphash.WriteComparable(&h, flags)
	h.Write(value)
	return h.Sum64()
}
