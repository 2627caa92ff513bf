package volume

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/warmfile"
)

// Marks say which items of a generation have been sent to the running memcached.
type Marks struct {
	mu   sync.Mutex
	file *os.File
}

// OpenMarks opens those of a generation of so many bytes, and reserves their room on the disk: a
// replay ends before its first item if there is none.
func OpenMarks(g Generation, size int64) (*Marks, error) {
	file, err := os.OpenFile(filepath.Join(g.Dir, contract.ReplayedFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = linux.Allocate(file, MarksBytes(size))
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
// there before anything that holds what was replayed may be trusted after the node's next boot.
func SyncMarks(dir string) error {
	kept, err := Kept(dir)
	if err != nil {
		return err
	}
	for _, g := range kept {
		path := filepath.Join(g.Dir, contract.ReplayedFile)
		if Missing(path) {
			continue
		}
		if err := Sync(path); err != nil {
			return err
		}
	}
	return nil
}

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
