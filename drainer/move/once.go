package move

import "hash/maphash"

// once tells which keys a pass has had already. A client may store an item again during the pass, so that the
// pass finds both copies. If both were moved at the same time, the move of one copy would not find the item
// at the member any more: the move of the other copy has deleted it, once its owner had it. The missing copy
// would look deleted by a client. So the second copy waits for the next pass.
//
// once is a Bloom filter whose bits for a key are all in one word (Putze, Sanders, Singler: Cache-, Hash- and
// Space-Efficient Bloom Filters, 2007). A key that is mistaken for another also waits for the next pass,
// which has another seed.
type once struct {
	seed  maphash.Seed
	words []uint64
}

const (
	// keysOfAWord gives a key a chance of about one in a thousand to be mistaken for another.
	keysOfAWord = 2
	// leastWords and mostWords bound the memory, from 32 KiB to 32 MiB.
	leastWords, mostWords = 1 << 12, 1 << 22
)

// Begin begins a pass of about that many keys.
func (o *once) Begin(keys int64) {
	words := leastWords
	for int64(words) < keys/keysOfAWord && words < mostWords {
		words *= 2
	}
	if len(o.words) < words {
		o.words = make([]uint64, words)
	} else {
		clear(o.words)
	}
	o.seed = maphash.MakeSeed()
}

// Overfull tells whether so many keys are more than the memory is for: of the others, about one in a hundred, or more, is
// mistaken for one of them.
func (o *once) Overfull(keys int64) bool {
	const most = 5
	return keys > most*int64(len(o.words))
}

// Has tells whether Had was called with the key.
func (o *once) Has(key []byte) bool {
	word, bits := o.at(key)
	return *word&bits == bits
}

// at returns the key's word, and its bits there.
func (o *once) at(key []byte) (word *uint64, bits uint64) {
	h := maphash.Bytes(o.seed, key)
	bits = uint64(1)<<(h&63) | 1<<(h>>6&63) | 1<<(h>>12&63) | 1<<(h>>18&63)
	return &o.words[h>>24%uint64(len(o.words))], bits
}

// Had records the key, and tells whether the pass has had it before.
func (o *once) Had(key []byte) bool {
	word, bits := o.at(key)
	before := *word
	*word |= bits
	return before&bits == bits
}
