package volume

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// Marks record which items of a generation have been sent to the running memcached.
type Marks struct {
	mu   sync.Mutex
	file *os.File
}

// OpenMarks opens the marks of the newest generation on the volume at dir, whose file has size bytes, and
// reserves their room on the disk. If there is no room, OpenMarks removes what is outdated; see dropOutdated.
func OpenMarks(dir string, newest Generation, size int64, logf func(string, ...any)) (*Marks, error) {
	for {
		marks, err := openMarks(newest, size)
		if !snapshot.IsFull(err) {
			return marks, err
		}
		kept, keptErr := Kept(dir)
		if keptErr != nil || len(kept) < 2 && Missing(filepath.Join(dir, contract.SaveFile)) {
			return nil, errors.Join(err, keptErr)
		}
		if dropped, dropErr := dropOutdated(dir, logf); dropErr != nil || !dropped {
			return nil, errors.Join(err, dropErr)
		}
	}
}

func openMarks(g Generation, size int64) (*Marks, error) {
	file, err := os.OpenFile(filepath.Join(g.Dir, contract.ReplayedFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = Fallocate(int(file.Fd()), 0, 0, MarksBytes(size))
	for errors.Is(err, unix.EINTR) {
		err = Fallocate(int(file.Fd()), 0, 0, MarksBytes(size))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	if err == nil {
		err = Sync(g.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Marks{file: file}, nil
}

// MarksRefused returns why no marks of a generation, given newest first, can be opened, if that forbids the
// replay. A full disk doesn't forbid a replay; see OpenMarks. Nor does something that isn't a file in place
// of the marks: such a generation is not replayed.
func MarksRefused(newestFirst []Generation) error {
	for _, g := range newestFirst {
		if g.Failed {
			return nil
		}
		path := filepath.Join(g.Dir, contract.ReplayedFile)
		if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
			return nil
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err == nil {
			err = file.Close()
		}
		if err != nil && !snapshot.IsFull(err) {
			return err
		}
	}
	return nil
}

// MarksBytes returns the size of the marks of a file of so many bytes on the disk.
func MarksBytes(size int64) int64 { return warmfile.Places(size)/8 + 1 }

// Set marks items by their places. When Set returns, the marks survive this process.
func (m *Marks) Set(places []int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return warmfile.MarkReplayed(m.file, places)
}

// Close closes the file.
func (m *Marks) Close() error { return m.file.Close() }

// SyncMarks brings the marks of all generations on the volume at dir to the disk. The marks have to be there
// before any save with replayed items may be trusted after the node's next boot. If the disk doesn't take
// some marks, their generation and all older ones are removed: the rest of an old replay is worth less than
// the save that comes next.
func SyncMarks(dir string, logf func(string, ...any)) error {
	kept, err := Kept(dir)
	if err != nil {
		return err
	}
	for i, g := range kept {
		path := filepath.Join(g.Dir, contract.ReplayedFile)
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() || g.Failed {
			continue // none of its items was sent, or the next start does not replay it
		}
		if err == nil {
			err = syncFile(path)
		}
		if err == nil {
			continue
		}
		logf("%s and all older generations are removed, because the disk can't store which of their items have been replayed: %s", filepath.Base(g.Dir), contract.OneLine(err))
		if err := DiscardAll(kept[i:]); err != nil {
			logf("%s and older generations can't be removed: %s", filepath.Base(g.Dir), contract.OneLine(err))
		}
		return nil
	}
	return nil
}

// syncFile is Sync; a test makes it fail.
var syncFile = Sync

// openReplayed opens the marks of the file in dir; nil if there are none.
func openReplayed(dir string) (io.ReaderAt, error) {
	path := filepath.Join(dir, contract.ReplayedFile)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "%s is not a file", contract.ReplayedFile)
	}
	return os.Open(path)
}
