package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// newSave is the name of a save that is being written, newWarmFile that of a warm file that is being loaded.
const (
	newSave     = contract.SaveFile + ".new"
	newWarmFile = contract.WarmFile + ".new"
)

// GenerationName returns the name of a generation's directory. failed means that its file could not be read.
func GenerationName(number int, failed bool) string {
	name := fmt.Sprintf("%s%d", contract.GenerationPrefix, number)
	if failed {
		name += contract.FailedSuffix
	}
	return name
}

// Keep turns the warm file, or the save, in dir into a generation. Its metadata is copied first; the rename
// of the file is the decisive step. If the member is killed before the rename, the file is still the current
// one. If the member is killed after the rename, the metadata left in dir describes nothing, and Sweep
// removes that metadata.
func Keep(dir string, number int, failed bool) error {
	to := filepath.Join(dir, GenerationName(number, failed))
	info, err := os.Lstat(to)
	if err == nil && info.IsDir() {
		if there, err := (Generation{Dir: to}).exists(); there || err != nil {
			return errors.Join(err, fmt.Errorf("%s already has items", filepath.Base(to)))
		}
	}
	err = removeAll(to) // an interrupted Keep may have left a directory, and this program makes no file of that name
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	if err != nil {
		return err
	}
	file, beside := contract.WarmFile, describers(dir)
	if !Missing(filepath.Join(dir, contract.SaveFile)) {
		file, beside = contract.SaveFile, nil // a save contains its own metadata
	}
	for _, name := range beside {
		data, err := readSmall(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, warmfile.ErrUnrecoverable) {
			continue
		}
		if err == nil {
			err = writeDurably(filepath.Join(to, name), data)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(dir, file), filepath.Join(to, file)); err != nil {
		return err
	}
	return errors.Join(Sync(to), Sync(dir), Sweep(dir))
}

// describers returns the names of the files that describe the warm file in dir, without a .meta that
// contradicts the supervisor's own manifest.
func describers(dir string) []string {
	meta, metaErr := ReadMeta(dir)
	manifest, err := ReadManifest(dir)
	if metaErr == nil && err == nil && manifest.Latest() != nil && meta.SameSettings(manifest.Latest()) != nil {
		return []string{contract.Manifest}
	}
	return []string{contract.Manifest, contract.MetaFile}
}

// adopt completes the rename of a save whose writer was killed, if the save is newer than everything that
// clients were served from. Otherwise adopt removes the save.
func adopt(dir string) error {
	path := filepath.Join(dir, newSave)
	s, err := snapshot.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, warmfile.ErrUnrecoverable):
		return removeDurably(path)
	case err != nil:
		return err
	}
	newest := s.Number
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = openSave(dir); err != nil {
		return err
	}
	outdated := s.Number > newest
	if err := s.Close(); err != nil {
		return err
	}
	if note, err := ReadInUse(dir); err == nil {
		outdated = outdated || newest <= note.Number
	}
	if outdated {
		return removeDurably(path)
	}
	if err := replace(path, filepath.Join(dir, contract.SaveFile)); err != nil {
		return err
	}
	return Sync(dir)
}

// Sweep removes the remains of interrupted moves, saves, writes and removals in dir: directories without a
// warm file, files that were not complete, and a .meta without its file, which memcached would use for the
// next file. Sweep also removes marks that aren't a generation's, because they describe another file than the
// current one. The caller holds the lock.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() && strings.HasPrefix(e.Name(), contract.GenerationPrefix) && Missing(filepath.Join(path, contract.WarmFile)) && Missing(filepath.Join(path, contract.SaveFile)) {
			errs = append(errs, os.RemoveAll(path))
		}
		if temporary(e) {
			errs = append(errs, os.Remove(path))
		}
	}
	for _, name := range []string{newWarmFile, contract.ReplayedFile} {
		errs = append(errs, removeDurably(filepath.Join(dir, name)))
	}
	errs = append(errs, DropSpare(dir), adopt(dir))
	if Missing(filepath.Join(dir, contract.WarmFile)) {
		errs = append(errs, removeDurably(filepath.Join(dir, contract.MetaFile)))
	}
	return errors.Join(errs...)
}

// DropWarmFile removes the warm file in dir, and its .meta.
func DropWarmFile(dir string) error {
	return errors.Join(removeDurably(filepath.Join(dir, contract.WarmFile)), removeDurably(filepath.Join(dir, contract.MetaFile)))
}

// DropSave removes the save in dir, and before it the older one if one was being written.
func DropSave(dir string) error {
	if err := removeDurably(filepath.Join(dir, contract.SaveFile)); err != nil {
		return err
	}
	return removeDurably(filepath.Join(dir, newSave))
}

// DropManifest removes the manifest in dir.
func DropManifest(dir string) error { return removeDurably(filepath.Join(dir, contract.Manifest)) }

// DropAll removes every file and generation of the volume at dir, the oldest first: without the newest one,
// the others would bring back values that clients have long replaced.
func DropAll(dir string) error {
	kept, err := Kept(dir)
	if err == nil {
		err = DiscardAll(kept)
	}
	if err == nil {
		err = DropSave(dir)
	}
	if err != nil {
		return err
	}
	return DropWarmFile(dir)
}

// Discard removes a generation, the warm file first: without its warm file, the directory is no generation.
func Discard(g Generation) error {
	return errors.Join(removeDurably(filepath.Join(g.Dir, contract.WarmFile)),
		removeDurably(filepath.Join(g.Dir, contract.SaveFile)), os.RemoveAll(g.Dir))
}

// DiscardAll removes generations, given newest first, from the oldest on: the newest must not be removed
// while something older could be replayed instead.
func DiscardAll(newestFirst []Generation) error {
	for i := len(newestFirst) - 1; i >= 0; i-- {
		if err := Discard(newestFirst[i]); err != nil {
			return err
		}
	}
	return nil
}

// GiveUp renames a generation so that only a drain reads it.
func GiveUp(g Generation) error {
	return renameDurably(g.Dir, g.Dir+contract.FailedSuffix)
}
