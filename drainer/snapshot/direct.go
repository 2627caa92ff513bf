package snapshot

import (
	"errors"
	"os"
	"sync/atomic"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/warmfile"
)

// direct is a file that is read or written past the page cache, if its file system can do
// that. Otherwise what was read or written is dropped from the cache soon after, so that a
// save never takes its place there. Its buffers, offsets and lengths are multiples of a
// block.
type direct struct {
	*os.File
	cached atomic.Bool
}

// OpenFile opens a save. Tests replace it.
var OpenFile = os.OpenFile

// openDirect opens a file so; flags are those of os.OpenFile.
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

// giveUp tells whether an error says that the file system can't, after all. From then on
// the file goes through the page cache. Several workers may be told at once.
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

// ReadAt is as io.ReaderAt has it.
func (d *direct) ReadAt(b []byte, offset int64) (int, error) {
	n, err := d.File.ReadAt(b, offset)
	if err != nil && d.giveUp(err) {
		return d.File.ReadAt(b, offset)
	}
	return n, err
}

// WriteAt is as io.WriterAt has it.
func (d *direct) WriteAt(b []byte, offset int64) (int, error) {
	n, err := d.File.WriteAt(b, offset)
	if err != nil && d.giveUp(err) {
		return d.File.WriteAt(b, offset)
	}
	return n, err
}

// window is what one worker has read or written last, and is still in the page cache.
type window struct {
	*direct
	ranges [][2]int64
}

// windowRanges is how many parts of a file each worker leaves in the page cache: the disk
// writes them meanwhile.
const windowRanges = 4

// add says that a worker has read or written a part of the file. It waits for the disk to
// have taken what it wrote some parts ago.
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

// drop lets go of the oldest part.
func (w *window) drop() error {
	r := w.ranges[0]
	w.ranges = w.ranges[1:]
	if err := w.writeOut(r[0], r[1], true); err != nil {
		return err
	}
	_ = linux.Advise(w.File, r[0], r[1], linux.DontNeed)
	return nil
}

// writeOut returns what the disk did not take: the kernel tells an open file once, so the
// fsync at the end would know nothing of it. A file system that can't is no error: all is
// written at the end.
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

// alignedCopy of a buffer.
func alignedCopy(b []byte) []byte {
	c := warmfile.Aligned(int64(len(b)))
	copy(c, b)
	return c
}
