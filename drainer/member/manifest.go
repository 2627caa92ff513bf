package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// manifest is the manifest of a running member, kept current on the disk.
type manifest struct {
	dir string
	mu  sync.Mutex
	volume.Manifest
	// answered is closed when the manifest first describes the running memcached.
	answered chan struct{}
	// file is the warm file; nil until memcached has made it.
	file *os.File
	// lost is why a part of the file did not reach the disk.
	lost error
	// rejected means that memcached did not resume from its own save.
	rejected bool
}

func keepManifest(dir string, first *volume.Manifest) *manifest {
	return &manifest{dir: dir, answered: make(chan struct{}), Manifest: *first}
}

// write brings the manifest to the disk, and with its name the other changes of the directory: memcached has
// unlinked its .meta, which must not come back when the node crashes.
func (m *manifest) write() error { return volume.WriteManifest(m.dir, &m.Manifest) }

// hold opens the warm file, before memcached starts or as soon as memcached has made the file. If the disk
// did not take a page, the kernel reports that once to each descriptor that was open at that time. memcached
// ignores the error of its own msync at the end, and a descriptor that is opened later gets no error.
func (m *manifest) hold() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		return nil
	}
	file, err := os.Open(filepath.Join(m.dir, contract.WarmFile))
	if err != nil {
		return err
	}
	m.file = file
	return volume.Sync(m.dir) // a file that has a name may have items
}

// flush brings the running member's file to the disk.
func (m *manifest) flush() error {
	if err := m.hold(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost == nil { // the next fsync would not report it again
		m.lost = m.file.Sync()
	}
	return m.lost
}

// running records the server's own description.
func (m *manifest) running(pid int, image *warmfile.Image) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.State == volume.Starting
	if known := m.Previous; first && known != nil && known.ItemsExact && known.Items > 0 && image.Items == 0 {
		m.rejected = true
		m.Note = fmt.Sprintf("memcached rejected its own save and starts cold: its %d items are lost", known.Items)
	}
	m.State, m.PID, m.Image = volume.Running, pid, image
	if first {
		defer close(m.answered)
	}
	return m.write()
}

// note adds a sentence for people.
func (m *manifest) note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Note != "" {
		text = m.Note + "; " + text
	}
	m.Note = text
}

// notes returns the sentences so far.
func (m *manifest) notes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Note
}

// secure brings the running member's file and manifest to the disk. From then on no older generation is
// needed, because the mapping outlives the process. The mapping does not outlive the node, but neither does
// that of any other running member.
func (m *manifest) secure() error {
	if err := m.flush(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write()
}

// close closes the file.
func (m *manifest) close() {
	if m.file != nil {
		m.file.Close()
	}
}

func (m *manifest) items() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if image := m.Latest(); image != nil {
		return image.Items
	}
	return 0
}

// untouched tells, at memcached's end, whether memcached had resumed nothing and no client has stored
// anything, so that the state from before the start is still complete.
func (m *manifest) untouched() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Image != nil {
		return false, nil
	}
	meta, err := volume.ReadMeta(m.dir)
	if m.Fresh && err != nil {
		return volume.NothingStored(m.dir, volume.Options{})
	}
	return !m.Fresh && err == nil && m.Previous != nil && meta.StopTime == m.Previous.StopTime, nil
}

// maxCount bounds how much of the pod's grace period counting may take. Tests replace it.
var maxCount = 2 * time.Second

// finish is called after memcached's end. finish brings everything to the disk and records the state of the
// file, which holds in any boot: it is saved, or it is as the crash left it.
func (m *manifest) finish(logf func(string, ...any)) (saved bool, err error) {
	meta, metaErr := volume.ReadMeta(m.dir)
	saved = metaErr == nil
	if !saved && m.Image == nil {
		return false, nil // memcached never answered: the state stays Starting
	}
	if err := m.flush(); err != nil {
		return saved, errors.Join(err, m.damaged())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.sync(saved); err != nil {
		return saved, err
	}
	if err := volume.SyncMarks(m.dir, logf); err != nil {
		return saved, err
	}
	m.State, m.PID = volume.Died, 0
	if saved {
		if m.Image != nil {
			meta.Version = m.Image.Version
		}
		meta.Complete(m.Latest())
		m.State, m.Image = volume.Saved, meta
	}
	return saved, m.write()
}

// damaged records that the disk has not taken all of the file: parts of its content may be of any age.
func (m *manifest) damaged() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost == nil {
		return nil
	}
	m.State, m.PID = volume.Damaged, 0
	m.Note = m.lost.Error()
	return m.write()
}

// sync flushes the warm file's .meta and the directory.
func (m *manifest) sync(saved bool) error {
	paths := []string{m.dir}
	if saved {
		paths = append(paths, filepath.Join(m.dir, contract.MetaFile))
	}
	for _, path := range paths {
		if err := volume.Sync(path); err != nil {
			return err
		}
	}
	return nil
}

// count writes the exact number of items in the saved file on the volume, so that a drain notices if the file
// is no longer the saved one. The save is safe before that. A file that can't be counted, or not in time, has
// no count. A file in memory is not counted, because its save has the number.
func (m *manifest) count() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), maxCount)
	defer cancel()
	reader, err := volume.Open(m.dir, volume.Options{})
	if err != nil {
		return err
	}
	defer reader.Close()
	n, err := reader.Count(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	m.Image.Items, m.Image.ItemsExact = n, true
	return m.write()
}

// counted adopts the number of items that a save has.
func (m *manifest) counted(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Image.Items, m.Image.ItemsExact = n, true
}

// isRejected tells whether memcached did not resume from its own save.
func (m *manifest) isRejected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rejected
}
