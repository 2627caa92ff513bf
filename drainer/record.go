package drainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// record keeps a member's manifest.
type record struct {
	dir      string
	mu       sync.Mutex
	manifest warmfile.Manifest
	// answered is closed when the running memcached is first described.
	answered chan struct{}
	// flushed: clients have flushed everything.
	flushed atomic.Bool
}

// newRecord writes, before memcached starts, that from now on the warm file
// can't be trusted beyond this boot of the node. That has to be on the disk
// first: a manifest that still said Saved would vouch for a changed file.
// Where the file is fresh, the old manifest speaks of another one.
func newRecord(dir string, command []string, fresh bool, note string) (*record, error) {
	r := &record{dir: dir, answered: make(chan struct{}), manifest: warmfile.Manifest{
		State: warmfile.Starting, Arguments: command, BootID: warmfile.BootID(), Fresh: fresh, Note: note}}
	if fresh {
		return r, r.write(true)
	}
	if old, err := warmfile.ReadManifest(dir); err == nil {
		r.manifest.Previous = old.Latest()
	}
	if meta, err := warmfile.ReadMeta(dir); err == nil {
		r.manifest.Previous = withCount(meta, r.manifest.Previous)
	}
	return r, r.write(true)
}

// withCount completes what .meta says with what the manifest knows of the
// same save.
func withCount(meta, known *warmfile.Image) *warmfile.Image {
	if known != nil && known.StopTime == meta.StopTime {
		meta.Version, meta.Items, meta.ItemsExact = known.Version, known.Items, known.ItemsExact
	}
	return meta
}

func (r *record) write(sync bool) error {
	r.manifest.Updated = time.Now().UTC()
	b, err := r.manifest.Marshal()
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(r.dir, contract.Manifest), b, sync)
}

// running notes what the server says of itself. The first time, the directory
// is flushed too: memcached has unlinked .meta, and that .meta must not come
// back when the node goes down.
func (r *record) running(pid int, image *warmfile.Image) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.manifest.State == warmfile.Starting
	if known := r.manifest.Previous; first && known != nil && known.ItemsExact && known.Items > 0 && image.Items == 0 {
		r.manifest.Note = fmt.Sprintf("memcached rejected its own save and starts cold: its %d items are lost", known.Items)
	}
	r.manifest.State, r.manifest.PID, r.manifest.Image = warmfile.Running, pid, image
	r.flushed.Store(image.OldestLive != 0 && image.ProcessStarted+int64(image.OldestLive) <= time.Now().Unix())
	if first {
		defer close(r.answered)
	}
	return r.write(first)
}

// note adds a sentence for people.
func (r *record) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manifest.Note != "" {
		text = r.manifest.Note + "; " + text
	}
	r.manifest.Note = text
}

// notes for people, so far.
func (r *record) notes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manifest.Note
}

// secure brings the running member's file and manifest to the disk. From then
// on it needs no older generation: its mapping outlives its process. It does
// not outlive the node, and neither would any other running member's.
func (r *record) secure() error {
	if err := syncPath(filepath.Join(r.dir, contract.WarmFile)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(true)
}

func (r *record) items() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if image := r.manifest.Latest(); image != nil {
		return image.Items
	}
	return 0
}

// untouched tells, at memcached's end, whether it has taken nothing up and told
// nobody anything: what it was started with is all there is.
func (r *record) untouched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manifest.Image != nil {
		return false
	}
	meta, err := warmfile.ReadMeta(r.dir)
	if r.manifest.Fresh {
		return err != nil
	}
	return err == nil && r.manifest.Previous != nil && meta.StopTime == r.manifest.Previous.StopTime
}

// maxCount bounds the time that counting takes off the pod's grace period.
const maxCount = 2 * time.Second

// finish is for after memcached's end. It brings everything to the disk and
// writes what can be said of the file from now on, in any boot: that it is
// saved, or that it is as the crash left it.
func (r *record) finish() (saved bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	meta, metaErr := warmfile.ReadMeta(r.dir)
	saved = metaErr == nil
	if !saved && r.manifest.Image == nil {
		return false, nil // it never answered: Starting is all that is known
	}
	if err := r.sync(saved); err != nil {
		return saved, err
	}
	r.manifest.State, r.manifest.PID = warmfile.Died, 0
	if saved {
		if r.manifest.Image != nil {
			meta.Version = r.manifest.Image.Version
		}
		r.manifest.State, r.manifest.Image = warmfile.Saved, meta
	}
	if err := r.write(true); err != nil || !saved {
		return saved, err
	}
	return true, r.count(meta)
}

// sync flushes the warm file, its .meta and their names.
func (r *record) sync(saved bool) error {
	paths := []string{filepath.Join(r.dir, contract.WarmFile), r.dir}
	if saved {
		paths = append(paths, filepath.Join(r.dir, contract.MetaFile))
	}
	for _, path := range paths {
		if err := syncPath(path); err != nil {
			return err
		}
	}
	return nil
}

// count writes the exact number of items in the saved file, so that a drain
// notices when the file is no longer the one that was saved. The save is safe
// before; a file too large to be counted in time goes without.
func (r *record) count(image *warmfile.Image) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxCount)
	defer cancel()
	reader, err := warmfile.Open(r.dir, warmfile.Options{})
	if err != nil {
		return err
	}
	defer reader.Close()
	image.Items, err = reader.Count(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		image.Items = 0
		return nil
	}
	if err != nil {
		return err
	}
	image.ItemsExact = true
	return r.write(true)
}
