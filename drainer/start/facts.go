package start

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// Member is the member that starts.
type Member struct {
	// Volume is the directory of the member's volume. Memory is a directory in memory for the warm file. If
	// Memory is empty, memcached maps its file on the volume (storage mode Mapped).
	Volume, Memory string
	// Command is memcached and its arguments.
	Command []string
}

// Saves tells whether the warm file is not on the volume (storage mode Saved).
func (m Member) Saves() bool { return m.Memory != "" && m.Memory != m.Volume }

// Dir is where memcached maps its file.
func (m Member) Dir() string { return cmp.Or(m.Memory, m.Volume) }

func (m Member) path(name string) string { return filepath.Join(m.Dir(), name) }

// Facts are all that the decision about a start depends on.
type Facts struct {
	// Saves means that memcached maps its file in memory, and the volume has saves of it.
	Saves bool
	// Command is that of the memcached to start. Installed is its version, "" if it doesn't say.
	// VersionUnknown means that the program isn't installed here and can't be asked.
	Command        []string
	Installed      string
	VersionUnknown bool
	// InstalledFlags is how many bytes its client flags take; 0 if it doesn't say.
	InstalledFlags int
	// Now is the node's clock.
	Now time.Time

	// File is the file that memcached would map, in memory or on the volume.
	File File
	// Foreign is a warm file that a member of mode Mapped has left on the volume of a member that maps its
	// own file in memory.
	Foreign File
	// Save is the save on the volume. In mode Mapped, a member of mode Saved has left it.
	Save File
	// InUse means that the volume has the note of a member that maps its file in memory.
	InUse bool
	// Kept are the generations that wait for a replay or have failed, newest first.
	Kept []volume.Generation
	// Refused is why nothing on the volume may be served, for example because the note says that all is outdated;
	// nil if the newest file, save or generation may be served.
	Refused error
	// Current means that a file or a save is the newest that may be served, and not a generation.
	Current bool
	// SamePod means that a member has started in this pod before, and left its manifest in memory.
	SamePod bool

	// Need is how many bytes of room are needed to keep the file beside memcached's new one. Free is how many
	// can be made free. Both are 0 if there is nothing to keep.
	Need, Free int64
	// Victims is how many of the oldest generations have to be removed to make that room.
	Victims int
	// NotSavable is why the file in memory can't be saved.
	NotSavable error
}

// File is a warm file or a save, with its descriptions.
type File struct {
	Exists bool
	// Unreadable is why no reader can read the file.
	Unreadable error
	// Incomplete is why memcached can't resume from the file, although the rest of it is right: the save was
	// cut short, or a page of it is damaged.
	Incomplete error
	// Ended means that the save has everything that its warm file had.
	Ended bool
	// FlagsBytes is how many bytes client flags take in the file; 0 if unknown, or if it has none.
	FlagsBytes int
	// Unused means that no client has ever stored anything in the file.
	Unused bool
	// Meta is memcached's own description of its save. If it is nil, MetaErr is the reason.
	Meta    *warmfile.Image
	MetaErr error
	// Manifest is the supervisor's description; nil if there is none.
	Manifest *volume.Manifest
}

func (f *File) latest() *warmfile.Image {
	if f.Manifest == nil {
		return nil
	}
	return f.Manifest.Latest()
}

// Ask asks a memcached program for its version, "" if it doesn't say, and for how many bytes its client flags
// take, 0 if it doesn't say.
type Ask func(ctx context.Context, program string) (version string, flagsBytes int)

// lookAt reads the descriptions of the file or the save with that name in dir. If layout is set, lookAt also finds
// out how many bytes client flags take. lookAt returns an error if it can't read them now.
func lookAt(ctx context.Context, dir, name string, layout bool) (f File, err error) {
	f.Exists = !volume.Missing(filepath.Join(dir, name))
	if name == contract.SaveFile {
		f.Exists = volume.HasSave(dir)
		f.Ended = volume.Ended(dir)
		if f.Incomplete, err = volume.Incomplete(dir); err != nil {
			return f, err
		}
	}
	if !f.Exists {
		return f, nil
	}
	r, err := volume.Open(dir, volume.Options{})
	switch {
	case err != nil && name == contract.SaveFile && !unrecoverable(err):
		return f, err
	case err != nil:
		f.Unreadable = err
	default:
		if layout {
			f.FlagsBytes, f.Unreadable = r.FlagsBytes(ctx)
		}
		if err := errors.Join(f.Unreadable, r.Close()); err != nil && !unrecoverable(err) {
			return f, err
		}
	}
	f.Meta, f.MetaErr = volume.ReadMeta(dir)
	m, manifestErr := volume.ReadManifest(dir)
	for _, err := range []error{f.MetaErr, manifestErr} {
		var unread *os.PathError
		if errors.As(err, &unread) && !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
	if manifestErr == nil {
		f.Manifest = m
	}
	f.Unused, err = volume.NothingStored(dir, volume.Options{})
	return f, err
}

// Look gathers the facts and changes nothing. ask is nil if memcached is not installed here.
func Look(ctx context.Context, m Member, ask Ask) (*Facts, error) {
	f := &Facts{Saves: m.Saves(), Command: m.Command, VersionUnknown: ask == nil, Now: time.Now(),
		InUse: !volume.Missing(filepath.Join(m.Volume, contract.InUse))}
	var err error
	if f.Kept, err = volume.Kept(m.Volume); err != nil {
		return nil, err
	}
	for _, look := range []struct {
		file      *File
		dir, name string
		layout    bool
	}{
		{&f.File, m.Dir(), contract.WarmFile, ask != nil},
		{&f.Save, m.Volume, contract.SaveFile, ask != nil},
		{&f.Foreign, m.Volume, contract.WarmFile, false},
	} {
		if look.file == &f.Foreign && !f.Saves {
			continue
		}
		*look.file, err = lookAt(ctx, look.dir, look.name, look.layout)
		if look.file == &f.Save && f.Saves && f.File.Exists && err != nil {
			f.Save, err = File{Exists: true, Unreadable: err}, nil // the file in memory is newer
		}
		if err != nil {
			return nil, err
		}
	}
	if f.Saves {
		f.SamePod = !volume.Missing(m.path(contract.Manifest))
	}
	if ask != nil && (f.File.Exists || f.Save.Exists) {
		f.Installed, f.InstalledFlags = ask(ctx, m.Command[0])
	}
	found, err := volume.Generations(m.Volume)
	f.Refused, f.Current = err, err == nil && found[0].Number == 0
	return f, f.measure(m)
}

// keptBeside returns how much room a member of mode Mapped needs to start beside a file that is replayed: for its new
// file, and for the marks of replayed items.
func keptBeside(command []string) int64 {
	file := MemoryLimit(command)
	return file + volume.MarksBytes(file)
}

// measure computes the room that is needed to keep a file, if one is to be kept.
func (f *Facts) measure(m Member) (err error) {
	switch {
	case !f.Saves && (f.File.Exists && f.refusal(&f.File) != nil || f.Save.Exists):
		f.Need = keptBeside(f.Command)
	case f.Saves && f.File.Exists && f.refusal(&f.File) != nil:
		f.Need, err = volume.PackedSize(m.Memory)
		if unrecoverable(err) {
			f.NotSavable = err
			return nil
		}
		if err != nil {
			return err
		}
	default:
		return nil
	}
	free, victims, err := volume.Room(m.Volume, f.Need, f.Saves)
	f.Free = free
	for _, g := range victims {
		if g.Number != 0 { // a generation, not the save
			f.Victims++
		}
	}
	return err
}

// refusal returns why memcached would not resume from a file, nil if it would. The error is
// warmfile.ErrUnrecoverable if no reader can read the file.
func (f *Facts) refusal(file *File) error {
	if file.Unreadable != nil {
		return file.Unreadable
	}
	if file.Incomplete != nil {
		return file.Incomplete
	}
	return f.suits(file)
}

func unrecoverable(err error) bool { return errors.Is(err, warmfile.ErrUnrecoverable) }

// Undescribed tells whether a refusal is about a file's descriptions, and not about its content. No reader
// could ever trust such a file, so it is not worth keeping.
func Undescribed(err error) bool {
	return warmfile.IsReason(err, warmfile.ReasonNoEvidence) || warmfile.IsReason(err, warmfile.ReasonNodeRestarted) ||
		warmfile.IsReason(err, warmfile.ReasonDamaged)
}
