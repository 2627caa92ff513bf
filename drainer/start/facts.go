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
	// Volume is the member's, Memory a directory in memory for the warm file. If Memory
	// is empty, memcached maps its file on the volume (storage mode Mapped).
	Volume, Memory string
	// Command is memcached and its arguments.
	Command []string
}

// Saves tells whether the warm file is not on the volume (storage mode Saved).
func (m Member) Saves() bool { return m.Memory != "" && m.Memory != m.Volume }

// Dir is where memcached maps its file.
func (m Member) Dir() string { return cmp.Or(m.Memory, m.Volume) }

func (m Member) path(name string) string { return filepath.Join(m.Dir(), name) }

// Facts are everything that a start depends on.
type Facts struct {
	// Saves: memcached maps its file in memory, and the volume has saves of it.
	Saves bool
	// Command of the memcached to start; Installed is its version, "" if it doesn't
	// say. VersionUnknown: it isn't here to be asked.
	Command        []string
	Installed      string
	VersionUnknown bool
	// InstalledFlags is how many bytes its client flags have; 0 if it doesn't say.
	InstalledFlags int
	// Now is the node's clock.
	Now time.Time

	// File is the file that memcached would map: in memory, or on the volume.
	File File
	// Foreign is a warm file on the volume of a member that maps its own in memory:
	// a member of mode Mapped has left it.
	Foreign File
	// Save is the save on the volume. In mode Mapped, a member of mode Saved has left
	// it.
	Save File
	// InUse: the volume has the note of a member that maps its file in memory.
	InUse bool
	// Kept are the generations that wait for a replay, or have failed, newest first.
	Kept []volume.Generation
	// Refused says why nothing on the volume may be served, such as a note that
	// outdates it all; nil if the newest may be.
	Refused error
	// Current: the newest file or save that may be served is no generation.
	Current bool
	// SamePod: a member has started in this pod before, and left its manifest in memory.
	SamePod bool

	// Need is the room, in bytes, that it takes to keep the file beside memcached's new
	// one, and Free the room that can be made. Both are 0 if there is nothing to keep.
	Need, Free int64
	// Victims is how many of the oldest generations have to be removed for that room.
	Victims int
	// NotSavable says why no save can be made of the file in memory.
	NotSavable error
}

// File is a warm file, or a save of one, with what describes it.
type File struct {
	Exists bool
	// Unreadable says why nobody can read it.
	Unreadable error
	// Incomplete says why it can't be resumed from, although what is there of it is right:
	// a save that was cut short, or that has a damaged page.
	Incomplete error
	// Ended: it is a save of everything that its warm file had.
	Ended bool
	// FlagsBytes is how many bytes client flags have in it; 0 unknown, or it has none.
	FlagsBytes int
	// Unused: no client has ever stored anything in it.
	Unused bool
	// Meta is what memcached says of its save; nil, and MetaErr says why.
	Meta    *warmfile.Image
	MetaErr error
	// Manifest is the supervisor's; nil if there is none.
	Manifest *volume.Manifest
}

func (f *File) latest() *warmfile.Image {
	if f.Manifest == nil {
		return nil
	}
	return f.Manifest.Latest()
}

// Ask says which memcached a program is: its version, "" if it doesn't say, and how many
// bytes its client flags have, 0 if it doesn't.
type Ask func(ctx context.Context, program string) (version string, flagsBytes int)

// lookAt reads what is known of the file, or the save, of that name in dir. If layout is
// set, it also finds out how long the client flags are. An error says that nobody can tell now.
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

// Look gathers the facts, and changes nothing. ask is nil if no memcached is here to be
// asked.
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
			f.Save, err = File{Exists: true, Unreadable: err}, nil // what is in memory is newer
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

// measure computes the room that it takes to keep a file, if one is to be kept.
func (f *Facts) measure(m Member) (err error) {
	switch {
	case !f.Saves && (f.File.Exists && f.refusal(&f.File) != nil || f.Save.Exists):
		f.Need = MemoryLimit(f.Command)
		f.Need += volume.MarksBytes(f.Need) // of what is replayed from the kept file
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
		if g.Number != 0 { // otherwise it is the save
			f.Victims++
		}
	}
	return err
}

// refusal says why memcached would not resume from a file, nil if it would. It is
// warmfile.ErrUnrecoverable if nobody could read the file.
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

// Undescribed tells whether a refusal is about what is known of the file, and not about
// its content: no reader could ever trust the file, so keeping it helps nobody.
func Undescribed(err error) bool {
	return warmfile.IsReason(err, warmfile.ReasonNoEvidence) || warmfile.IsReason(err, warmfile.ReasonNodeRestarted) ||
		warmfile.IsReason(err, warmfile.ReasonDamaged)
}
