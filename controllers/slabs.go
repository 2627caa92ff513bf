package controllers

import (
	"math"
	"strconv"
	"strings"
)

// memcached divides its memory into pages, and gives each page to a size class, which cuts it into chunks of one size. An item
// takes a chunk of the smallest class that it fits into. With a file of items, as members have it, each class has a page from
// the start, so that items of one size never get all of the memory: a class evicts when its own pages and the free ones are
// full.
const pageSize = 1 << 20

// Class is what a size class of a member has.
type Class struct {
	// PerPage is how many chunks a page has.
	PerPage, Pages int64
	// Chunks are those in use.
	Chunks, Items, Bytes int64
}

// Classes reads a member's size classes, by the size of their chunks, from its answers to "stats slabs" and "stats items".
// Classes returns nil if there are none.
func Classes(slabs, items map[string]string) map[int64]Class {
	number := func(of map[string]string, name string) int64 {
		n, err := strconv.ParseInt(of[name], 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>16 {
			return 0
		}
		return n
	}
	var classes map[int64]Class
	for name := range slabs {
		class, of := strings.CutSuffix(name, ":chunk_size")
		size, perPage := number(slabs, name), number(slabs, class+":chunks_per_page")
		if !of || size == 0 || perPage == 0 {
			continue
		}
		if classes == nil {
			classes = map[int64]Class{}
		}
		classes[size] = Class{
			PerPage: perPage, Pages: number(slabs, class+":total_pages"), Chunks: number(slabs, class+":used_chunks"),
			Items: number(items, "items:"+class+":number"), Bytes: number(items, "items:"+class+":mem_requested"),
		}
	}
	return classes
}

// pagesOf is how many pages each class of a member has: as many as now, or one if the member begins anew. Then its classes are
// those of another member.
func pagesOf(classes map[int64]Class, anew bool) map[int64]int64 {
	pages := map[int64]int64{}
	for size, c := range classes {
		pages[size] = c.Pages
		if anew {
			pages[size] = 1
		}
	}
	return pages
}

// evicted is what a member evicts of what it should hold, if its classes begin with these pages. If sizes of items are not
// known, they count as without pages.
func (h Holds) evicted(pages map[int64]int64, limit int64) (evicted Holds) {
	if len(h.Classes) == 0 {
		return h.share(float64(max(0, h.Bytes-limit)) / float64(max(1, h.Bytes)))
	}
	free := limit / pageSize
	for _, n := range pages {
		free -= n
	}
	needs, all := map[int64]int64{}, int64(0)
	for size, c := range h.Classes {
		if need := (c.Chunks+c.PerPage-1)/c.PerPage - pages[size]; need > 0 {
			needs[size] = need
			all += need
		}
	}
	for size, need := range needs {
		c := h.Classes[size]
		gets := float64(need) * min(1, float64(max(0, free))/float64(all)) // classes grow side by side
		room := (float64(pages[size]) + gets) * float64(c.PerPage)
		of := Holds{Items: c.Items, Bytes: c.Bytes}
		evicted.add(of.share(max(0, 1-room/float64(c.Chunks))))
	}
	return evicted
}
