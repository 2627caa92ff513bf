package start

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
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
	// Marked: the volume is marked as in use by a member that maps its file in memory.
	Marked bool
	// Aside are the generations that were set aside, newest first.
	Aside []volume.Generation
	// Refused says why nothing on the volume may be served, such as a mark that
	// outdates it all; nil if the newest may be.
	Refused error
	// Current: the newest file or save that may be served was not set aside.
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

// unanswered: it was new when its memcached started, and no client was ever answered.
func (f *File) unanswered() bool { return f.Manifest != nil && f.Manifest.Unanswered() }

// lookAt reads what is known of the file, or the save, of that name in dir.
func lookAt(dir, name string) File {
	f := File{Exists: !volume.Missing(filepath.Join(dir, name))}
	if !f.Exists {
		return f
	}
	if r, err := volume.Open(dir, volume.Options{}); err != nil {
		f.Unreadable = err
	} else {
		f.Unreadable = r.Close()
	}
	f.Meta, f.MetaErr = volume.ReadMeta(dir)
	if m, err := volume.ReadManifest(dir); err == nil {
		f.Manifest = m
	}
	return f
}

// Look gathers the facts, and changes nothing. installed returns the version of a
// memcached; it is nil if none is here to be asked.
func Look(m Member, installed func(program string) string) (*Facts, error) {
	f := &Facts{Saves: m.Saves(), Command: m.Command, VersionUnknown: installed == nil, Now: time.Now(),
		Marked: !volume.Missing(filepath.Join(m.Volume, contract.InUse))}
	var err error
	if f.Aside, err = volume.Aside(m.Volume); err != nil {
		return nil, err
	}
	f.File = lookAt(m.Dir(), contract.WarmFile)
	f.Save = lookAt(m.Volume, contract.SaveFile)
	if f.Saves {
		f.Foreign = lookAt(m.Volume, contract.WarmFile)
		f.SamePod = !volume.Missing(m.path(contract.Manifest))
	}
	if installed != nil && (f.File.Exists || f.Save.Exists) {
		f.Installed = installed(m.Command[0])
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

// InstalledVersion asks a memcached; "" if it doesn't say.
func InstalledVersion(ctx context.Context, program string) string {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-V").Output()
	name, version, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || name != "memcached" {
		return ""
	}
	return version
}

// refusal says why memcached would not resume from a file, nil if it would. It is
// warmfile.ErrUnrecoverable if nobody could read the file.
func (f *Facts) refusal(file *File) error {
	if file.Unreadable != nil {
		return file.Unreadable
	}
	return f.suits(file)
}

func unrecoverable(err error) bool { return errors.Is(err, warmfile.ErrUnrecoverable) }

// Undescribed tells whether a refusal is about the file's metadata: no reader could
// ever trust the file, so keeping it helps nobody.
func Undescribed(err error) bool {
	return warmfile.IsReason(err, warmfile.ReasonNoEvidence) || warmfile.IsReason(err, warmfile.ReasonNodeRestarted)
}
