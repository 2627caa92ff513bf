// Package warmfile reads the items from the file that memcached maps with -e, without a second memcached or a
// copy, and writes nothing. A Reader reads a file that memcached saved, and a file that a crash has left.
//
// Each item is checked against everything that is known of the layout. A failed check ends the reading with
// an error that names the place; nothing is ever guessed. Package volume decides which file can be trusted.
package warmfile

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// Reader reads one warm file.
type Reader struct {
	file    io.ReaderAt
	size    int64
	image   Image
	clean   bool
	sizes   []int
	now     func() time.Time
	started int64 // the items' times count from it, by the clock now
	done    atomic.Int64
	largest uint8
	// gaps is the file, if parts of it may be missing.
	gaps gaps
	// mapped is the file, once a pass has mapped it.
	mapped *mapped
	// layout guards image.FlagsBytes.
	layout sync.Mutex
	// latest is the result of the latest pass that was not cut short.
	latest seen
	// replayed has a bit for each place, set if its item has been replayed; nil if there are none.
	replayed io.ReaderAt
}

// New returns a reader of file, of size bytes, which was mapped by the memcached that image describes. clean
// means that memcached had saved, and has not touched the file since. Items expire by the clock now.
func New(file io.ReaderAt, size int64, image *Image, clean bool, now func() time.Time) (*Reader, error) {
	sizes, err := image.classes()
	if err != nil {
		return nil, Refuse(ReasonCorrupt, "%v", err)
	}
	if image.ShortPages() {
		return nil, Refuse(ReasonUnknownLayout, "its memcached moved no slab pages and had slots of a whole page (-o no_modern, or no_slab_reassign): the pages have lengths of their own")
	}
	r := &Reader{file: file, size: size, image: *image, clean: clean, sizes: sizes, largest: uint8(len(sizes) - 1),
		now: now, started: image.startedAt(now().Unix())}
	r.gaps, _ = file.(gaps)
	return r, nil
}

// counted is a file that knows the size of its used pages.
type counted interface{ Used() int64 }

// Close closes the file. Items must not be used afterwards.
func (r *Reader) Close() error {
	r.mapped.close()
	r.mapped = nil
	var errs []error
	for _, file := range []io.ReaderAt{r.file, r.replayed} {
		if c, ok := file.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Clean tells whether memcached had saved.
func (r *Reader) Clean() bool { return r.clean }

// Version returns the version of the memcached that wrote the file, "" if it isn't known.
func (r *Reader) Version() string { return r.image.Version }

// Expected returns the number of items in the file, 0 if unknown. The number is exact only if the items were
// counted after a save.
func (r *Reader) Expected() int64 { return r.image.Items }

// Flushed tells whether clients flushed everything while the file was in use. The items of older generations
// were stored before that.
func (r *Reader) Flushed() bool { return r.image.flushed(r.started, r.now().Unix()) }

// Size returns the size of the file, in bytes.
func (r *Reader) Size() int64 { return r.size }

// Used returns the total size of the file's used pages; if they can't be read, of the whole file. Holes don't
// show which pages are used, because memcached touches every page when it starts.
func (r *Reader) Used() int64 {
	if f, ok := r.file.(counted); ok {
		return f.Used()
	}
	used := r.size
	for run, err := range r.Unused() {
		if err != nil {
			return r.size
		}
		used -= run.Length
	}
	return used
}

// Run is a range of the file, in bytes.
type Run struct{ Offset, Length int64 }

// Unused yields the ranges of the file's unused pages. An error is the last thing yielded.
func (r *Reader) Unused() iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		header, page := make([]byte, itemHeader), int64(r.image.SlabPageSize)
		var run Run
		for offset := int64(0); offset < r.size; offset += page {
			if err := ReadFull(r.file, header, offset); err != nil {
				yield(Run{}, err)
				return
			}
			switch {
			case UnusedPage(header) && run.Length > 0:
				run.Length += min(page, r.size-offset)
			case UnusedPage(header):
				run = Run{offset, min(page, r.size-offset)}
			case run.Length > 0:
				if !yield(run, nil) {
					return
				}
				run = Run{}
			}
		}
		if run.Length > 0 {
			yield(run, nil)
		}
	}
}

// Done returns how much of the file has been read, in bytes.
func (r *Reader) Done() int64 { return r.done.Load() }

// Items yields every item of the file, in its order: live, expired and invalidated ones. An item is valid
// until the next one is asked for. An error is the last thing yielded: the items before it are sound, but
// there are more.
func (r *Reader) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		r.share(ctx, newPass(r, 1, false, r.done.Store), yield)
	}
}

// Shares returns n sequences that together yield the same items as Items, each the items of whole pages. All
// sequences belong to one pass, which starts with the first of them and ends when all have ended.
func (r *Reader) Shares(ctx context.Context, n int) []iter.Seq2[*item.Item, error] {
	p := newPass(r, n, true, r.done.Store)
	shares := make([]iter.Seq2[*item.Item, error], n)
	for i := range shares {
		shares[i] = func(yield func(*item.Item, error) bool) { r.share(ctx, p, yield) }
	}
	return shares
}

// share yields the items of a share of the pages.
func (r *Reader) share(ctx context.Context, p *pass, yield func(*item.Item, error) bool) {
	s := scan{Reader: r, yield: yield, flagsBytes: r.knownFlags(),
		findFlags: func() (int, error) { return r.FlagsBytes(ctx) }}
	if p.run(ctx, &s) {
		r.latest = s.seen
	}
}

// Count reads the whole file and returns the number of its items.
func (r *Reader) Count(ctx context.Context) (int64, error) {
	n := int64(0)
	for _, err := range r.Items(ctx) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
