package item

import "sync/atomic"

// Page is memory with items of a source. A consumer that needs an item's value for longer than the item is
// valid holds its page.
type Page struct {
	// Data are the page's bytes. The source allocates them when it has taken the page.
	Data []byte

	pages *Pages
	holds atomic.Int32 // includes the source's own hold
	lent  atomic.Bool  // a consumer holds it, or did
}

// Hold keeps the page's bytes unchanged until Release. The caller must have an item of the page that is still
// valid. Hold returns false if so many pages are held that the source would run out of them; then the caller
// has to copy.
func (p *Page) Hold() bool {
	if !p.lent.Load() {
		if p.pages.lent.Add(1) > p.pages.lendable {
			p.pages.lent.Add(-1)
			return false
		}
		if !p.lent.CompareAndSwap(false, true) {
			p.pages.lent.Add(-1) // another goroutine was faster
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

// Pages is a fixed number of pages, which bounds the memory of a source.
type Pages struct {
	free     chan *Page
	lent     atomic.Int32
	lendable int32
}

// NewPages returns pages without memory: own for the source, and lendable for consumers.
func NewPages(own, lendable int) *Pages {
	p := &Pages{free: make(chan *Page, own+lendable), lendable: int32(lendable)}
	for range cap(p.free) {
		p.free <- &Page{pages: p}
	}
	return p
}

// Free returns the channel from which a source takes a page. The source owns the page, and releases it after
// its last item; see Take.
func (p *Pages) Free() <-chan *Page { return p.free }

// Take makes the source the holder of a page that came from Free.
func (p *Page) Take() *Page {
	p.holds.Store(1)
	return p
}

// Held tells whether a consumer holds the page, or did.
func (p *Page) Held() bool { return p.lent.Load() }
