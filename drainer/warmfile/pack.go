package warmfile

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
)

// saveWriteback is how much of a save is written before the disk is told to begin
// with it, in bytes: else all of it would wait for the end.
const saveWriteback = 8 << 20

// Pack writes the warm file in dir, which no memcached maps any more, and what
// speaks for it to a new save at path. It has reached the disk when Pack returns.
func Pack(ctx context.Context, dir, path string, number int64) (err error) {
	in, err := os.Open(filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return err
	}
	defer in.Close()
	header, err := headerOf(in, dir, number)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	err = writeSave(ctx, in, &writeback{file: out}, header)
	if err == nil {
		err = out.Sync()
	}
	_ = unix.Fadvise(int(out.Fd()), 0, 0, unix.FADV_DONTNEED) // nobody reads it soon
	return errors.Join(err, out.Close())
}

// PackedSize is what the save of the warm file in dir takes, in bytes.
func PackedSize(dir string) (int64, error) {
	in, err := os.Open(filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return 0, err
	}
	defer in.Close()
	header, err := headerOf(in, dir, 1)
	if err != nil {
		return 0, err
	}
	b, _, err := header.encode()
	return int64(len(b)) + header.usedPages()*header.record(), err
}

// headerOf looks through the pages of a warm file for the used ones.
func headerOf(in *os.File, dir string, number int64) (*saveHeader, error) {
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	h := &saveHeader{Number: number, Made: time.Now().UTC().Truncate(time.Second), Size: info.Size(), PageSize: slabPageSize}
	h.Used = make([]byte, (h.Size/int64(h.PageSize)+7)/8)
	if err := h.check(); err != nil {
		return nil, refuse(ReasonCorrupt, "a save can't be made of %v", err)
	}
	slot := make([]byte, itemHeader)
	for page := range h.pages() {
		if err := readFull(in, slot, int64(page)*int64(h.PageSize)); err != nil {
			return nil, err
		}
		if !unusedPage(slot) {
			h.Used[page/8] |= 1 << (page % 8)
		}
	}
	for name, keep := range map[string]func(b []byte){
		contract.Manifest: func(b []byte) { h.Manifest = b },
		contract.MetaFile: func(b []byte) { h.Meta = string(b) },
	} {
		b, err := readSmall(filepath.Join(dir, name))
		switch {
		case err == nil:
			keep(b)
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	return h, nil
}

// writeback is a file whose content goes to the disk while it is written.
type writeback struct {
	file          *os.File
	written, told int64
}

func (w *writeback) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if w.written += int64(n); w.written-w.told >= saveWriteback {
		// Only advice: a disk that doesn't take it writes at the end.
		_ = unix.SyncFileRange(int(w.file.Fd()), w.told, w.written-w.told, unix.SYNC_FILE_RANGE_WRITE)
		w.told = w.written
	}
	return n, err
}

func writeSave(ctx context.Context, in io.ReaderAt, out io.Writer, h *saveHeader) error {
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
		if err := readFull(in, data, offset); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(record[h.PageSize:], pageSum(sum, offset, data))
		if _, err := out.Write(record); err != nil {
			return err
		}
	}
	return nil
}

// Unpack makes a warm file in the directory to of the save in dir, with the .meta
// and the manifest that lay beside it, each page checked. The warm file is named
// last: as long as it isn't there, nothing is. done, which may be nil, is told of
// bytes that were read.
func Unpack(ctx context.Context, dir, to string, done func(n int64)) error {
	s, err := openSave(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	file := s.file.(*os.File)
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_SEQUENTIAL)
	path := filepath.Join(to, contract.WarmFile)
	out, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	err = errors.Join(s.expand(ctx, out, done), out.Close())
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) // it is in memory now, once
	for name, data := range map[string][]byte{contract.Manifest: s.Manifest, contract.MetaFile: []byte(s.Meta)} {
		if err == nil && len(data) > 0 {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return nil
}

// expand writes the used pages to where they were, and leaves holes between them.
func (s *save) expand(ctx context.Context, out *os.File, done func(n int64)) error {
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
