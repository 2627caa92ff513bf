package volume

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// writeDurably replaces path as a whole. With sync it has reached the disk,
// name and content, when the function returns.
func writeDurably(path string, data []byte, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if sync {
		return Sync(filepath.Dir(path))
	}
	return nil
}

// Sync flushes a file or directory to the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeDurably removes a file, if it is there.
func removeDurably(path string) error {
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, Sync(filepath.Dir(path)))
}

// Missing tells whether nothing is at path.
func Missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// WriteManifest writes the manifest of the warm file in dir, as of now.
func WriteManifest(dir string, m *Manifest, sync bool) error {
	m.Updated = time.Now().UTC()
	b, err := m.Marshal()
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, contract.Manifest), b, sync)
}
