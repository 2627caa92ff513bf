package warmfile

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"example.com/memcached-operator/drainer/linux"

	"example.com/memcached-operator/drainer/item"
)

const (
	// pagesAhead is how many pages wait for the parser. The kernel reads ahead for a sequential reader, as far as
	// the disk's read_ahead_kb allows. FADV_WILLNEED disturbs the kernel: it more than halved the rate of a local
	// disk.
	pagesAhead = 4
	// probeBytes is how much of a page shows whether the page is used.
	probeBytes = 4 << 10
	// readersPastCache is how many goroutines read whole pages past the page cache, where the kernel doesn't
	// read ahead.
	readersPastCache = 3
	// pagesLent is how many more pages may wait until their values have been sent.
	pagesLent = 8
)

// page is one slab page of the file.
type page struct {
	*item.Page
	offset int64
	err    error
}

// paged is a file that knows which of its pages are used, and reads whole pages. ReadPage returns false for a page
// that is not used, or is missing.
type paged interface {
	ReadPage(b []byte, offset int64) (used bool, err error)
}

// fetcher reads the file's pages in its own goroutines, and in order if there is only one. fetcher recognises
// unused pages by their first block, and neither reads the rest of these nor hands them over.
type fetcher struct {
	file io.ReaderAt
	// mapped is nil if pages are read. mappings are the offsets of the mapped pages, and first is the first
	// block of one.
	mapped   *mapped
	mappings map[*item.Page]int64
	first    []byte
	size     int64
	pageSize int
	pages    chan page
	free     *item.Pages
	// readers is how many goroutines fetch, and next the first offset that none has fetched yet.
	readers int
	next    atomic.Int64
}

func newFetcher(file io.ReaderAt, size int64, pageSize int) *fetcher {
	return &fetcher{file: file, size: size, pageSize: pageSize, mappings: map[*item.Page]int64{},
		first: make([]byte, min(probeBytes, pageSize)), pages: make(chan page, pagesAhead),
		free: item.NewPages(pagesAhead+readersPastCache, pagesLent), readers: 1}
}

// Block is the unit of buffers, offsets and lengths where a file is read or written past the page cache.
const Block = 4 << 10

// Aligned returns a buffer of n bytes that begins at a multiple of Block.
func Aligned(n int64) []byte {
	b := make([]byte, n+Block)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (Block - 1)
	return b[skip : int64(skip)+n : int64(skip)+n]
}

// run fetches until the end of the file, an error, or the end of ctx.
func (f *fetcher) run(ctx context.Context) {
	defer close(f.pages)
	f.advise(0, 0, linux.Sequential)
	var reading sync.WaitGroup
	for range f.readers {
		reading.Go(func() { f.fetchAll(ctx) })
	}
	reading.Wait()
}

func (f *fetcher) fetchAll(ctx context.Context) {
	step := int64(f.pageSize)
	for offset := f.next.Add(step) - step; offset < f.size; offset = f.next.Add(step) - step {
		var p *item.Page
		select {
		case p = <-f.free.Free():
		case <-ctx.Done():
			return
		}
		used, err := f.fetch(p.Take(), offset)
		if err == nil && !used {
			p.Release()
			continue
		}
		select {
		case f.pages <- page{p, offset, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// advise tells the kernel of the next reads. A failure only affects the speed.
func (f *fetcher) advise(offset, length int64, advice int) {
	if file, ok := f.file.(*os.File); ok {
		_ = linux.Advise(file, offset, length, advice)
	}
}

// fetch reads the page at an offset into p.
func (f *fetcher) fetch(p *item.Page, offset int64) (used bool, err error) {
	if f.mapped != nil {
		return f.fetchMapped(p, offset)
	}
	if p.Data == nil {
		p.Data = Aligned(int64(f.pageSize))
	}
	if file, ok := f.file.(paged); ok {
		used, err := file.ReadPage(p.Data, offset)
		return used && !UnusedPage(p.Data), err
	}
	probe := min(probeBytes, len(p.Data))
	if err := ReadFull(f.file, p.Data[:probe], offset); err != nil {
		return false, err
	}
	if UnusedPage(p.Data) {
		return false, nil
	}
	return true, ReadFull(f.file, p.Data[probe:], offset+int64(probe))
}

// fetchMapped is fetch for a mapped file.
func (f *fetcher) fetchMapped(p *item.Page, offset int64) (used bool, err error) {
	if before, ok := f.mappings[p]; ok {
		f.mapped.drop(before)
		delete(f.mappings, p)
	}
	if err := ReadFull(f.file, f.first, offset); err != nil || UnusedPage(f.first) {
		return false, err
	}
	if p.Data = f.mapped.at(offset); p.Data != nil {
		f.mappings[p] = offset
		return true, nil
	}
	p.Data = make([]byte, f.pageSize)
	return true, ReadFull(f.file, p.Data, offset) // the read returns the error
}

// ReadFull reads all of buf or fails. The end of the file is a refusal, because the size was checked when the
// file was opened.
func ReadFull(file io.ReaderAt, buf []byte, offset int64) error {
	n, err := file.ReadAt(buf, offset)
	if n == len(buf) {
		return nil
	}
	if err == io.EOF {
		return &Error{Reason: ReasonTruncated, Offset: offset, Expected: fmt.Sprintf("%d bytes, the file ends after %d", len(buf), n)}
	}
	return fmt.Errorf("read the warm file at offset %d: %w", offset, err)
}
