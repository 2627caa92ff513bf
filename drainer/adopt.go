package drainer

import (
	"errors"
	"path/filepath"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// A cluster that is made anew takes over the claims that one of its name has left,
// and may be of the other mode. What that one's members left on their volumes is set
// aside, and replayed like anything else that memcached doesn't take up.

// adoptWarmFile is for a member of mode Saved whose volume has a warm file.
func (s *supervisor) adoptWarmFile() (note string, err error) {
	refusal := readable(s.volume)
	switch {
	case refusal == nil:
		refusal = errors.New("its warm file is on the volume, by a member of mode Mapped")
	case unvouched(refusal) && warmfile.Unanswered(s.volume):
		return "", dropWarmFile(s.volume)
	case unvouched(refusal):
		return "memcached starts cold: nothing of its warm file can be read: " + reason(refusal), s.dropAll()
	}
	note, err = s.moveAside(s.volume, refusal)
	return note, errors.Join(err, removeDurably(filepath.Join(s.volume, contract.Manifest)))
}

// adoptSave is for a member of mode Mapped without a warm file. The mark would
// outdate the one that it is about to make, and goes.
func (s *supervisor) adoptSave() (note string, err error) {
	mark := filepath.Join(s.volume, contract.InUse)
	if missing(mark) && missing(filepath.Join(s.volume, contract.SaveFile)) {
		return "", nil
	}
	_, err = warmfile.Generations(s.volume)
	switch {
	case isReason(err, warmfile.ReasonSaveOutdated):
		note, err = "memcached starts cold: "+reason(err), s.dropAll()
	case isUnrecoverable(err):
		note, err = s.giveUp(err)
	case err == nil && !missing(filepath.Join(s.volume, contract.SaveFile)):
		note, err = s.moveAsideWithRoom(errors.New("its items are in a save, by a member of mode Saved"))
	}
	if err != nil {
		return "", err
	}
	return note, removeDurably(mark)
}
