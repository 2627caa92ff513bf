package snapshot

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/warmfile"
)

const (
	// workers is how many goroutines copy pages in parallel, to keep the disk busy while pages are read and
	// checked. Each has one page in memory.
	workers = 4
	// progressEvery is how often Options.Progress is called.
	progressEvery = time.Second
)

// Survey finds the used pages of a warm file that no memcached maps any more, and returns the header of a
// save with that number.
func Survey(in *os.File, number int64) (*Header, error) {
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	h := &Header{Number: number, Made: time.Now().UTC().Truncate(time.Second), Nonce: rand.Uint64(), Size: info.Size(), PageSize: warmfile.SlabPageSize}
	h.PageBits = make([]byte, (h.Size/int64(h.PageSize)+7)/8)
	if err := h.check(); err != nil {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "no save can be made of the warm file: %v", err)
	}
	slot := make([]byte, warmfile.PageHeader)
	for page := range h.pages() {
		if err := warmfile.ReadFull(in, slot, int64(page)*int64(h.PageSize)); err != nil {
			return nil, err
		}
		if !warmfile.UnusedPage(slot) {
			h.PageBits[page/8] |= 1 << (page % 8)
		}
	}
	return h, nil
}

// SaveBytes returns the size of the save on the disk, in bytes.
func (h *Header) SaveBytes() (int64, error) {
	b, sum, err := h.encode()
	return newLayout(h, sum, int64(len(b))).size(), err
}

// Options of Write; the zero value is valid.
type Options struct {
	// Order has the numbers of all used pages in the order in which they are written; nil is the file's
	// order.
	Order []int32
	// Count returns how many items begin in a page; false if that is unknown. Several workers call it.
	Count func(page []byte) (int64, bool)
	// MakeRoom is called when the disk is full, by one goroutine at a time. MakeRoom returns false if it could free
	// no room.
	MakeRoom func() (bool, error)
	// Progress is called once a second, by one goroutine, with the number of bytes that are written and of
	// all bytes.
	Progress func(done, all int64)
}

// Written is the result of a save.
type Written struct {
	// Items is the number of items in the save, if Counted.
	Items   int64
	Counted bool
	Bytes   int64
	Took    time.Duration
}

// Rate returns the bytes per second.
func (w *Written) Rate() int64 { return rate(w.Bytes, uint64(max(1, w.Took.Milliseconds()))) }

// Write saves the warm file in to path. The save is on the disk when Write returns. After an error, or if the
// process is killed, path has a save that was cut short.
func Write(ctx context.Context, in io.ReaderAt, path string, h *Header, o Options) (*Written, error) {
	began := time.Now()
	header, sum, err := h.encode()
	if err != nil {
		return nil, err
	}
	out, err := openDirect(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, err
	}
	w := &writer{layout: newLayout(h, sum, int64(len(header))), Options: o, in: in, out: out, began: began}
	if w.Order == nil {
		w.Order = h.UsedPages()
	}
	err = w.write(ctx, header)
	if err == nil {
		err = out.Sync()
	}
	if out.cached.Load() {
		_ = linux.Advise(out.File, 0, 0, linux.DontNeed)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	items, counted := (&index{layout: w.layout, entries: w.entries}).items()
	return &Written{Items: items, Counted: counted, Bytes: w.size(), Took: time.Since(began)}, nil
}

type writer struct {
	layout
	Options
	in      io.ReaderAt
	out     *direct
	began   time.Time
	entries []entry
	done    atomic.Int64 // bytes
	// room is held while room is made; rooms counts how often that was done.
	room  sync.Mutex
	rooms atomic.Int64
}

// IsFull tells whether an error says that the disk, or a quota, is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// insist repeats do while the disk is full and room can be made.
func (w *writer) insist(do func() error) error {
	for {
		before := w.rooms.Load()
		err := do()
		if !IsFull(err) || w.MakeRoom == nil {
			return err
		}
		if more, roomErr := w.makeRoom(before); roomErr != nil || !more {
			return errors.Join(err, roomErr)
		}
	}
}

// makeRoom frees room, unless another worker has done so since the count was before.
func (w *writer) makeRoom(before int64) (bool, error) {
	w.room.Lock()
	defer w.room.Unlock()
	if w.rooms.Load() != before {
		return true, nil
	}
	defer w.rooms.Add(1) // at the end: a worker that finds the disk full meanwhile has to try again, too
	return w.MakeRoom()
}

// put writes b at an offset.
func (w *writer) put(b []byte, offset int64) error {
	return w.insist(func() error {
		_, err := w.out.WriteAt(b, offset)
		return err
	})
}

func (w *writer) write(ctx context.Context, header []byte) error {
	if err := w.insist(func() error { return allocate(w.out.File, w.size()) }); err != nil {
		return err
	}
	if err := w.put(alignedCopy(header), 0); err != nil {
		return err
	}
	// From now on, each page that is on the disk can be found, even if the process or the node dies.
	if err := linux.SyncData(w.out.File); err != nil {
		return &os.PathError{Op: "fdatasync", Path: w.out.Name(), Err: err}
	}
	stop := w.report()
	defer stop()
	w.entries = make([]entry, w.slots())
	if err := inParallel(ctx, w.slots(), w.worker); err != nil {
		return err
	}
	end := w.slot(w.slots())
	return w.encodeTail(w.entries, w.elapsed(), func(b []byte) error {
		err := w.put(b, end)
		end += int64(len(b))
		return err
	})
}

// allocate allocates the whole file. So a full disk is noticed at once, and workers can write inside the file
// without waiting for each other.
func allocate(file *os.File, size int64) error {
	err := linux.Allocate(file, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return file.Truncate(size)
	}
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: file.Name(), Err: err}
	}
	return nil
}

func (w *writer) elapsed() uint64 { return uint64(time.Since(w.began).Milliseconds()) }

// worker returns a function that writes the n-th slot.
func (w *writer) worker() func(n int) error {
	b := warmfile.Aligned(w.slotBytes())
	page := b[slotHeader:]
	recent := window{direct: w.out}
	return func(n int) error {
		e := entry{page: w.Order[n], items: unknownItems}
		offset := w.offset(e.page)
		if err := warmfile.ReadFull(w.in, page, offset); err != nil {
			return err
		}
		e.sum = pageSum(w.sum, offset, page)
		if w.Count != nil {
			if items, ok := w.Count(page); ok {
				e.items = uint32(items)
			}
		}
		copy(b, w.encodeSlot(n, e, w.elapsed()))
		if err := w.put(b, w.slot(n)); err != nil {
			return err
		}
		if err := recent.add(w.slot(n), int64(len(b))); err != nil {
			return err
		}
		w.entries[n] = e
		w.done.Add(int64(len(b)))
		return nil
	}
}

// report reports the progress until stop is called.
func (w *writer) report() (stop func()) {
	if w.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.Progress(w.done.Load(), w.size())
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		reporting.Wait()
	}
}

// inParallel does n tasks by several workers, in about their order, until one fails or ctx ends.
func inParallel(ctx context.Context, n int, worker func() func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(workers, n) {
		working.Go(func() {
			do := worker()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}
