// Package forecast computes which items members will hold after a change of the ring, and how many they evict
// for lack of memory. The operator uses it before a scale-down, the plugin for a plan.
package forecast

import (
	"math"
	"strconv"
	"strings"
)

// Holds has a member's contents: its items, their bytes, and the limit of the bytes.
type Holds struct {
	Items int64 `json:"items"`
	Bytes int64 `json:"bytes"`
	Limit int64 `json:"limit,omitempty"`
	// Classes are the size classes of its memory, by the size of their chunks; nil if they are not known.
	Classes map[int64]Class `json:"-"`
}

// Class has the contents of a size class of a member.
type Class struct {
	// PerPage is how many chunks a page has.
	PerPage, Pages int64
	// Chunks are those in use.
	Chunks, Items, Bytes int64
}

// mostClasses is how many size classes a memcached has at most. Any server may listen at a member's address.
const mostClasses = 63

// Classes reads a member's size classes, by the size of their chunks, from its answers to "stats slabs" and "stats items".
// Classes returns nil if there are none, or more than a memcached has.
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
		if len(classes) > mostClasses {
			return nil
		}
	}
	return classes
}

// Share is this part, from 0 to 1, of a member's contents. Pages and limit are not shared.
func (h Holds) Share(part float64) Holds {
	of := func(n int64) int64 { return int64(float64(n)*part + 0.5) }
	shared := Holds{Items: of(h.Items), Bytes: of(h.Bytes)}
	for size, c := range h.Classes {
		if c.Chunks > 0 {
			shared.class(size, Class{PerPage: c.PerPage, Chunks: of(c.Chunks), Items: of(c.Items), Bytes: of(c.Bytes)})
		}
	}
	return shared
}

// Add adds the items of another member. Pages and limit don't change.
func (h *Holds) Add(other Holds) {
	h.Items, h.Bytes = h.Items+other.Items, h.Bytes+other.Bytes
	for size, c := range other.Classes {
		h.class(size, c)
	}
}

func (h *Holds) class(size int64, c Class) {
	if h.Classes == nil {
		h.Classes = map[int64]Class{}
	}
	has := h.Classes[size]
	has.PerPage = c.PerPage
	has.Chunks, has.Items, has.Bytes = has.Chunks+c.Chunks, has.Items+c.Items, has.Bytes+c.Bytes
	h.Classes[size] = has
}
