package warmfile

import (
	"context"
	"slices"
	"sync"
)

// pass is one pass over all pages of the file, by one goroutine or several.
type pass struct {
	*Reader
	// shared means that the order of the pages doesn't matter, and that they are read in the page cache if
	// possible.
	shared bool
	// read is called with how many bytes of the file have been read.
	read    func(int64)
	start   sync.Once
	fetcher *fetcher
	ctx     context.Context
	cancel  context.CancelFunc

	mu sync.Mutex
	// left is how many goroutines have not ended. sum is what the others have seen; failed means that one of them
	// has ended early.
	left   int
	sum    seen
	failed bool
}

func newPass(r *Reader, goroutines int, shared bool, read func(int64)) *pass {
	return &pass{Reader: r, shared: shared, read: read, left: goroutines}
}

// run reads a share of the pages into s. The last goroutine gets the sums of all in its s, which then yields
// the items that had to wait. run returns true in that goroutine, if no other one has ended early.
func (p *pass) run(ctx context.Context, s *scan) (all bool) {
	p.start.Do(func() {
		p.ctx, p.cancel = context.WithCancel(ctx)
		if p.shared && p.mapped == nil {
			p.mapped = mapFile(p.file, p.size, int64(p.image.SlabPageSize))
		}
		p.fetcher = newFetcher(p.file, p.size, p.image.SlabPageSize)
		if _, ok := p.file.(paged); ok && p.shared {
			p.fetcher.readers = readersPastCache
		}
		if p.shared {
			p.fetcher.mapped = p.mapped
		}
		go p.fetcher.run(p.ctx)
	})
	sound := p.pages(s)
	p.mu.Lock()
	p.left--
	last := p.left == 0
	p.failed = p.failed || !sound
	p.sum.add(&s.seen)
	s.seen = p.sum
	failed := p.failed
	p.mu.Unlock()
	if !sound || last {
		defer p.cancel()
	}
	if !last || failed {
		return false
	}
	s.scanned = nil
	if s.finish() {
		p.read(p.size)
	}
	return true
}

// pages reads pages into s until there are no more, and returns false after an error, or if the consumer wants no
// more.
func (p *pass) pages(s *scan) bool {
	for page := range p.fetcher.pages {
		if page.err != nil {
			s.yield(nil, page.err)
			return false
		}
		s.scanned = page.Page
		if !s.page(page.offset, page.Data) {
			return false
		}
		page.Release()
		p.read(page.offset + int64(p.image.SlabPageSize))
	}
	if err := p.ctx.Err(); err != nil {
		s.yield(nil, err)
		return false
	}
	return true
}

// seen has the counts of one or more goroutines.
type seen struct {
	linked  int64
	leftOut int64
	// chained is the total size of the chunks that chains led to, in bytes.
	chained   int64
	usedPages int64
	slots     int64
	// flagged tells whether any item has client flags.
	flagged bool
	// moving is described in moving.go.
	moving movingChunks
}

func (s *seen) add(o *seen) {
	s.linked += o.linked
	s.leftOut += o.leftOut
	s.chained += o.chained
	s.usedPages += o.usedPages
	s.slots += o.slots
	s.flagged = s.flagged || o.flagged
	s.moving.add(&o.moving)
}

func (m *movingChunks) add(o *movingChunks) {
	m.busy = append(m.busy, o.busy...)
	slices.Sort(m.busy)
	for address, offset := range o.displaced {
		if m.displaced == nil {
			m.displaced = map[uint64]int64{}
		}
		m.displaced[address] = offset
	}
}
