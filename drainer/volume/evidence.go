package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/warmfile"
)

// evidence has the facts in the volume's metadata about its warm file.
type evidence struct {
	image warmfile.Image
	// clean means that memcached saved and ended.
	clean bool
}

// weigh decides from .meta and the manifest how the file may be read, or why
// it may not:
//
//	manifest says Damaged                 refused
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
	if manifest != nil && HasSave(dir) {
		bootID = manifest.BootID // a save is on the disk as a whole, or its checksums fail
	}
	if err := errors.Join(broken(metaErr), broken(manifestErr)); err != nil {
		return nil, err
	}
	if manifest != nil && manifest.State == Damaged {
		return nil, warmfile.Refuse(warmfile.ReasonDamaged, "the disk failed to store all of the warm file (%.200s): parts of the file may be outdated", manifest.Note)
	}
	if meta != nil && meta.MaxBytes != fileSize {
		metaErr = fmt.Errorf(".meta describes a warm file of %d bytes, but the file has %d", meta.MaxBytes, fileSize)
		meta = nil
	}
	if meta != nil {
		if manifest.hasTouched(meta, bootID) {
			return nil, warmfile.Refuse(warmfile.ReasonNodeRestarted, "the node has restarted (or this is another one) after memcached "+
				"started from this save: the file has changed since then, and some changes may never have reached the disk")
		}
		return &evidence{image: completed(meta, manifest), clean: true}, nil
	}
	if manifest == nil {
		return nil, noEvidence(metaErr, manifestErr)
	}
	image := manifest.Latest()
	switch {
	case image == nil:
		return nil, warmfile.Refuse(warmfile.ReasonNoEvidence, "memcached has not answered since the manifest was written, and there is no .meta: nothing describes the file")
	case image.MaxBytes != fileSize:
		return nil, warmfile.Refuse(warmfile.ReasonTruncated, "the manifest describes a warm file of %d bytes, but the file has %d", image.MaxBytes, fileSize)
	case manifest.State == Saved:
		return &evidence{image: *image, clean: true}, nil
	case manifest.State == Died:
		return &evidence{image: *image}, nil
	case manifest.BootID == "" || manifest.BootID != bootID:
		return nil, warmfile.Refuse(warmfile.ReasonNodeRestarted, "memcached did not save, and the node has restarted since "+
			"(or this is another node): parts of the file may never have reached the disk")
	}
	e := &evidence{image: *image}
	if manifest.Image == nil {
		// memcached may have moved the mapping at its start, before it could be asked where.
		e.image.Base, e.image.ItemsExact = 0, false
	}
	return e, nil
}

// hasTouched tells whether a memcached may have changed the file since meta's save, although .meta is still
// there: memcached unlinks .meta, but if the node crashes right after that, .meta may still be on the disk.
func (m *Manifest) hasTouched(meta *warmfile.Image, bootID string) bool {
	return m != nil && (m.State == Starting || m.State == Running) && m.BootID != bootID &&
		m.Previous != nil && m.Previous.StopTime == meta.StopTime
}

// completed returns .meta's image, completed from the manifest if the manifest is about the same save.
func completed(meta *warmfile.Image, manifest *Manifest) warmfile.Image {
	image := *meta
	if manifest == nil {
		return image
	}
	if known := manifest.Latest(); known != nil {
		image.Version = known.Version
		image.Complete(known) // also of an earlier save: no other build resumes from it
		same := known.ProcessStarted == meta.ProcessStarted
		if same && known.StopTime == meta.StopTime && known.ItemsExact {
			image.Items, image.ItemsExact = known.Items, true
		} else if same && known.StopTime == 0 {
			image.Items = known.Items
		}
	}
	image.Listed(manifest.Arguments)
	return image
}

func noEvidence(metaErr, manifestErr error) error {
	if errors.Is(metaErr, os.ErrNotExist) && errors.Is(manifestErr, os.ErrNotExist) {
		return warmfile.Refuse(warmfile.ReasonNoEvidence, "there is neither a .meta nor a manifest beside the warm file: nothing describes its content")
	}
	return warmfile.Refuse(warmfile.ReasonCorrupt, "%v; %v", plain(metaErr), plain(manifestErr))
}

// plain names a missing file without the volume's mount point.
func plain(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return strings.TrimSpace(filepath.Base(p.Path) + ": " + p.Err.Error())
	}
	return err.Error()
}

// broken keeps the errors of a file that exists but can't be read now: a retry may succeed.
func broken(err error) error {
	var p *os.PathError
	if errors.As(err, &p) && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
