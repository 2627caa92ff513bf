package volume

import (
	"errors"
	"io"
	"os"
	"slices"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// Unused tells whether the volume proves that there is nothing to drain: it has only a file, or a save of
// one, in which nothing was ever stored. A volume without a manifest proves nothing, because the volume may
// have been emptied.
func Unused(dir string, o Options) (bool, error) {
	kept, err := Kept(dir)
	if err != nil || len(kept) > 0 {
		return false, err
	}
	if err := outdated(dir, []Generation{{Dir: dir}}); err != nil {
		return false, nil // Generations returns the error
	}
	return NothingStored(dir, o)
}

// NothingStored tells whether it is proven that no client has stored anything in the file in dir, or in its
// save. The manifest, which reaches the disk before memcached starts, says that there was no file, and that
// memcached has not answered its supervisor since. memcached may have answered clients, so the file must not
// have an item, either. Both must be of this boot of the node: after another boot, parts of the file may be
// lost.
func NothingStored(dir string, o Options) (bool, error) {
	m, err := ReadManifest(dir)
	boot := o.withDefaults().BootID
	if err != nil || !m.Unanswered() || m.BootID == "" || m.BootID != boot && !HasSave(dir) {
		return false, nil // Open returns the error
	}
	if there, err := (Generation{Dir: dir}).exists(); err != nil || !there {
		return err == nil, err
	}
	file, size, err := openFile(dir)
	if warmfile.IsReason(err, warmfile.ReasonTruncated) && !HasSave(dir) {
		return true, nil // memcached has only created the file
	}
	if errors.Is(err, warmfile.ErrUnrecoverable) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	without, err := warmfile.WithoutItems(io.NewSectionReader(file, 0, size))
	if s, ok := file.(*snapshot.Save); ok && without {
		missing, _ := s.Lacks()
		without, err = missing == 0, s.Unknown()
	}
	return without, err
}

// Untouched tells whether no supervisor has begun on the volume: the volume has only what a new file system
// has, a lock, and the rest of a write that was killed. The caller has to know that the volume can't have
// been emptied.
func Untouched(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "lost+found" && e.Name() != contract.LockFile && !temporary(e)
	}), err
}
