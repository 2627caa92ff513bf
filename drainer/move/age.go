package move

import (
	"slices"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// Items are divided into bands by the time of their last access.
//
// A server that is full evicts what it was given longest ago. So if servers are short of room, items
// are added band by band. The least recently used come first, so that the most recently used are
// left. Servers that refuse items when they are full (-M) get the most recently used first. The
// items are read once per band, which bounds the memory.

const (
	// bandCount is how many bands there are at most.
	bandCount = 8
	// step is how exactly memcached keeps the time of access, in seconds. Items that were not
	// used for ages steps count as one age.
	step = 60
	ages = 30 * 24 * 60
)

// ageClock gives ages as of one moment, in Unix seconds.
type ageClock int64

// presentAges is the clock of this moment.
func presentAges() ageClock { return ageClock(time.Now().Unix()) }

// Of an item, in minutes; those of a month and more are one age.
func (c ageClock) Of(it *item.Item) int {
	return int(min(max(0, (int64(c)-it.LastAccess)/step), ages-1))
}

// band is the items whose age is at least From and less than To.
type band struct{ From, To int }

// Has tells whether items of that age are in the band.
func (b band) Has(age int) bool { return age >= b.From && age < b.To }

// everyAge is the one band if there is room.
var everyAge = []band{{0, ages}}

// ageSizes are how many bytes the items of each age have.
type ageSizes []int64

// newAgeSizes has none.
func newAgeSizes() ageSizes { return make(ageSizes, ages) }

// bands of about the same number of bytes: the most recently used items are in the first one, or
// in the last.
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
