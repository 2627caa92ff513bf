package drainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// A member of mode Saved has its warm file in memory, in a directory that outlives
// its container and not its pod. Its volume holds saves: one that is current or
// that the member started from, and, as generations, what is still to be replayed.
//
// Clients write to memory, so every save grows old when a member starts. The mark
// that says so (warmfile.InUse) is on the disk before memcached is: whatever ends
// the member, nothing but a later save is ever taken for current.

// newSave is a save that is being written.
const newSave = contract.SaveFile + ".new"

// saves tells whether the warm file is not on the volume.
func (s *supervisor) saves() bool { return s.dir != s.volume }

// load is prepare for a warm file in memory.
func (s *supervisor) load(ctx context.Context) (fresh bool, note string, err error) {
	resumed := !missing(s.path(contract.Manifest))
	if err := errors.Join(sweep(s.dir), sweep(s.volume)); err != nil {
		return false, "", err
	}
	if !missing(s.path(contract.WarmFile)) {
		refusal := s.refusal(ctx, s.dir)
		if refusal == nil {
			return false, "", nil
		}
		if note, err := s.keep(ctx, refusal); err != nil || note != "" {
			return true, note, err
		}
	}
	if !missing(filepath.Join(s.volume, contract.WarmFile)) {
		note, err := s.adoptWarmFile()
		return true, note, err
	}
	found, err := warmfile.Generations(s.volume)
	switch {
	case isReason(err, warmfile.ReasonMissing):
		return true, "", nil
	case isReason(err, warmfile.ReasonSaveOutdated) && resumed:
		// It was this pod that left the mark, and its memcached hasn't made a file
		// since: what is to be replayed still is.
		return true, "", nil
	case isReason(err, warmfile.ReasonSaveOutdated):
		return true, "memcached starts cold: " + reason(err), s.dropAll()
	case isUnrecoverable(err):
		note, err := s.giveUp(err)
		return true, note, err
	case err != nil:
		return false, "", err
	case found[0].Number != 0:
		return true, "", nil // the replay finds it
	}
	return s.loadSave(ctx)
}

// loadSave brings the volume's current save to memory, if memcached will take it
// up; if not, it is replayed from where it lies.
func (s *supervisor) loadSave(ctx context.Context) (fresh bool, note string, err error) {
	refusal := s.refusal(ctx, s.volume)
	if refusal == nil {
		start := time.Now()
		if err = warmfile.Unpack(ctx, s.volume, s.dir, nil); err == nil {
			s.logf("the save is loaded after %v", time.Since(start).Round(time.Millisecond))
			return false, "", nil
		}
		if !isUnrecoverable(err) {
			return false, "", fmt.Errorf("load the save: %w", err)
		}
		refusal = err
	}
	switch {
	case unvouched(refusal) && warmfile.Unanswered(s.volume):
		return true, "", removeDurably(filepath.Join(s.volume, contract.SaveFile))
	case unvouched(refusal):
		return true, "memcached starts cold: nothing of its save can be read: " + reason(refusal), s.dropAll()
	}
	note, err = s.moveAside(s.volume, refusal)
	return true, note, err
}

// keep brings what an earlier container of this pod left in memory, and memcached
// would not take up, to the volume. The note says why not.
func (s *supervisor) keep(ctx context.Context, refusal error) (note string, err error) {
	found, err := warmfile.Generations(s.volume)
	switch {
	case err == nil && found[0].Number == 0:
		return "", s.dropCurrent() // it is there: the supervisor outlived memcached
	case unvouched(refusal) && warmfile.Unanswered(s.dir):
		return "", s.dropCurrent()
	case unvouched(refusal):
		return "memcached starts cold: nothing of its warm file can be read: " + reason(refusal), s.dropAll()
	}
	err = s.pack(ctx)
	var room *roomError
	if errors.As(err, &room) {
		return fmt.Sprintf("memcached starts cold: %s; to replay its items, %v", reason(refusal), err), s.dropAll()
	}
	return "", errors.Join(err, s.dropCurrent())
}

// giveUp sets aside, for a drain to look at, the newest of what can't be read: what
// is older must not be replayed without it.
func (s *supervisor) giveUp(refusal error) (note string, err error) {
	if !missing(filepath.Join(s.volume, contract.SaveFile)) {
		return s.moveAside(s.volume, refusal)
	}
	aside, err := warmfile.Aside(s.volume)
	if err == nil && len(aside) > 0 && !aside[0].Failed {
		err = markFailed(aside[0])
	}
	return "memcached starts cold: " + reason(refusal), err
}

// pack saves the warm file in memory to the volume. The save that was there is
// outdated, and stays only as long as there is room for both.
func (s *supervisor) pack(ctx context.Context) error {
	if missing(s.path(contract.WarmFile)) {
		return nil
	}
	need, err := warmfile.PackedSize(s.dir)
	if err != nil {
		return err
	}
	lacking, err := s.makeRoom(need)
	if err != nil {
		return err
	}
	if lacking > 0 {
		return &roomError{need, lacking}
	}
	last, err := warmfile.LastNumber(s.volume)
	if err != nil {
		return err
	}
	path := filepath.Join(s.volume, newSave)
	if err := warmfile.Pack(ctx, s.dir, path, last+1); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err := os.Rename(path, filepath.Join(s.volume, contract.SaveFile)); err != nil {
		return err
	}
	return syncPath(s.volume)
}

// roomError: the volume is too small for a save.
type roomError struct{ need, lacking int64 }

func (e *roomError) Error() string {
	return fmt.Sprintf("the volume lacks %d MiB of room for a save of %d MiB", mebibytes(e.lacking), mebibytes(e.need))
}

func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// markInUse says on the disk that all that lies on the volume grows old from now.
func (s *supervisor) markInUse() error {
	mark, err := warmfile.ReadInUse(s.volume)
	if err == nil {
		s.mark = mark
	} else if !errors.Is(err, os.ErrNotExist) && !isUnrecoverable(err) {
		return err
	}
	last, err := warmfile.LastNumber(s.volume)
	if err != nil {
		return err
	}
	return s.writeMark(warmfile.InUse{Number: last, Since: time.Now().UTC().Truncate(time.Second)})
}

// unmark is for the end of a memcached that took nothing up and told nobody
// anything: what lies on the volume is as current as it was.
func (s *supervisor) unmark() error {
	if s.mark != nil {
		return s.writeMark(*s.mark)
	}
	return removeDurably(filepath.Join(s.volume, contract.InUse))
}

func (s *supervisor) writeMark(mark warmfile.InUse) error {
	b, err := mark.Marshal()
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(s.volume, contract.InUse), b, true)
}

func isReason(err error, reason warmfile.Reason) bool {
	var refusal *warmfile.Error
	return errors.As(err, &refusal) && refusal.Reason == reason
}
