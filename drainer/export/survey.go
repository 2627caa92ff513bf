package export

import (
	"context"
	"math"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// The most recently used items come first, as in a drain: the file is read once for each of a few bands of
// the last access. memcached keeps last accesses with a resolution of a minute.
const (
	bands     = 8
	ageStep   = 60
	ages      = 30 * 24 * 60
	surveyOne = 64 // the owner is computed for one of so many items
)

// survey is the result of a pass over all headers.
type survey struct {
	// expected is roughly how many items others own.
	expected int64
	// order is the order of the bands.
	order []Band
	// pages has, for each page, the first and the last access of its items.
	pages []Band
}

// Survey looks at all pages, until ctx ends. now is in seconds of memcached's own clock.
func (r *Reader) Survey(ctx context.Context, now uint32, elsewhere func(key []byte) bool) (s survey, err error) {
	defer item.Faults(&err)()
	byAge := make([]int64, ages)
	s.pages = make([]Band, r.Pages())
	items, sampled, elsewheres := int64(0), int64(0), int64(0)
	for page := range s.pages {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		s.pages[page] = Band{math.MaxUint32, 0}
		mem, class, _ := r.used(page)
		if class == 0 {
			s.pages[page] = Band{0, math.MaxUint32} // it may be in use later
			continue
		}
		size := r.live.Size(class)
		for at := 0; at+size <= len(mem); at += size {
			slot := mem[at : at+size : at+size]
			if !warmfile.Linked(word(slot, warmfile.WordState)) {
				continue
			}
			accessed := uint32(word(slot, warmfile.WordTimes))
			p := &s.pages[page]
			p.From, p.To = min(p.From, accessed), max(p.To, accessed)
			byAge[ageOf(now, accessed)] += int64(size)
			if items++; items%surveyOne != 0 {
				continue
			}
			h := head(slot)
			if end := warmfile.HeadBytes + h.KeyLength(); h.KeyLength() > 0 && end <= size {
				sampled++
				if elsewhere(slot[warmfile.HeadBytes:end]) {
					elsewheres++
				}
			}
		}
		if p := &s.pages[page]; p.From > p.To {
			*p = Band{now, math.MaxUint32} // it may get items later
		}
	}
	s.order = cut(byAge, now)
	s.expected = int64(float64(items) * float64(elsewheres) / float64(max(1, sampled)))
	return s, nil
}

func ageOf(now, accessed uint32) int {
	if accessed >= now {
		return 0
	}
	return int(min((now-accessed)/ageStep, ages-1))
}

// cut divides the items into bands of about the same number of bytes, the most recently used first. cut
// omits bands without items.
func cut(byAge []int64, now uint32) []Band {
	total := int64(0)
	for _, n := range byAge {
		total += n
	}
	order, sum, to := []Band(nil), int64(0), uint32(math.MaxUint32)
	for age, n := range byAge {
		sum += n
		if n == 0 || sum == total || sum < total*int64(len(order)+1)/bands || len(order) == bands-1 {
			continue
		}
		older := uint32(age+1) * ageStep // the minimum age of the next step's items
		if older > now {
			break
		}
		from := now - older + 1
		order, to = append(order, Band{from, to}), from
	}
	return append(order, Band{0, to})
}

// everything is the band of all items.
var everything = Band{0, math.MaxUint32}

// overlaps tells whether a page that had items with those last accesses may have items of the band.
func (b Band) overlaps(page Band) bool { return page.From < b.To && page.To >= b.From }
