package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/warmfile"
)

// writebackBytes is how much of a save is written before the disk is told to begin;
// otherwise everything would wait for the end.
const writebackBytes = 8 << 20

// Survey finds the used pages of a warm file, which no memcached maps any more, and
// returns the header of a save of that number.
func Survey(in *os.File, number int64) (*Header, error) {
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	h := &Header{Number: number, Made: time.Now().UTC().Truncate(time.Second), Size: info.Size(), PageSize: warmfile.SlabPageSize}
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

// SaveBytes is what the save takes on the disk.
func (h *Header) SaveBytes() (int64, error) {
	b, _, err := h.encode()
	return int64(len(b)) + h.usedPages()*h.record(), err
}

// Write saves the warm file in to path. The save has reached the disk when Write
// returns.
func Write(ctx context.Context, in io.ReaderAt, path string, h *Header) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	err = write(ctx, in, &writeback{file: out}, h)
	if err == nil {
		err = out.Sync()
	}
	_ = unix.Fadvise(int(out.Fd()), 0, 0, unix.FADV_DONTNEED) // nobody reads it soon
	return errors.Join(err, out.Close())
}

// writeback is a file whose content goes to the disk while it is written.
type writeback struct {
	file          *os.File
	written, told int64
}

func (w *writeback) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if w.written += int64(n); w.written-w.told >= writebackBytes {
		// Only advice: a disk that ignores it writes at the end.
		_ = unix.SyncFileRange(int(w.file.Fd()), w.told, w.written-w.told, unix.SYNC_FILE_RANGE_WRITE)
		w.told = w.written
	}
	return n, err
}

func write(ctx context.Context, in io.ReaderAt, out io.Writer, h *Header) error {
	b, sum, err := h.encode()
	if err != nil {
		return err
	}
	if _, err := out.Write(b); err != nil {
		return err
	}
	record := make([]byte, h.record())
	for page := range h.pages() {
		if !h.uses(page) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		offset := int64(page) * int64(h.PageSize)
		data := record[:h.PageSize]
		if err := warmfile.ReadFull(in, data, offset); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(record[h.PageSize:], pageSum(sum, offset, data))
		if _, err := out.Write(record); err != nil {
			return err
		}
	}
	return nil
}

// Expand writes the used pages to where they were in the warm file, each checked, and
// leaves holes between them. done, which may be nil, is called with the number of bytes
// that were read.
func (s *Save) Expand(ctx context.Context, out *os.File, done func(n int64)) error {
	s.advise(unix.FADV_SEQUENTIAL)
	defer s.advise(unix.FADV_DONTNEED) // it is in memory now, once
	if err := out.Truncate(s.Size); err != nil {
		return err
	}
	for page := range s.pages() {
		if !s.uses(page) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		offset := int64(page) * int64(s.PageSize)
		if err := s.hold(page, offset); err != nil {
			return err
		}
		if _, err := out.WriteAt(s.page[:s.PageSize], offset); err != nil {
			return err
		}
		if done != nil {
			done(s.record())
		}
	}
	return nil
}

// advise tells the kernel how the save is read. It is only advice.
func (s *Save) advise(advice int) {
	if file, ok := s.file.(*os.File); ok {
		_ = unix.Fadvise(int(file.Fd()), 0, 0, advice)
	}
}
