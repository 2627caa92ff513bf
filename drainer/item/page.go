package item

import "sync/atomic"

// Page is memory in which items of a source lie. Whoever needs an item's value for longer than
// the item is valid holds its page.
type Page struct {
	// Data is the page's bytes. The source gives it some when it has taken the page.
	Data []byte

	pages *Pages
	holds atomic.Int32 // the source's own is one of them
	lent  atomic.Bool  // somebody else holds it, or did
}

// Hold keeps the page's bytes as they are until Release. It is only for who has an item of
// the page that is still valid. False: so many pages are held that the source would run out of
// them, and a copy has to do.
func (p *Page) Hold() bool {
	if !p.lent.Load() {
		if p.pages.lent.Add(1) > p.pages.lendable {
			p.pages.lent.Add(-1)
			return false
		}
		if !p.lent.CompareAndSwap(false, true) {
			p.pages.lent.Add(-1) // another worker was faster
		}
	}
	p.holds.Add(1)
	return true
}

// Release undoes one Hold, or the source's own.
func (p *Page) Release() {
	if p.holds.Add(-1) > 0 {
		return
	}
	if p.lent.Swap(false) {
		p.pages.lent.Add(-1)
	}
	p.pages.free <- p
}

// Pages are a fixed number of pages, which bounds the memory of a source.
type Pages struct {
	free     chan *Page
	lent     atomic.Int32
	lendable int32
}

// NewPages returns so many pages, without memory: own for the source, and lendable for others.
func NewPages(own, lendable int) *Pages {
	p := &Pages{free: make(chan *Page, own+lendable), lendable: int32(lendable)}
	for range cap(p.free) {
		p.free <- &Page{pages: p}
	}
	return p
}

// Free is where a source takes a page from. It owns the page, and releases it after its last
// item; see Take.
func (p *Pages) Free() <-chan *Page { return p.free }

// Take makes the source the holder of a page that came from Free.
func (p *Page) Take() *Page {
	p.holds.Store(1)
	return p
}

// Held tells whether somebody else than the source holds the page, or did.
func (p *Page) Held() bool { return p.lent.Load() }
