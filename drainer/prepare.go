package drainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// prepare clears the way for memcached. It returns whether that will start
// with a new file, and a note for people. A warm file that memcached might not
// take up is moved aside, so that memcached never works on the only copy.
func (s *supervisor) prepare(ctx context.Context) (fresh bool, note string, err error) {
	if err := sweep(s.dir); err != nil {
		return false, "", err
	}
	if missing(s.path(contract.WarmFile)) {
		return true, "", nil
	}
	refusal := s.readable()
	if refusal == nil {
		if refusal = doubt(ctx, s.dir, s.command); refusal == nil {
			return false, "", nil
		}
	} else if unvouched(refusal) {
		note := "memcached starts cold: nothing of its warm file can be read: " + reason(refusal)
		if warmfile.Unanswered(s.dir) {
			return true, note, s.dropCurrent()
		}
		return true, note, s.dropAll()
	}
	why := reason(refusal)
	switch missing, err := s.makeRoom(); {
	case err != nil:
		return false, "", err
	case missing > 0:
		note := fmt.Sprintf("memcached starts cold: %s; to replay its items, the volume lacks %d MiB of room for a second file of %d MiB",
			why, (missing+1<<20-1)>>20, memoryLimit(s.command)>>20)
		return true, note, s.dropAll()
	}
	failed := isUnrecoverable(refusal)
	g, err := setAside(s.dir, failed)
	if err != nil {
		return false, "", fmt.Errorf("move the warm file aside: %w", err)
	}
	note = fmt.Sprintf("memcached would start cold: %s; the items are replayed from %s", why, filepath.Base(g.Dir))
	if failed {
		note = fmt.Sprintf("memcached starts cold: %s; the file stays in %s for a drain to look at", why, filepath.Base(g.Dir))
	}
	return true, note, nil
}

// readable returns the refusal to read the warm file, if there is one.
func (s *supervisor) readable() error {
	r, err := warmfile.Open(s.dir, warmfile.Options{})
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

// makeRoom finds room for a new warm file beside the old one. Where there is
// too little, the oldest generations go first: what they hold is the least
// likely to be asked for, and without the newest it would be wrong to serve
// them. They stay where that would not help. It returns how much is missing.
func (s *supervisor) makeRoom() (lacking int64, err error) {
	need, free, victims, err := s.room()
	if err != nil || need > free {
		return need - free, err
	}
	for _, g := range victims {
		s.logf("%s is removed to make room on the volume: its items that were not replayed are lost", filepath.Base(g.Dir))
		if err := discard(g); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// room returns the size of a second warm file, and what is free for it once the
// victims, the oldest generation first, are gone.
func (s *supervisor) room() (need, free int64, victims []warmfile.Generation, err error) {
	need = memoryLimit(s.command)
	if free, err = freeBytes(s.dir); err != nil {
		return 0, 0, nil, err
	}
	aside, err := warmfile.Aside(s.dir)
	if err != nil {
		return 0, 0, nil, err
	}
	for i := len(aside) - 1; i >= 0 && need > free; i-- {
		n, err := allocated(aside[i])
		if err != nil {
			return 0, 0, nil, err
		}
		free += n
		victims = append(victims, aside[i])
	}
	return need, free, victims, nil
}

// dropCurrent removes the warm file and what speaks for it.
func (s *supervisor) dropCurrent() error {
	return errors.Join(removeDurably(s.path(contract.WarmFile)), removeDurably(s.path(contract.MetaFile)))
}

// dropAll removes every generation: without the newest one the others would
// bring back values that clients have long replaced. The oldest goes first.
func (s *supervisor) dropAll() error {
	aside, err := warmfile.Aside(s.dir)
	return errors.Join(err, discardAll(aside), s.dropCurrent())
}
