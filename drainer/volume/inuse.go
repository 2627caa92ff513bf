package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// InUse is the note that a member leaves on a volume of saves before its memcached starts. From then on
// clients write to memory, and the saves on the volume are outdated. Only a save with a higher number is
// newer.
type InUse struct {
	// Number is the number of the newest save at that time, 0 for none.
	Number int64 `json:"number"`
	// Since is when the member started, by the member's clock.
	Since time.Time `json:"since"`
	// Rate is how many bytes per second the latest known save was written; 0 if no save is known.
	Rate int64 `json:"saveBytesPerSecond,omitempty"`
	// Unsaved is why the member could not save at its end, if it was able to report that.
	Unsaved string `json:"unsaved,omitempty"`
}

// Marshal encodes the note.
func (u InUse) Marshal() ([]byte, error) {
	b, err := json.Marshal(u)
	return append(b, '\n'), err
}

// ReadInUse returns the note on the volume; os.ErrNotExist if there is none.
func ReadInUse(dir string) (*InUse, error) {
	b, err := readSmall(filepath.Join(dir, contract.InUse))
	if err != nil {
		return nil, err
	}
	var u InUse
	if err := json.Unmarshal(b, &u); err != nil || u.Number < 0 || u.Since.IsZero() {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the note %s can't be read: %.40q", contract.InUse, b)
	}
	return &u, nil
}

// NoteInUse writes, durably, that everything on the volume is outdated from now on. NoteInUse returns the
// previous note, nil if there was none.
func NoteInUse(dir string) (before *InUse, err error) {
	before, err = ReadInUse(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, warmfile.ErrUnrecoverable) {
		return nil, err
	}
	last, err := LastNumber(dir)
	if err != nil {
		return nil, err
	}
	return before, writeNote(dir, InUse{Number: last, Since: time.Now().UTC().Truncate(time.Second), Rate: SaveRate(dir)})
}

// SaveRate returns how many bytes per second the latest known save was written; 0 if no save is known.
func SaveRate(dir string) (rate int64) {
	note, err := ReadInUse(dir)
	if err == nil {
		rate = note.Rate
	}
	kept, _ := Kept(dir)
	for _, g := range append([]Generation{{Dir: dir}}, kept...) {
		s, err := openSave(g.Dir)
		if err != nil {
			continue
		}
		known := int64(0)
		if note == nil || s.Number > note.Number { // otherwise the note has a later rate
			known = s.Rate()
		}
		_ = s.Close()
		if known > 0 {
			return known
		}
	}
	return rate
}

// NoteUnsaved adds to the note why the member could not save.
func NoteUnsaved(dir string, why error) error {
	note, err := ReadInUse(dir)
	if err != nil {
		return err
	}
	const most = 512 // in bytes: the note is a small file
	note.Unsaved = fmt.Sprintf("%.*s", most, contract.OneLine(why))
	return writeNote(dir, *note)
}

// noteSaved removes from the note, if there is one, the reason why there was no save.
func noteSaved(dir string) error {
	note, err := ReadInUse(dir)
	if err != nil || note.Unsaved == "" {
		return nil // the readers of the note report that it can't be read
	}
	note.Unsaved = ""
	return writeNote(dir, *note)
}

// PutNoteBack is for the end of a memcached that resumed from nothing and answered no client: the volume is
// as current as before.
func PutNoteBack(dir string, before *InUse) error {
	if before != nil {
		return writeNote(dir, *before)
	}
	return DropNote(dir)
}

// DropNote removes the note.
func DropNote(dir string) error { return removeDurably(filepath.Join(dir, contract.InUse)) }

func writeNote(dir string, note InUse) error {
	b, err := note.Marshal()
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, contract.InUse), b)
}

// LastNumber returns the highest number of all saves that are, or were, on the volume.
func LastNumber(dir string) (int64, error) {
	last := int64(0)
	note, err := ReadInUse(dir)
	switch {
	case err == nil:
		last = note.Number
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, warmfile.ErrUnrecoverable):
		return 0, err
	}
	kept, err := Kept(dir)
	if err != nil {
		return 0, err
	}
	for _, g := range append(kept, Generation{Dir: dir}) {
		s, err := openSave(g.Dir)
		switch {
		case err == nil:
			last = max(last, s.Number)
			s.Close()
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, warmfile.ErrUnrecoverable):
			return 0, err
		}
	}
	return last, nil
}

// outdated refuses the generations of a volume of saves, given newest first, if a member has run since the
// newest was made: newer values were in that member's memory.
func outdated(dir string, newestFirst []Generation) error {
	note, err := ReadInUse(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	since := note.Since.UTC().Format(time.RFC3339)
	if len(newestFirst) == 0 && note.Unsaved != "" {
		return note.unsaved()
	}
	if len(newestFirst) == 0 {
		return warmfile.Refuse(warmfile.ReasonSaveOutdated, "the member that started at %s ended without a save: its items were in memory only, and are lost", since)
	}
	s, err := openSave(newestFirst[0].Dir)
	if errors.Is(err, os.ErrNotExist) {
		return warmfile.Refuse(warmfile.ReasonSaveOutdated, "the warm file on the volume is outdated: a member that started at %s kept its items in memory, and ended without a save", since)
	}
	if err != nil {
		return fmt.Errorf("read the newest save: %w", err)
	}
	defer s.Close()
	switch {
	case s.Number > note.Number:
		return nil
	case note.Unsaved != "":
		return note.unsaved()
	}
	return warmfile.Refuse(warmfile.ReasonSaveOutdated, "the save of %s is outdated: a member started from it at %s, and ended without a new save; what clients stored since then is lost",
		s.Made.UTC().Format(time.RFC3339), since)
}

// unsaved returns the refusal of generations that are older than items that could not be saved.
func (u *InUse) unsaved() error {
	return warmfile.Refuse(warmfile.ReasonSaveFailed, "the member that started at %s could not save its items when it ended: %s", u.Since.UTC().Format(time.RFC3339), u.Unsaved)
}
