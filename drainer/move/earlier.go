package move

import (
	"hash/maphash"
	"sync"
)

// earlier has what was moved: of each key, the sum of the value that its owner was given. A
// client with an old list may store the key at the member again. Then the owner's value is not a
// client's, but the member's earlier one.
type earlier struct {
	mu   sync.Mutex
	sums map[uint64]uint64 // by the key's hash
}

// mostEarlier bounds the memory, to about 20 MiB. As a rule those that were used most recently
// are moved first. An owner keeps what it has of the others.
const mostEarlier = 900_000

// given is the sum of the value that the key's owner was given, 0 none. From now on it is that.
func (e *earlier) given(key, sum uint64) (before uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, known := e.sums[key]
	if e.sums == nil {
		e.sums = map[uint64]uint64{}
	}
	if known || len(e.sums) < mostEarlier {
		e.sums[key] = sum
	}
	return before
}

// give notes that the owner of an item is given it, and what it was given before.
func (l *runningMember) give(it *misplaced) {
	it.before = l.given(maphash.Bytes(l.seed, it.Key), it.sum)
}
