package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// writeDurably replaces path atomically, and returns when first the content and then the name have reached
// the disk: a name without its content would be an empty file after a crash of the node.
func writeDurably(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), temporaryPrefix(filepath.Base(path))+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = replace(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return Sync(filepath.Dir(path))
}

// temporaryPrefix begins the name of the file that is to replace another one.
func temporaryPrefix(name string) string { return "." + name + "-" }

// temporary tells whether the writer of a file was killed before the file had its name, or gives before it
// had removed its probe.
func temporary(e os.DirEntry) bool {
	if !e.Type().IsRegular() {
		return false
	}
	for _, prefix := range []string{probePrefix, temporaryPrefix(contract.Manifest), temporaryPrefix(contract.MetaFile),
		temporaryPrefix(contract.InUse), temporaryPrefix(contract.ListFile)} {
		if strings.HasPrefix(e.Name(), prefix) {
			return true
		}
	}
	return false
}

// replace renames a file. If a directory has the place, which this program never makes, the directory is
// removed.
func replace(file, path string) error {
	err := rename(file, path)
	if info, statErr := os.Lstat(path); err == nil || statErr != nil || !info.IsDir() {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return rename(file, path)
}

// renameDurably renames a file or directory within its directory, and returns when the new name has reached
// the disk.
func renameDurably(path, to string) error {
	if err := os.Rename(path, to); err != nil {
		return err
	}
	return Sync(filepath.Dir(to))
}

// rename is os.Rename; a test looks at its arguments.
var rename = os.Rename

// Sync flushes a file or directory to the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeAll is os.RemoveAll; a test makes it fail.
var removeAll = os.RemoveAll

// removeDurably removes a file, or a directory in its place, if there is one.
func removeDurably(path string) error {
	if Missing(path) {
		return nil
	}
	err := removeAll(path)
	return errors.Join(err, Sync(filepath.Dir(path)))
}

// Missing tells whether nothing is at path.
func Missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// WriteManifest writes the manifest of the warm file in dir, dated now.
func WriteManifest(dir string, m *Manifest) error {
	m.Updated = time.Now().UTC()
	b, err := m.Marshal()
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, contract.Manifest), b)
}
