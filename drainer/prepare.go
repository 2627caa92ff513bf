package drainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// prepare clears the way for memcached. It returns whether that will start
// with a new file, and a note for people. A warm file that memcached might not
// take up is moved aside, so that memcached never works on the only copy.
func (s *supervisor) prepare(ctx context.Context) (fresh bool, note string, err error) {
	if s.saves() {
		return s.load(ctx)
	}
	if err := sweep(s.dir); err != nil {
		return false, "", err
	}
	if missing(s.path(contract.WarmFile)) {
		note, err := s.adoptSave()
		return true, note, err
	}
	refusal := s.refusal(ctx, s.dir)
	switch {
	case refusal == nil:
		return false, "", nil
	case unvouched(refusal):
		note := "memcached starts cold: nothing of its warm file can be read: " + reason(refusal)
		if warmfile.Unanswered(s.dir) {
			return true, note, s.dropCurrent()
		}
		return true, note, s.dropAll()
	}
	note, err = s.moveAsideWithRoom(refusal)
	return true, note, err
}

// moveAsideWithRoom is moveAside for a volume that is to hold a second file.
func (s *supervisor) moveAsideWithRoom(refusal error) (note string, err error) {
	switch lacking, err := s.makeRoom(memoryLimit(s.command)); {
	case err != nil:
		return "", err
	case lacking > 0:
		note := fmt.Sprintf("memcached starts cold: %s; to replay its items, the volume lacks %d MiB of room for a second file of %d MiB",
			reason(refusal), mebibytes(lacking), memoryLimit(s.command)>>20)
		return note, s.dropAll()
	}
	return s.moveAside(s.dir, refusal)
}

// moveAside makes a generation of what lies in dir, and returns a note about it.
func (s *supervisor) moveAside(dir string, refusal error) (note string, err error) {
	failed := isUnrecoverable(refusal)
	g, err := setAside(dir, failed)
	if err != nil {
		return "", fmt.Errorf("move the warm file aside: %w", err)
	}
	if failed {
		return fmt.Sprintf("memcached starts cold: %s; the file stays in %s for a drain to look at", reason(refusal), filepath.Base(g.Dir)), nil
	}
	return fmt.Sprintf("memcached would start cold: %s; the items are replayed from %s", reason(refusal), filepath.Base(g.Dir)), nil
}

// refusal says why memcached would not take up what lies in dir, nil where it
// will; it is ErrUnrecoverable where nobody could read it.
func (s *supervisor) refusal(ctx context.Context, dir string) error {
	if err := readable(dir); err != nil {
		return err
	}
	return doubt(ctx, dir, s.command)
}

// readable returns the refusal to read the warm file, if there is one.
func readable(dir string) error {
	r, err := warmfile.Open(dir, warmfile.Options{})
	if err != nil {
		return err
	}
	return r.Close()
}

func isUnrecoverable(err error) bool { return errors.Is(err, warmfile.ErrUnrecoverable) }

// unvouched tells whether a refusal is about what lies beside the file: no
// reader could ever believe what is in it, so keeping it helps nobody.
func unvouched(err error) bool {
	var refusal *warmfile.Error
	return errors.As(err, &refusal) &&
		(refusal.Reason == warmfile.ReasonNoEvidence || refusal.Reason == warmfile.ReasonNodeRestarted)
}

// reason is an error for people, without the volume's mount point.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return filepath.Base(p.Path) + ": " + p.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// makeRoom finds need bytes of room on the volume, beside what is there. Where
// there is too little, an outdated save goes first, and then the oldest
// generations: what they hold is the least likely to be asked for, and without the
// newest it would be wrong to serve them. They stay where that would not help. It
// returns how much is missing.
func (s *supervisor) makeRoom(need int64) (lacking int64, err error) {
	free, victims, err := s.room(need)
	if err != nil || need > free {
		return need - free, err
	}
	for _, g := range victims {
		if g.Number == 0 {
			err = removeDurably(filepath.Join(g.Dir, contract.SaveFile))
		} else {
			s.logf("%s is removed to make room on the volume: its items that were not replayed are lost", filepath.Base(g.Dir))
			err = discard(g)
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// room returns what is free on the volume once the victims, in this order, are
// gone: as many as it takes to have need bytes.
func (s *supervisor) room(need int64) (free int64, victims []warmfile.Generation, err error) {
	if free, err = freeBytes(s.volume); err != nil {
		return 0, nil, err
	}
	candidates, err := warmfile.Aside(s.volume)
	if err != nil {
		return 0, nil, err
	}
	slices.Reverse(candidates)
	if s.saves() && !missing(filepath.Join(s.volume, contract.SaveFile)) {
		candidates = slices.Insert(candidates, 0, warmfile.Generation{Dir: s.volume})
	}
	for _, g := range candidates {
		if need <= free {
			break
		}
		n, err := allocated(g)
		if err != nil {
			return 0, nil, err
		}
		free += n
		victims = append(victims, g)
	}
	return free, victims, nil
}

// dropCurrent removes the warm file and what speaks for it.
func (s *supervisor) dropCurrent() error { return dropWarmFile(s.dir) }

func dropWarmFile(dir string) error {
	return errors.Join(removeDurably(filepath.Join(dir, contract.WarmFile)), removeDurably(filepath.Join(dir, contract.MetaFile)))
}

// dropAll removes every file and generation: without the newest one the others would
// bring back values that clients have long replaced. The oldest goes first.
func (s *supervisor) dropAll() error {
	aside, err := warmfile.Aside(s.volume)
	return errors.Join(err, discardAll(aside), removeDurably(filepath.Join(s.volume, contract.SaveFile)), dropWarmFile(s.volume), s.dropCurrent())
}
