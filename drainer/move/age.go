package move

import (
	"slices"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// Items are divided into bands by the time of their last access.
//
// A full server evicts the items that it was given first. So if servers are short of room, items are added
// band by band. The least recently used band comes first, so that the most recently used items are left.
// Servers that refuse items when they are full (-M) get the most recently used band first. The items are read
// once for each band, which bounds the memory.

const (
	// bandCount is the maximum number of bands.
	bandCount = 8
	// step is the resolution of memcached's time of access, in seconds. Items that were not used for ages
	// steps count as one age.
	step = 60
	ages = 30 * 24 * 60
)

// ageClock computes ages at one moment, in Unix seconds.
type ageClock int64

// presentAges returns the clock of this moment.
func presentAges() ageClock { return ageClock(time.Now().Unix()) }

// Of returns an item's age in minutes; ages of a month and more count as one.
func (c ageClock) Of(it *item.Item) int {
	return int(min(max(0, (int64(c)-it.LastAccess)/step), ages-1))
}

// band has the items whose age is at least From and less than To.
type band struct{ From, To int }

// Has tells whether items of that age are in the band.
func (b band) Has(age int) bool { return age >= b.From && age < b.To }

// everyAge is the only band if there is enough room.
var everyAge = []band{{0, ages}}

// ageSizes has the total size of the items of each age, in bytes.
type ageSizes []int64

// newAgeSizes returns sizes without items.
func newAgeSizes() ageSizes { return make(ageSizes, ages) }

// bands returns bands of about the same number of bytes, with the most recently used items in the first or
// the last one.
func (s ageSizes) bands(oldestFirst bool) []band {
	total := int64(0)
	for _, n := range s {
		total += n
	}
	var bands []band
	from, sum := 0, int64(0)
	for age, n := range s {
		sum += n
		if sum >= total*int64(len(bands)+1)/bandCount && n > 0 && len(bands) < bandCount-1 {
			bands = append(bands, band{from, age + 1})
			from = age + 1
		}
	}
	if from < len(s) {
		bands = append(bands, band{from, len(s)})
	}
	if oldestFirst {
		slices.Reverse(bands)
	}
	return bands
}
