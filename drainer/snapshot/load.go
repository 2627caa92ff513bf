package snapshot

import (
	"context"
	"fmt"
	"os"

	"example.com/memcached-operator/drainer/warmfile"
)

// Expand checks the used pages and writes them to their offsets in the warm file, with holes between them, and
// fails if a page is missing. Several workers call done, which may be nil, with the number of bytes that they have
// read.
func (s *Save) Expand(ctx context.Context, out *os.File, done func(n int64)) error {
	if err := out.Truncate(s.Size); err != nil {
		return err
	}
	if done == nil {
		done = func(int64) {}
	}
	if err := s.index.rebuild(); err != nil {
		return err
	}
	if missing, all := s.Lacks(); missing > 0 {
		return warmfile.Refuse(warmfile.ReasonSaveIncomplete, "%d of the %d pages of the save are missing", missing, all)
	}
	file, ok := s.file.(*os.File)
	if !ok {
		return fmt.Errorf("load %T: not a file", s.file)
	}
	// /proc/self/fd opens the same file again, whatever its name is now.
	in, err := openDirect(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open the save again: %w", err)
	}
	defer in.Close()
	l := &loader{s.index, in, out, done}
	return inParallel(ctx, len(l.entries), l.worker)
}

// loader reads the slots of a save past the page cache.
type loader struct {
	*index
	in   *direct
	out  *os.File
	done func(n int64)
}

// worker returns a function that loads the page of the n-th slot.
func (l *loader) worker() func(n int) error {
	b := warmfile.Aligned(int64(l.PageSize))
	recent := window{direct: l.in}
	return func(n int) error {
		page, place := l.entries[n].page, l.slot(n)+slotHeader
		offset := l.offset(page)
		err := warmfile.ReadFull(l.in, b, place)
		if warmfile.IsReason(err, warmfile.ReasonTruncated) || err == nil && !l.sound(int(page), b) {
			err = warmfile.Refuse(warmfile.ReasonSaveIncomplete, "the page in slot %d of the save, for offset %d of the warm file, is damaged", n, offset)
		}
		if err != nil {
			return err
		}
		if err := recent.add(place, int64(len(b))); err != nil {
			return err
		}
		if _, err := l.out.WriteAt(b, offset); err != nil {
			return err
		}
		l.done(int64(len(b)))
		return nil
	}
}
