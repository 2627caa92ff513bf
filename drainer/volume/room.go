package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
)

// FreeBytes returns the room on the volume of dir; tests replace it.
var FreeBytes = linux.FreeBytes

// RoomError means that the volume is too small for a save.
type RoomError struct{ Need, Lacking int64 }

func (e *RoomError) Error() string {
	return fmt.Sprintf("the volume lacks %d MiB of room for a save of %d MiB", Mebibytes(e.Lacking), Mebibytes(e.Need))
}

// Mebibytes returns n bytes in MiB, rounded up.
func Mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// Room returns how many bytes are free on the volume after the unused pages of its warm file are given back
// and the victims are removed, in this order: as many victims as are needed for need bytes. The first victim
// is an outdated save (dropSave), then come the oldest generations: their items are the least likely to be
// asked for, and it would be wrong to serve them without newer ones.
func Room(dir string, need int64, dropSave bool) (free int64, victims []Generation, err error) {
	if free, err = FreeBytes(dir); err != nil {
		return 0, nil, err
	}
	if need > free {
		unused, err := giveable(dir)
		if err != nil {
			return 0, nil, err
		}
		free += unused
	}
	return victimsFor(dir, need, free, dropSave)
}

// victimsFor is Room when free bytes are free without victims.
func victimsFor(dir string, need, free int64, dropSave bool) (_ int64, victims []Generation, err error) {
	candidates, err := Kept(dir)
	if err != nil {
		return 0, nil, err
	}
	slices.Reverse(candidates)
	if dropSave && HasSave(dir) {
		candidates = slices.Insert(candidates, 0, Generation{Dir: dir})
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

// MakeRoom makes need bytes of room on the volume by removing the victims of Room. If that would not be
// enough, MakeRoom removes nothing. MakeRoom returns how many bytes are missing.
func MakeRoom(dir string, need int64, dropSave bool, logf func(string, ...any)) (lacking int64, err error) {
	free, victims, err := Room(dir, need, dropSave)
	if err != nil || need > free {
		return need - free, err
	}
	if now, err := FreeBytes(dir); err != nil {
		return 0, err
	} else if need > now && !Missing(filepath.Join(dir, contract.WarmFile)) {
		if err := giveBack(dir); err != nil {
			logf("%v", err)
		}
		// Fewer bytes than expected may have been given back. Then more victims are removed.
		if now, err = FreeBytes(dir); err != nil {
			return 0, err
		}
		if free, victims, err = victimsFor(dir, need, now, dropSave); err != nil || need > free {
			return need - free, err
		}
	}
	for _, g := range victims {
		if err := g.sacrifice(logf); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// sacrifice removes a generation, or the outdated save, to make room on the volume.
func (g Generation) sacrifice(logf func(string, ...any)) error {
	if g.Number == 0 {
		return DropSave(g.Dir)
	}
	logf("%s is removed to make room on the volume: its items that have not been replayed yet are lost", filepath.Base(g.Dir))
	return Discard(g)
}

// dropOutdated is called when the volume is full while a save is being written. dropOutdated removes the
// outdated save, or else the oldest generation, and returns false if there was nothing to remove.
func dropOutdated(dir string, logf func(string, ...any)) (dropped bool, err error) {
	if outdated := filepath.Join(dir, contract.SaveFile); !Missing(outdated) {
		logf("the volume is full: the outdated save is removed, and the new save continues")
		return true, removeDurably(outdated)
	}
	kept, err := Kept(dir)
	if err != nil || len(kept) == 0 {
		return false, err
	}
	return true, kept[len(kept)-1].sacrifice(logf)
}

// allocated returns how many bytes the removal of a generation frees: warm files have holes.
func allocated(g Generation) (int64, error) {
	files := []string{contract.WarmFile}
	if HasSave(g.Dir) {
		files = []string{contract.SaveFile, newSave}
	}
	const blockBytes = 512 // whatever the file system's own blocks are
	sum := int64(0)
	for _, file := range append(files, contract.ReplayedFile) {
		var st unix.Stat_t
		err := unix.Stat(filepath.Join(g.Dir, file), &st)
		if err != nil && (file == contract.WarmFile || !errors.Is(err, os.ErrNotExist)) {
			return 0, err
		}
		sum += st.Blocks * blockBytes
	}
	return sum, nil
}
