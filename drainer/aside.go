package drainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// setAside moves the warm file in dir into a generation of its own. What
// speaks for the file is copied there first, and the file's rename is the one
// step that counts: killed before it, the file is still the current one, and
// killed behind it, what is left in dir speaks for nothing and is swept.
func setAside(dir string, failed bool) (warmfile.Generation, error) {
	g, err := nextGeneration(dir, failed)
	if err == nil {
		err = os.Mkdir(g.Dir, 0o755)
	}
	if err != nil {
		return g, err
	}
	file, beside := contract.WarmFile, speakers(dir)
	if !missing(filepath.Join(dir, contract.SaveFile)) {
		file, beside = contract.SaveFile, nil // it speaks for itself
	}
	for _, name := range beside {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writeDurably(filepath.Join(g.Dir, name), data, true)
		}
		if err != nil {
			return g, err
		}
	}
	if err := os.Rename(filepath.Join(dir, file), filepath.Join(g.Dir, file)); err != nil {
		return g, err
	}
	return g, errors.Join(syncPath(g.Dir), syncPath(dir), sweep(dir))
}

// speakers are the files that speak for the warm file in dir: not a .meta that
// the manifest, which the supervisor wrote itself, contradicts.
func speakers(dir string) []string {
	meta, metaErr := warmfile.ReadMeta(dir)
	manifest, err := warmfile.ReadManifest(dir)
	if metaErr == nil && err == nil && manifest.Latest() != nil && meta.SameSettings(manifest.Latest()) != nil {
		return []string{contract.Manifest}
	}
	return []string{contract.Manifest, contract.MetaFile}
}

// nextGeneration is newer than all that lie in dir, and has room: a directory
// that an interrupted move left behind is removed.
func nextGeneration(dir string, failed bool) (warmfile.Generation, error) {
	aside, err := warmfile.Aside(dir)
	g := warmfile.Generation{Number: 1, Failed: failed}
	if len(aside) > 0 {
		g.Number = aside[0].Number + 1
	}
	g.Dir = filepath.Join(dir, fmt.Sprintf("%s%d", contract.GenerationPrefix, g.Number))
	if failed {
		g.Dir += contract.FailedSuffix
	}
	return g, errors.Join(err, os.RemoveAll(g.Dir))
}

// sweep removes what interrupted moves, saves and removals left in dir: directories
// without a warm file, files that were not complete, and a .meta without its file,
// which memcached would take for the next one's.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() && strings.HasPrefix(e.Name(), contract.GenerationPrefix) && missing(filepath.Join(path, contract.WarmFile)) && missing(filepath.Join(path, contract.SaveFile)) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	for _, name := range []string{newSave, contract.WarmFile + ".new"} {
		errs = append(errs, removeDurably(filepath.Join(dir, name)))
	}
	if missing(filepath.Join(dir, contract.WarmFile)) {
		errs = append(errs, removeDurably(filepath.Join(dir, contract.MetaFile)))
	}
	return errors.Join(errs...)
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// removeDurably removes a file, if it is there.
func removeDurably(path string) error {
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncPath(filepath.Dir(path)))
}

// discard removes a generation, its warm file first: from then on it is none.
func discard(g warmfile.Generation) error {
	return errors.Join(removeDurably(filepath.Join(g.Dir, contract.WarmFile)),
		removeDurably(filepath.Join(g.Dir, contract.SaveFile)), os.RemoveAll(g.Dir))
}

// discardAll removes generations, given newest first, from the oldest on: the
// newest must not go while something older could be replayed instead.
func discardAll(newestFirst []warmfile.Generation) error {
	for i := len(newestFirst) - 1; i >= 0; i-- {
		if err := discard(newestFirst[i]); err != nil {
			return err
		}
	}
	return nil
}

// markFailed gives a generation the name under which only a drain reads it.
func markFailed(g warmfile.Generation) error {
	if err := os.Rename(g.Dir, g.Dir+contract.FailedSuffix); err != nil {
		return err
	}
	return syncPath(filepath.Dir(g.Dir))
}

// freeBytes is the room on the volume of dir; tests replace it.
var freeBytes = func(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// allocated is what removing a generation sets free: warm files have holes.
func allocated(g warmfile.Generation) (int64, error) {
	file := contract.WarmFile
	if !missing(filepath.Join(g.Dir, contract.SaveFile)) {
		file = contract.SaveFile
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(g.Dir, file), &st); err != nil {
		return 0, err
	}
	const blockBytes = 512 // whatever the file system's own are
	return st.Blocks * blockBytes, nil
}
