package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/warmfile"
)

// Generation is one warm file or save on a volume, with its metadata. Each is in a
// directory of its own, so that Open reads any of them.
type Generation struct {
	Dir string
	// Number is 0 for the file that memcached works on, which is the newest;
	// of those set aside, a higher one is newer.
	Number int
	// Failed: it was set aside, and could not be replayed.
	Failed bool
}

// Aside returns the generations that were set aside in dir, newest first.
func Aside(dir string) ([]Generation, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Generation
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), contract.GenerationPrefix)
		digits, failed := strings.CutSuffix(digits, contract.FailedSuffix)
		number, err := strconv.Atoi(digits)
		if !ok || !e.IsDir() || err != nil || number < 1 {
			continue
		}
		g := Generation{Dir: filepath.Join(dir, e.Name()), Number: number, Failed: failed}
		switch there, err := g.exists(); {
		case err != nil:
			return nil, err
		case there:
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(a, b Generation) int { return b.Number - a.Number })
	return found, nil
}

// exists tells whether the warm file, or its save, is there: it is moved into a
// directory last, and removed first.
func (g Generation) exists() (bool, error) {
	for _, name := range []string{contract.WarmFile, contract.SaveFile} {
		_, err := os.Stat(filepath.Join(g.Dir, name))
		if !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
	}
	return HasSave(g.Dir), nil // under the name of one that is being written
}

// named is the error of reading a generation, with its name: an offset alone doesn't say
// of which it is.
func (g Generation) named(err error) error {
	if err == nil || g.Number == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", filepath.Base(g.Dir), err)
}

// Generations returns all that are on the volume at dir, newest first, and refuses
// outdated saves. If there are others, it leaves out a file in which nothing was ever
// stored.
func Generations(dir string) ([]Generation, error) {
	aside, err := Aside(dir)
	if err != nil {
		return nil, err
	}
	current := Generation{Dir: dir}
	there, err := current.exists()
	if err != nil {
		return nil, err
	}
	all := aside
	if there {
		all = append([]Generation{current}, aside...)
	}
	if err := outdated(dir, all); err != nil {
		return nil, err
	}
	if there && len(aside) > 0 {
		nothing, err := NothingStored(dir, Options{})
		if err != nil {
			return nil, err
		}
		there = !nothing
	}
	if there {
		return all, nil
	}
	if len(aside) == 0 {
		return nil, warmfile.Refuse(warmfile.ReasonMissing, "there is no %s on the volume", contract.WarmFile)
	}
	return aside, nil
}

// Replayable tells whether the generations that were set aside can be replayed: if the
// newest can't be read, older values must not be.
func Replayable(aside []Generation) bool { return len(aside) > 0 && !aside[0].Failed }
