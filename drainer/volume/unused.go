package volume

import (
	"io"
	"os"
	"slices"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// Unused tells whether the volume proves that there is nothing on it to drain: its
// manifest, which reaches the disk before memcached starts, says that there was no warm
// file, and that memcached has not answered since; and the file that it may have made
// meanwhile has no item. Both must be of this boot of the node: after another boot,
// parts of the file may be lost. A volume without a manifest proves nothing: somebody
// may have emptied it.
func Unused(dir string, o Options) (bool, error) {
	m, err := ReadManifest(dir)
	boot := o.withDefaults().BootID
	if err != nil || m.State != Starting || !m.Fresh || m.BootID == "" || m.BootID != boot && !packed(dir) {
		return false, nil // Open says what is wrong with it
	}
	aside, err := Aside(dir)
	if err != nil || len(aside) > 0 {
		return false, err
	}
	if err := outdated(dir, []Generation{{Dir: dir}}); err != nil {
		return false, nil // Generations says so
	}
	if there, err := (Generation{Dir: dir}).exists(); err != nil || !there {
		return err == nil, err
	}
	file, size, err := openFile(dir)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return warmfile.WithoutItems(io.NewSectionReader(file, 0, size))
}

// Untouched tells whether no supervisor has begun on the volume: it has only what a new
// file system has, and a lock. The caller has to know that nobody can have emptied it.
func Untouched(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "lost+found" && e.Name() != contract.LockFile
	}), err
}
