package warmfile

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Read-ahead: pages that wait for the parser. The kernel fetches what comes after them,
// for a sequential reader as far as the disk's read_ahead_kb says. FADV_WILLNEED
// disturbs that: it more than halved the rate of a local disk.
const (
	pagesAhead = 4
	probeBytes = 4 << 10
)

// page is one slab page of the file.
type page struct {
	offset int64
	data   []byte
	err    error
}

// fetcher reads the file's pages in order, in its own goroutine. Unused pages
// are recognised by their first block and not read further, nor handed over.
type fetcher struct {
	file     io.ReaderAt
	size     int64
	pageSize int
	pages    chan page
	free     chan []byte
}

func newFetcher(file io.ReaderAt, size int64, pageSize int) *fetcher {
	f := &fetcher{file: file, size: size, pageSize: pageSize,
		pages: make(chan page, pagesAhead), free: make(chan []byte, pagesAhead+2)}
	for range cap(f.free) {
		f.free <- make([]byte, pageSize)
	}
	return f
}

// run fetches until the end of the file, an error, or the end of ctx.
func (f *fetcher) run(ctx context.Context) {
	defer close(f.pages)
	f.advise(0, 0, unix.FADV_SEQUENTIAL)
	for offset := int64(0); offset < f.size; offset += int64(f.pageSize) {
		var buf []byte
		select {
		case buf = <-f.free:
		case <-ctx.Done():
			return
		}
		used, err := f.fetch(buf, offset)
		if err == nil && !used {
			f.free <- buf
			continue
		}
		select {
		case f.pages <- page{offset, buf, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// advise tells the kernel what will be read. It is only advice: a failure changes
// nothing but the speed.
func (f *fetcher) advise(offset, length int64, advice int) {
	if file, ok := f.file.(*os.File); ok {
		_ = unix.Fadvise(int(file.Fd()), offset, length, advice)
	}
}

func (f *fetcher) fetch(buf []byte, offset int64) (used bool, err error) {
	probe := min(probeBytes, len(buf))
	if err := ReadFull(f.file, buf[:probe], offset); err != nil {
		return false, err
	}
	if UnusedPage(buf) {
		return false, nil
	}
	return true, ReadFull(f.file, buf[probe:], offset+int64(probe))
}

// ReadFull reads all of buf or fails; the file's end is a refusal, since the
// size was checked when the file was opened.
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
