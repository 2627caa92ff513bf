package memcache

import (
	"os"
	"slices"
	"sync"
	"time"
)

// kept caches values that were parsed from files, and parses them again only when one of the files has changed. A process
// has the files of one or two Secrets, so nothing is ever dropped.
type kept[T any] struct {
	mu  sync.Mutex
	all map[string]*keptFiles[T]
}

// keptFiles is the value that was parsed from some files, and how the files were just before they were read.
type keptFiles[T any] struct {
	mu      sync.Mutex
	made    T
	looks   []os.FileInfo
	settled bool
}

// settledAfter is the age from which a file's times tell it from its next version: file systems round times. A
// Secret's files are never written again, but replaced as a whole.
const settledAfter = 2 * time.Second

// readFile is os.ReadFile; a test counts its calls.
var readFile = os.ReadFile

// get returns the value that was parsed from the files; as names the kind of value, because one file may have several.
// An error is not kept: the files may be replaced one after the other.
func (k *kept[T]) get(as string, parse func(texts [][]byte) (T, error), paths ...string) (T, error) {
	var none T
	looks := []os.FileInfo{} // before the files are read: files that change meanwhile differ at the next call
	for _, path := range paths {
		look, err := os.Stat(path)
		if err != nil {
			return none, err
		}
		looks = append(looks, look)
	}
	f := k.of(as, paths)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settled && slices.EqualFunc(looks, f.looks, sameFile) {
		return f.made, nil
	}
	var texts [][]byte
	for _, path := range paths {
		text, err := readFile(path)
		if err != nil {
			return none, err
		}
		texts = append(texts, text)
	}
	made, err := parse(texts)
	if err != nil {
		return none, err
	}
	f.made, f.looks = made, looks
	f.settled = !slices.ContainsFunc(looks, func(l os.FileInfo) bool { return time.Since(l.ModTime()) < settledAfter })
	return made, nil
}

func (k *kept[T]) of(as string, paths []string) *keptFiles[T] {
	for _, path := range paths {
		as += "\x00" + path
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]*keptFiles[T]{}
	}
	f := k.all[as]
	if f == nil {
		f = &keptFiles[T]{}
		k.all[as] = f
	}
	return f
}

// sameFile tells whether a file has not changed. An update of a Secret replaces its files: the names lead to others.
func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
