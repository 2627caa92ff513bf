package snapshot

import (
	"errors"
	"os"
	"sync/atomic"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/warmfile"
)

// direct is a file that is read or written past the page cache. On a file system that doesn't support direct I/O,
// each range is dropped from the cache soon after it was read or written. So a save never pushes other files out
// of the cache. Buffers, offsets and lengths are multiples of a block.
type direct struct {
	*os.File
	cached atomic.Bool
}

// OpenFile opens a save. Tests replace it.
var OpenFile = os.OpenFile

// openDirect opens a file past the page cache; flags are those of os.OpenFile.
func openDirect(path string, flags int, mode os.FileMode) (*direct, error) {
	file, err := OpenFile(path, flags|linux.Direct, mode)
	if err == nil {
		return &direct{File: file}, nil
	}
	if !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	if file, err = OpenFile(path, flags, mode); err != nil {
		return nil, err
	}
	d := &direct{File: file}
	d.cached.Store(true)
	return d, nil
}

// giveUp tells whether an error means that the file system doesn't support direct I/O after all. From then on
// the file goes through the page cache. Several workers may call giveUp at the same time.
func (d *direct) giveUp(err error) bool {
	if !errors.Is(err, unix.EINVAL) {
		return false
	}
	d.cached.Store(true)
	flags, err := unix.FcntlInt(d.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(d.Fd(), unix.F_SETFL, flags&^linux.Direct)
	}
	return err == nil
}

// ReadAt implements io.ReaderAt.
func (d *direct) ReadAt(b []byte, offset int64) (int, error) {
	n, err := d.File.ReadAt(b, offset)
	if err != nil && d.giveUp(err) {
		return d.File.ReadAt(b, offset)
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (d *direct) WriteAt(b []byte, offset int64) (int, error) {
	n, err := d.File.WriteAt(b, offset)
	if err != nil && d.giveUp(err) {
		return d.File.WriteAt(b, offset)
	}
	return n, err
}

// window has the ranges that one worker has read or written last, and that are still in the page cache.
type window struct {
	*direct
	ranges [][2]int64
}

// windowRanges is how many ranges of the file each worker leaves in the page cache while the disk writes
// them.
const windowRanges = 4

// add records that a worker has read or written a range of the file, and waits until the disk has taken the range
// that was written windowRanges before.
func (w *window) add(offset, length int64) error {
	if !w.cached.Load() {
		return nil
	}
	if err := w.writeOut(offset, length, false); err != nil {
		return err
	}
	w.ranges = append(w.ranges, [2]int64{offset, length})
	if len(w.ranges) <= windowRanges {
		return nil
	}
	return w.drop()
}

// drop drops the oldest range from the page cache.
func (w *window) drop() error {
	r := w.ranges[0]
	w.ranges = w.ranges[1:]
	if err := w.writeOut(r[0], r[1], true); err != nil {
		return err
	}
	_ = linux.Advise(w.File, r[0], r[1], linux.DontNeed)
	return nil
}

// writeOut starts to write a range to the disk, and returns the error if the disk did not take it. The kernel
// reports an error only once to an open file, so the fsync at the end would not report it again. On a file system
// that doesn't support the call, writeOut returns nil, and everything is written at the end.
func (w *window) writeOut(offset, length int64, wait bool) error {
	err := linux.WriteOut(w.File, offset, length, wait)
	for _, cannot := range []error{unix.ENOSYS, unix.EINVAL, unix.ESPIPE, unix.EOPNOTSUPP} {
		if errors.Is(err, cannot) {
			err = nil
		}
	}
	if err == nil {
		return nil
	}
	return &os.PathError{Op: "sync_file_range", Path: w.Name(), Err: err}
}

// alignedCopy returns a copy of a buffer that direct I/O can use.
func alignedCopy(b []byte) []byte {
	c := warmfile.Aligned(int64(len(b)))
	copy(c, b)
	return c
}
