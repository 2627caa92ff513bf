package warmfile

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"

	"example.com/memcached-operator/drainer/contract"
)

// Unused tells whether the volume proves that there is nothing on it to drain:
// its manifest, which reaches the disk before memcached starts, says that there
// was no warm file, and that memcached has not answered since; and the file that
// it may have made meanwhile holds no item. Both speak of this boot of the node:
// what a file holds may be lost with another one's. A volume without a manifest
// proves nothing: somebody may have emptied it.
func Unused(dir string, o Options) (bool, error) {
	m, err := ReadManifest(dir)
	boot := o.withDefaults().BootID
	if err != nil || m.State != Starting || !m.Fresh || m.BootID == "" || m.BootID != boot && !packed(dir) {
		return false, nil // what is wrong with it, Open says
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
	return withoutItems(io.NewSectionReader(file, 0, size))
}

// Untouched tells whether no supervisor has begun on the volume: there is nothing on
// it but what a new file system has, and a lock. Somebody may have emptied it; that
// nobody could have is for the caller to know.
func Untouched(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "lost+found" && e.Name() != contract.LockFile
	}), err
}

// freeSlot is the word of an item's header that holds its length and its flags,
// in a slot that was never used.
const freeSlot = flagSlabbed << 48

// withoutItems tells whether no item was ever stored in the file. Nothing says
// how its pages are cut, so every word is looked at: in an item's header one has
// other flags in its upper bytes than a free slot's, and so has nearly any data.
// All else that memcached writes at its start are addresses and classes.
func withoutItems(file io.Reader) (bool, error) {
	buf := make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(file, buf)
		for at := 0; at+8 <= n; at += 8 {
			if w := binary.LittleEndian.Uint64(buf[at:]); w>>48 != 0 && w != freeSlot {
				return false, nil
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return n%8 == 0, nil
		case err != nil:
			return false, err
		}
	}
}
