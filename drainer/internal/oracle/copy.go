package oracle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/volume"
)

// allocated returns the size of the warm file in dir, or of its save, without holes.
func allocated(dir string) (int64, error) {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(dir, contract.SaveFile), &st)
	if errors.Is(err, os.ErrNotExist) {
		err = unix.Stat(filepath.Join(dir, contract.WarmFile), &st)
	}
	if err != nil {
		return 0, err
	}
	const blockBytes = 512 // whatever the file system's own blocks are
	return min(st.Size, st.Blocks*blockBytes), nil
}

// copyTo copies the warm file to work, with its holes, or makes the file from its save.
func (r *Reader) copyTo(ctx context.Context, work string) error {
	in, err := os.Open(filepath.Join(r.dir, contract.WarmFile))
	if errors.Is(err, os.ErrNotExist) {
		r.done.Store(0)
		return volume.Unpack(ctx, r.dir, work, func(n, _ int64) { r.done.Add(n) })
	}
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(work, contract.WarmFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r.done.Store(0)
	err = out.Truncate(info.Size())
	for at := int64(0); err == nil && at < info.Size(); {
		at, err = r.copyRange(ctx, in, out, at, info.Size())
	}
	if err == nil {
		r.done.Store(r.size)
	}
	return errors.Join(err, out.Close())
}

// copyRange copies the first range of data at or after offset, and returns the end of the range. A file
// system without holes has one range.
func (r *Reader) copyRange(ctx context.Context, in, out *os.File, offset, size int64) (int64, error) {
	from, err := in.Seek(offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case err != nil:
		from = offset
	}
	to, err := in.Seek(from, unix.SEEK_HOLE)
	if err != nil {
		to = size
	}
	const piece = 1 << 20
	buf := make([]byte, piece)
	for at := from; at < to; at += piece {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		b := buf[:min(piece, to-at)]
		if n, err := in.ReadAt(b, at); n < len(b) {
			return at, fmt.Errorf("read at offset %d: %w", at, err)
		}
		if _, err := out.WriteAt(b, at); err != nil {
			return at, err
		}
		r.done.Add(int64(len(b)))
	}
	return to, nil
}

// maxClockWait bounds the wait for the clock to pass the save.
const maxClockWait = 3 * time.Second

// copyMeta copies .meta to work. memcached resumes from a file only if at least a second has passed since the
// save. If the clock is close to that, copyMeta waits. If the clock is further behind, because it is another
// node's, the copy gets an earlier time of the save. Times of expiry are absolute, and are not changed.
func (r *Reader) copyMeta(ctx context.Context, work string) error {
	data, err := volume.RawMeta(r.dir)
	if err != nil {
		return err
	}
	behind := time.Until(time.Unix(r.image.StopTime+1, 0))
	switch {
	case behind > maxClockWait:
		before := time.Now().Unix() - 1
		data = []byte(strings.Replace(string(data), "\nKstop_time "+strconv.FormatInt(r.image.StopTime, 10)+"\n",
			"\nKstop_time "+strconv.FormatInt(before, 10)+"\n", 1))
	case behind > 0:
		if err := pace.Sleep(ctx, behind); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(work, contract.MetaFile), data, 0o600)
}
