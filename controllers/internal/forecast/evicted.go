package forecast

// memcached divides its memory into pages, and gives each page to a size class, which cuts it into chunks of one size. An item
// takes a chunk of the smallest class that it fits into. With a file of items, as members have it, each class has a page from
// the start, so that items of one size never get all of the memory: a class evicts when its own pages and the free ones are
// full.
const pageSize = 1 << 20

// Evicted returns the evictions of all members, added up, if each is to hold its items of then in place of
// those of now. limit is the memory that a member will have. A member that joins, or gets another memory,
// begins with new pages (pagesOf). paged: the result is counted in size classes and their pages. If a member
// has not told its size classes, all members are counted in bytes.
func Evicted(now, then []Holds, limit func(member int) int64) (evicted Holds, paged bool) {
	var known map[int64]Class
	paged = true
	for _, has := range now {
		if paged = paged && (has.Bytes == 0 || len(has.Classes) > 0); len(has.Classes) > len(known) {
			known = has.Classes
		}
	}
	for i, h := range then {
		if !paged {
			h.Classes = nil
		}
		pages := pagesOf(known, true)
		if i < len(now) && len(now[i].Classes) > 0 && now[i].Limit/pageSize == limit(i)/pageSize {
			pages = pagesOf(now[i].Classes, false)
		}
		evicted.Add(h.evicted(pages, limit(i)))
	}
	return evicted, paged && known != nil
}

// pagesOf is how many pages each class of a member has: as many as now, or one if the member begins again,
// with the classes of another member.
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

// evicted returns a member's evictions if it should hold h, and its classes begin with these pages. If sizes
// of items are not known, they count as without pages.
func (h Holds) evicted(pages map[int64]int64, limit int64) (evicted Holds) {
	if len(h.Classes) == 0 {
		return h.Share(float64(max(0, h.Bytes-limit)) / float64(max(1, h.Bytes)))
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
		evicted.Add(of.Share(max(0, 1-room/float64(c.Chunks))))
	}
	return evicted
}
