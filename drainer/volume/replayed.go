package volume

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/args"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// Marks say which items of a generation have been sent to the running memcached.
type Marks struct {
	mu   sync.Mutex
	file *os.File
}

// OpenMarks opens those of the newest generation on the volume at dir, which is of so many bytes, and reserves
// their room on the disk. If there is none, what is outdated makes some: see dropOutdated.
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

// MarksRefused says why no marks of a generation, given newest first, can be opened, if a replay may not
// begin for that. A full disk is no such reason: see OpenMarks. What is in their place and is no file is
// not one either: such a generation is not replayed.
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

// MarksBytes is what the marks of a file of so many bytes take on the disk.
func MarksBytes(size int64) int64 { return warmfile.Places(size)/8 + 1 }

// Set marks items by their places. The marks outlive this process when it returns.
func (m *Marks) Set(places []int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return warmfile.MarkReplayed(m.file, places)
}

// Close closes the file.
func (m *Marks) Close() error { return m.file.Close() }

// SyncMarks brings the marks of all generations on the volume at dir to the disk. They have to be
// there before anything that holds what was replayed may be trusted after the node's next boot. If some
// can't be brought there, their generation leaves the volume with all that is older: the rest of an old
// replay is worth less than the save that comes next.
func SyncMarks(dir string, logf func(string, ...any)) error {
	kept, err := Kept(dir)
	if err != nil {
		return err
	}
	for i, g := range kept {
		path := filepath.Join(g.Dir, contract.ReplayedFile)
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() || g.Failed {
			continue // nothing of it was sent, or the next start does not replay it
		}
		if err == nil {
			err = syncFile(path)
		}
		if err == nil {
			continue
		}
		logf("%s is removed, with all that is older: which of its items have been replayed does not reach the disk: %s", filepath.Base(g.Dir), args.OneLine(err))
		if err := DiscardAll(kept[i:]); err != nil {
			logf("it can't be removed: %s", args.OneLine(err))
		}
		return nil
	}
	return nil
}

// syncFile is Sync; a test has it fail.
var syncFile = Sync

// openReplayed opens the marks of what is in dir; nil if there are none.
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
