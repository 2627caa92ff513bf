// Package start decides how a member's memcached starts, and prepares it. Decide is a
// pure function of Facts; Look gathers them, Prepare carries out the decision.
package start

import (
	"errors"
	"fmt"
	"slices"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// How is the way in which a memcached starts.
type How string

// The ways to start.
const (
	// Resume: memcached resumes from its warm file.
	Resume How = "Resume"
	// Load: the save on the volume is loaded into memory, and memcached resumes from it.
	Load How = "Load"
	// Replay: memcached starts with a new file, and after live traffic it is given the items of the
	// generations.
	Replay How = "Replay"
	// Cold: memcached starts with a new file, and nothing comes back.
	Cold How = "Cold"
)

// Step is one change to the volume or to the file in memory. If the member is killed between two steps, the
// next start decides again, and loses nothing that this one would have kept.
type Step string

// The steps.
const (
	// LoadSave makes the warm file in memory from the save.
	LoadSave Step = "load the save"
	// SetClock corrects the times in a save's .meta. memcached refuses a save whose time is not in the past,
	// and would keep a wrong clock.
	SetClock Step = "set the clock"
	// SaveFile saves the warm file in memory to the volume.
	SaveFile Step = "save the file"
	// MakeRoom removes old generations and saves to make Facts.Need bytes of room.
	MakeRoom Step = "make room"
	// Keep turns the file on the volume into a generation, to be replayed.
	Keep Step = "keep for a replay"
	// KeepAsFailed turns the file into a generation that only a drain reads.
	KeepAsFailed Step = "keep as failed"
	// GiveUpNewest leaves the newest generation to a drain.
	GiveUpNewest Step = "give up the newest generation"
	// DropFile removes the file that memcached would map.
	DropFile Step = "drop the file"
	// DropForeign removes the warm file that a member of mode Mapped has left.
	DropForeign Step = "drop the foreign file"
	// DropForeignManifest removes the manifest of that file.
	DropForeignManifest Step = "drop the foreign manifest"
	// DropSave removes the save.
	DropSave Step = "drop the save"
	// DropNote removes the note of a member of mode Saved.
	DropNote Step = "drop the note"
	// DropAll removes files, saves and generations.
	DropAll Step = "drop all"
)

// Decision is how to start, and why.
type Decision struct {
	How How
	// Reason says, for people, why memcached doesn't resume. Empty if nothing was ever stored, or if an earlier
	// start has logged the reason.
	Reason string
	// Steps are done in this order before memcached is started.
	Steps []Step
	// Number is the number of the generation that is made, if one is.
	Number int
	// Warning is the termination message for such a start; nil for none.
	Warning *contract.ColdStart
}

// Fresh tells whether memcached starts with a new file.
func (d *Decision) Fresh() bool { return d.How == Replay || d.How == Cold }

// Decide decides how to start, and returns an error about a fact that could not be read.
func Decide(f *Facts) (*Decision, error) {
	if f.Saves {
		return f.decideSaved()
	}
	return f.decideMapped()
}

// decideMapped is for a member that maps its file on the volume.
func (f *Facts) decideMapped() (*Decision, error) {
	if !f.File.Exists {
		return f.decideMappedWithoutFile()
	}
	refusal := f.refusal(&f.File)
	switch {
	case refusal == nil:
		return &Decision{How: Resume, Steps: f.clock(&f.File)}, nil
	case f.File.Unused:
		return f.fresh(unread("warm file", refusal), DropFile), nil
	case Undescribed(refusal):
		return cold(unread("warm file", refusal), DropAll), nil
	}
	d := f.keepInRoom(refusal)
	if d.How == Cold && f.Need > f.Free {
		d.Warning = &contract.ColdStart{NeedBytes: f.Need, FreeBytes: f.Free}
	}
	return d, nil
}

// decideMappedWithoutFile is for a volume that a member of mode Saved may have used. decideMappedWithoutFile
// removes that member's note: with the note, memcached's new file would count as outdated.
func (f *Facts) decideMappedWithoutFile() (*Decision, error) {
	var d *Decision
	switch {
	case !f.InUse && !f.Save.Exists:
		return f.fresh(""), nil
	case f.outdated():
		d = cold("memcached starts cold: "+contract.OneLine(f.Refused), DropAll)
	case unrecoverable(f.Refused):
		d = f.giveUp()
	case f.Refused != nil:
		return nil, f.Refused
	case f.Save.Exists:
		d = f.keepInRoom(errors.New("its items are in a save of a member of mode Saved"))
	default:
		d = f.fresh("")
	}
	d.Steps = append(d.Steps, DropNote)
	return d, nil
}

// keepInRoom keeps the file, or the save, for a replay if there is room for a second file.
func (f *Facts) keepInRoom(refusal error) *Decision {
	if f.Need > f.Free {
		return cold(fmt.Sprintf("memcached starts cold: %s; to replay its items, the volume lacks %d MiB of room for a second file of %d MiB",
			contract.OneLine(refusal), volume.Mebibytes(f.Need-f.Free), f.Need>>20), DropAll)
	}
	return f.keep(refusal, MakeRoom)
}

// keep turns the file on the volume into a generation; if no replay can read the file, into one for a drain.
func (f *Facts) keep(refusal error, before ...Step) *Decision {
	left := f.Kept
	if slices.Contains(before, MakeRoom) || slices.Contains(before, SaveFile) {
		left = left[:max(0, len(left)-f.Victims)]
	}
	d := &Decision{How: Replay, Number: 1, Steps: append(before, Keep)}
	if len(left) > 0 {
		d.Number = left[0].Number + 1
	}
	if unrecoverable(refusal) {
		d.How, d.Steps[len(before)] = Cold, KeepAsFailed
		d.Warning = &contract.ColdStart{Unreadable: fmt.Sprintf("%.*s", maxUnreadable, contract.OneLine(refusal))}
		d.Reason = fmt.Sprintf("memcached starts cold: %s; the file stays in %s for a drain to look at",
			contract.OneLine(refusal), volume.GenerationName(d.Number, true))
		return d
	}
	d.Reason = fmt.Sprintf("memcached would start cold: %s; the items are replayed from %s",
		contract.OneLine(refusal), volume.GenerationName(d.Number, false))
	return d
}

// maxUnreadable bounds how much of a refusal goes into a termination message, in bytes.
const maxUnreadable = 512

// giveUp keeps the newest generation, which can't be read, for a drain. Older generations must not be
// replayed without it, because it may have newer values.
func (f *Facts) giveUp() *Decision {
	if f.Save.Exists {
		return f.keep(f.Refused)
	}
	d := cold("memcached starts cold: " + contract.OneLine(f.Refused))
	if volume.Replayable(f.Kept) {
		d.Steps = append(d.Steps, GiveUpNewest)
	}
	return d
}

// decideSaved is for a member that maps its file in memory.
func (f *Facts) decideSaved() (*Decision, error) {
	if !f.File.Exists {
		return f.decideByVolume()
	}
	refusal := f.refusal(&f.File)
	switch {
	case refusal == nil:
		return &Decision{How: Resume, Steps: f.clock(&f.File)}, nil
	case f.covered(), f.NotSavable != nil, f.File.Unused,
		f.Current && (Undescribed(refusal) || f.Need > f.Free):
		// If the supervisor outlived memcached, the volume already has a save of the file. In the other cases
		// the file can't be saved, or has nothing worth saving; the volume may have a part of its items.
		d, err := f.decideByVolume()
		if err == nil {
			d.Steps = append([]Step{DropFile}, d.Steps...)
		}
		return d, err
	case Undescribed(refusal):
		return cold(unread("warm file", refusal), DropAll, DropFile), nil
	case f.Need > f.Free:
		return cold(fmt.Sprintf("memcached starts cold: %s; to replay its items, %v",
			contract.OneLine(refusal), &volume.RoomError{Need: f.Need, Lacking: f.Need - f.Free}), DropAll, DropFile), nil
	}
	return f.keep(refusal, SaveFile, DropFile), nil
}

// covered tells whether the newest file or save on the volume has everything that the file in memory has.
func (f *Facts) covered() bool {
	return f.Current && (!f.Save.Exists || f.Save.Ended && f.Save.Incomplete == nil)
}

// decideByVolume decides by the files on the volume.
func (f *Facts) decideByVolume() (*Decision, error) {
	switch {
	case f.Foreign.Exists:
		return f.foreign(), nil
	case warmfile.IsReason(f.Refused, warmfile.ReasonMissing):
		return cold(""), nil
	case f.outdated() && f.SamePod:
		// This pod left the note, and its memcached has made no file since then. So the generations that waited
		// for a replay still wait.
		return f.fresh(""), nil
	case f.outdated():
		d := cold("memcached starts cold: "+contract.OneLine(f.Refused), DropAll)
		d.Warning = &contract.ColdStart{SaveOutdated: true}
		if warmfile.IsReason(f.Refused, warmfile.ReasonSaveFailed) {
			d.Warning.SaveError = contract.OneLine(f.Refused)
		}
		return d, nil
	case unrecoverable(f.Refused):
		return f.giveUp(), nil
	case f.Refused != nil:
		return nil, f.Refused
	case !f.Current:
		return f.fresh(""), nil
	}
	refusal := f.refusal(&f.Save)
	switch {
	case refusal == nil:
		return &Decision{How: Load, Steps: append([]Step{LoadSave}, f.clock(&f.Save)...)}, nil
	case f.Save.Unused:
		return f.fresh("", DropSave), nil
	case Undescribed(refusal):
		return cold(unread("save", refusal), DropAll), nil
	}
	d := f.keep(refusal)
	if f.Save.Incomplete != nil {
		d.Warning = &contract.ColdStart{SaveIncomplete: contract.OneLine(f.Save.Incomplete)}
	}
	return d, nil
}

// clock returns the step that corrects the times in the save's .meta; none if they are right.
func (f *Facts) clock(file *File) []Step {
	if file.Meta.Redated(f.Now.Unix()) == file.Meta {
		return nil
	}
	return []Step{SetClock}
}

// outdated tells whether a member has run since the newest save was made.
func (f *Facts) outdated() bool {
	return warmfile.IsReason(f.Refused, warmfile.ReasonSaveOutdated) || warmfile.IsReason(f.Refused, warmfile.ReasonSaveFailed)
}

// foreign keeps a warm file that a member of mode Mapped has left on the volume.
func (f *Facts) foreign() *Decision {
	refusal := f.Foreign.Unreadable
	switch {
	case refusal == nil:
		refusal = errors.New("its warm file on the volume is of a member of mode Mapped")
	case f.Foreign.Unused:
		return f.fresh("", DropForeign)
	case Undescribed(refusal):
		return cold(unread("warm file", refusal), DropAll)
	}
	d := f.keep(refusal)
	d.Steps = append(d.Steps, DropForeignManifest)
	return d
}

func unread(what string, refusal error) string {
	return "memcached starts cold: nothing of its " + what + " can be read: " + contract.OneLine(refusal)
}

func cold(reason string, steps ...Step) *Decision {
	return &Decision{How: Cold, Reason: reason, Steps: steps}
}

// fresh starts with a new file, and replays the generations, if there are any.
func (f *Facts) fresh(reason string, steps ...Step) *Decision {
	d := cold(reason, steps...)
	if volume.Replayable(f.Kept) {
		d.How = Replay
	}
	return d
}
