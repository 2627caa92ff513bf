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

// Generation is one warm file or save on a volume, with its metadata. Each is in a directory of its own, so
// that Open can read any of them.
type Generation struct {
	Dir string
	// Number is 0 for the file that memcached works on, which is the newest. Among generations, a higher
	// number is newer.
	Number int
	// Failed means that a replay of the generation has failed.
	Failed bool
}

// Kept returns the generations that dir has beside the newest file or save, newest first.
func Kept(dir string) ([]Generation, error) {
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

// exists tells whether the directory has the warm file, or its save: the file is moved there last, and
// removed first.
func (g Generation) exists() (bool, error) {
	for _, name := range []string{contract.WarmFile, contract.SaveFile} {
		_, err := os.Lstat(filepath.Join(g.Dir, name))
		if !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
	}
	return HasSave(g.Dir), nil // also under the name of an unfinished save
}

// named adds the generation's name to an error of reading it, which may only have an offset.
func (g Generation) named(err error) error {
	if err == nil || g.Number == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", filepath.Base(g.Dir), err)
}

// Generations returns all generations on the volume at dir, newest first, and refuses outdated saves. If
// there are others, Generations leaves out a file in which nothing was ever stored.
func Generations(dir string) ([]Generation, error) {
	kept, err := Kept(dir)
	if err != nil {
		return nil, err
	}
	current := Generation{Dir: dir}
	there, err := current.exists()
	if err != nil {
		return nil, err
	}
	all := kept
	if there {
		all = append([]Generation{current}, kept...)
	}
	if err := outdated(dir, all); err != nil {
		return nil, err
	}
	if there && len(kept) > 0 {
		nothing, err := NothingStored(dir, Options{})
		if err != nil {
			return nil, err
		}
		there = !nothing
	}
	if there {
		return all, nil
	}
	if len(kept) == 0 {
		return nil, warmfile.Refuse(warmfile.ReasonMissing, "there is no %s on the volume", contract.WarmFile)
	}
	return kept, nil
}

// Replayable tells whether the generations can be replayed: if the newest can't be read, older values must
// not be replayed.
func Replayable(kept []Generation) bool { return len(kept) > 0 && !kept[0].Failed }
