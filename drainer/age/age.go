// Package age divides items into bands by the time of their last access.
//
// A server that is full evicts what it was given longest ago. So if servers are short of room, items
// are added band by band. The least recently used come first, so that the most recently used are
// left. Servers that refuse items when they are full (-M) get the most recently used first. The
// items are read once per band, which bounds the memory.
package age

import (
	"slices"
	"time"

	"example.com/memcached-operator/drainer/item"
)

const (
	// bandCount is how many bands there are at most.
	bandCount = 8
	// step is how exactly memcached keeps the time of access, in seconds. Items that were not
	// used for ages steps count as one age.
	step = 60
	ages = 30 * 24 * 60
)

// Clock gives ages as of one moment, in Unix seconds.
type Clock int64

// Now is the clock of this moment.
func Now() Clock { return Clock(time.Now().Unix()) }

// Of an item, in minutes; those of a month and more are one age.
func (c Clock) Of(it *item.Item) int {
	return int(min(max(0, (int64(c)-it.LastAccess)/step), ages-1))
}

// Band is the items whose age is at least From and less than To.
type Band struct{ From, To int }

// Has tells whether items of that age are in the band.
func (b Band) Has(age int) bool { return age >= b.From && age < b.To }

// Everything is the one band if there is room.
var Everything = []Band{{0, ages}}

// Sizes is how many bytes the items of each age have.
type Sizes []int64

// NewSizes has none.
func NewSizes() Sizes { return make(Sizes, ages) }

// Bands of about the same number of bytes: the most recently used items are in the first one, or
// in the last.
func (s Sizes) Bands(oldestFirst bool) []Band {
	total := int64(0)
	for _, n := range s {
		total += n
	}
	var bands []Band
	from, sum := 0, int64(0)
	for age, n := range s {
		sum += n
		if sum >= total*int64(len(bands)+1)/bandCount && n > 0 && len(bands) < bandCount-1 {
			bands = append(bands, Band{from, age + 1})
			from = age + 1
		}
	}
	if from < len(s) {
		bands = append(bands, Band{from, len(s)})
	}
	if oldestFirst {
		slices.Reverse(bands)
	}
	return bands
}
