package volume

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// maxSmallFile bounds how many bytes of .meta and the manifest are read.
const maxSmallFile = 1 << 20

// readSmall refuses files that neither memcached nor the supervisor writes: a retry can't help.
func readSmall(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmallFile {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "%s is not a file of at most %d bytes", filepath.Base(path), maxSmallFile)
	}
	return readFile(path)
}

// openNow is os.Open, except that it doesn't block on a pipe without a writer.
func openNow(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// readFile is os.ReadFile; a test makes it fail.
var readFile = os.ReadFile

// ReadMeta reads the .meta of memcached's latest save.
func ReadMeta(dir string) (*warmfile.Image, error) {
	data, err := RawMeta(dir)
	if err != nil {
		return nil, err
	}
	return warmfile.ParseMeta(data)
}

// RawMeta returns memcached's .meta: a file in dir, or a part of the save there.
func RawMeta(dir string) ([]byte, error) {
	return beside(dir, contract.MetaFile, func(h *snapshot.Header) []byte { return []byte(h.Meta) })
}

// ReadManifest reads the supervisor's manifest.
func ReadManifest(dir string) (*Manifest, error) {
	data, err := beside(dir, contract.Manifest, func(h *snapshot.Header) []byte { return h.Manifest })
	if err != nil {
		return nil, err
	}
	return ParseManifest(data)
}

// beside reads metadata of the warm file in dir: a file, or a part of the save, if there is one.
func beside(dir, name string, saved func(h *snapshot.Header) []byte) ([]byte, error) {
	s, err := openSave(dir)
	if errors.Is(err, os.ErrNotExist) {
		return readSmall(filepath.Join(dir, name))
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	data := saved(&s.Header)
	if len(data) == 0 {
		return nil, &os.PathError{Op: "read", Path: name, Err: os.ErrNotExist}
	}
	return data, nil
}

// HasSave tells whether dir has a save, readable or not.
func HasSave(dir string) bool {
	s, err := openSave(dir)
	if err == nil {
		_ = s.Close()
	}
	return !errors.Is(err, os.ErrNotExist)
}

// openFile opens the warm file in dir, or its save, to be read as the file itself.
func openFile(dir string) (file interface {
	io.ReaderAt
	io.Closer
}, size int64, err error) {
	s, err := openSave(dir)
	if err == nil {
		return s, s.Size, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	path := filepath.Join(dir, contract.WarmFile)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = warmfile.Refuse(warmfile.ReasonMissing, "there is no %s on the volume", contract.WarmFile)
	case err == nil && !info.Mode().IsRegular():
		err = warmfile.Refuse(warmfile.ReasonMissing, "%s is not a file", contract.WarmFile)
	case err == nil && info.Size() == 0:
		err = warmfile.Refuse(warmfile.ReasonTruncated, "the warm file is empty: 0 bytes")
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	return f, info.Size(), err
}

// openSave opens the newest save in dir; os.ErrNotExist if there is none. The save may still have the name of
// an unfinished one: then its writer was killed, and the whole pages of the save can be used.
func openSave(dir string) (*snapshot.Save, error) {
	named, err := snapshot.Open(filepath.Join(dir, contract.SaveFile))
	unfinished, unfinishedErr := snapshot.Open(filepath.Join(dir, newSave))
	switch {
	case errors.Is(unfinishedErr, os.ErrNotExist), errors.Is(unfinishedErr, warmfile.ErrUnrecoverable): // the unfinished save doesn't even have a header
		return named, err
	case unfinishedErr != nil:
		if err == nil {
			_ = named.Close()
		}
		return nil, unfinishedErr
	case err == nil && named.Number >= unfinished.Number:
		return named, unfinished.Close()
	case err == nil:
		err = named.Close()
	default:
		err = nil // an older save that can't be read is outdated in any case
	}
	return unfinished, err
}
