package warmfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// evidence is what the volume says about its warm file, weighed.
type evidence struct {
	image Image
	// clean: memcached saved and ended.
	clean bool
}

// weigh decides from .meta and the manifest how the file may be read, or why
// it may not:
//
//	.meta, sound and of the file's size   the file is as memcached saved it:
//	                                      memcached unlinks .meta before it
//	                                      touches the file
//	manifest says Saved                   the same, .meta was lost since
//	manifest says Died                    no save, but all of it is on the disk
//	manifest says Running or Starting     no save; the kernel that the process
//	                                      ran on must still be the same one
//	neither                               refused
func weigh(dir string, fileSize int64, bootID string) (*evidence, error) {
	manifest, manifestErr := ReadManifest(dir)
	meta, metaErr := ReadMeta(dir)
	if manifest != nil && packed(dir) {
		bootID = manifest.BootID // all of a save is on the disk, or its checksums fail
	}
	if err := errors.Join(broken(metaErr), broken(manifestErr)); err != nil {
		return nil, err
	}
	if meta != nil && meta.MaxBytes != fileSize {
		metaErr = fmt.Errorf(".meta speaks of %d bytes, the warm file has %d", meta.MaxBytes, fileSize)
		meta = nil
	}
	if meta != nil {
		if manifest.hasTouched(meta, bootID) {
			return nil, refuse(ReasonNodeRestarted, "the node has restarted (or this is another one) after memcached "+
				"started from this save: the file has changed since, and parts of it may never have reached the disk")
		}
		return &evidence{image: meta.completedBy(manifest), clean: true}, nil
	}
	if manifest == nil {
		return nil, noEvidence(metaErr, manifestErr)
	}
	image := manifest.Latest()
	switch {
	case image == nil:
		return nil, refuse(ReasonNoEvidence, "memcached never answered since the manifest was written, and there is no .meta")
	case image.MaxBytes != fileSize:
		return nil, refuse(ReasonTruncated, "the manifest speaks of %d bytes, the warm file has %d", image.MaxBytes, fileSize)
	case manifest.State == Saved:
		return &evidence{image: *image, clean: true}, nil
	case manifest.State == Died:
		return &evidence{image: *image}, nil
	case manifest.BootID == "" || manifest.BootID != bootID:
		return nil, refuse(ReasonNodeRestarted, "memcached did not save, and the node has restarted since "+
			"(or this is another node): parts of the file may never have reached the disk")
	}
	e := &evidence{image: *image}
	if manifest.Image == nil {
		// The start may have moved the mapping before it could be asked where.
		e.image.Base, e.image.ItemsExact = 0, false
	}
	return e, nil
}

// hasTouched tells whether a memcached may have worked on the file since the
// save that meta speaks of, although its .meta is there: it unlinks .meta, but
// when the node goes down right after, the disk may still hold it.
func (m *Manifest) hasTouched(meta *Image, bootID string) bool {
	return m != nil && (m.State == Starting || m.State == Running) && m.BootID != bootID &&
		m.Previous != nil && m.Previous.StopTime == meta.StopTime
}

// completedBy takes over what .meta doesn't hold from the manifest, where that
// speaks of the same save.
func (m *Image) completedBy(manifest *Manifest) Image {
	image := *m
	if manifest == nil || manifest.Latest() == nil {
		return image
	}
	known := manifest.Latest()
	image.Version = known.Version
	if known.StopTime == m.StopTime && known.ProcessStarted == m.ProcessStarted && known.ItemsExact {
		image.Items, image.ItemsExact = known.Items, true
	} else if known.StopTime == 0 && known.ProcessStarted == m.ProcessStarted {
		image.Items = known.Items
	}
	return image
}

// Restartable describes the warm file in dir as a memcached would take it up again:
// it was saved, its .meta is there and sound, and nothing has touched it since.
// An error that is ErrUnrecoverable says what is missing.
func Restartable(dir string, o Options) (*Image, error) {
	file, size, err := openFile(dir)
	if err != nil {
		return nil, err
	}
	file.Close()
	e, err := weigh(dir, size, o.withDefaults().BootID)
	if err != nil {
		return nil, err
	}
	if _, err := ReadMeta(dir); err != nil {
		return nil, refuse(ReasonNoEvidence, "memcached takes up only a file that it has saved: %v", plain(err))
	}
	return &e.image, nil
}

func noEvidence(metaErr, manifestErr error) error {
	if errors.Is(metaErr, os.ErrNotExist) && errors.Is(manifestErr, os.ErrNotExist) {
		return refuse(ReasonNoEvidence, "there is neither a .meta nor a manifest beside the warm file: nothing says what it holds")
	}
	return refuse(ReasonCorrupt, "%v; %v", plain(metaErr), plain(manifestErr))
}

// plain names a missing file by its base name, not by its mount point.
func plain(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return strings.TrimSpace(filepath.Base(p.Path) + ": " + p.Err.Error())
	}
	return err.Error()
}

// broken keeps the errors of a file that is there but can't be read now: they
// say nothing of what is in it, and another attempt may succeed.
func broken(err error) error {
	var p *os.PathError
	if errors.As(err, &p) && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// maxSmallFile bounds what is read of .meta and the manifest.
const maxSmallFile = 1 << 20

func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmallFile {
		return nil, fmt.Errorf("%s is not a small file", filepath.Base(path))
	}
	return os.ReadFile(path)
}

// ReadMeta reads what memcached wrote at its latest save.
func ReadMeta(dir string) (*Image, error) {
	data, err := RawMeta(dir)
	if err != nil {
		return nil, err
	}
	return ParseMeta(data)
}

// RawMeta is memcached's .meta: a file in dir, or a part of the save there.
func RawMeta(dir string) ([]byte, error) {
	return beside(dir, contract.MetaFile, func(h *saveHeader) []byte { return []byte(h.Meta) })
}

// ReadManifest reads what the supervisor wrote.
func ReadManifest(dir string) (*Manifest, error) {
	data, err := beside(dir, contract.Manifest, func(h *saveHeader) []byte { return h.Manifest })
	if err != nil {
		return nil, err
	}
	return ParseManifest(data)
}

// beside reads a file that speaks for the warm file in dir: from the save, where
// there is one.
func beside(dir, name string, saved func(h *saveHeader) []byte) ([]byte, error) {
	s, err := openSave(dir)
	if errors.Is(err, os.ErrNotExist) {
		return readSmall(filepath.Join(dir, name))
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	data := saved(&s.saveHeader)
	if len(data) == 0 {
		return nil, &os.PathError{Op: "read", Path: name, Err: os.ErrNotExist}
	}
	return data, nil
}

// packed tells whether what lies in dir is a save.
func packed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, contract.SaveFile))
	return err == nil
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
	f, err := os.Open(filepath.Join(dir, contract.WarmFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, refuse(ReasonMissing, "there is no %s on the volume", contract.WarmFile)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = refuse(ReasonMissing, "%s is not a file", contract.WarmFile)
	case err == nil && info.Size() == 0:
		err = refuse(ReasonTruncated, "the warm file is empty: 0 bytes")
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
