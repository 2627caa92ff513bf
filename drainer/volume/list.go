package volume

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// KeepList keeps the clients' list for a member's next start.
func KeepList(dir string, list *contract.List) error {
	return writeDurably(filepath.Join(dir, contract.ListFile), []byte(list.String()))
}

// KeptList is the list that an earlier start has kept.
func KeptList(dir string) (*contract.List, error) {
	return ReadList(filepath.Join(dir, contract.ListFile))
}

// ReadList reads a list from a file. Anybody may have written its version: one that is so far ahead that later ones would
// be ignored for long is an error.
func ReadList(path string) (*contract.List, error) {
	f, err := openNow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // to read a pipe may wait for ever, too
		return nil, fmt.Errorf("%s is not a file", filepath.Base(path))
	}
	text, err := io.ReadAll(io.LimitReader(f, contract.MaxList+1))
	if err != nil {
		return nil, err
	}
	l, err := contract.ParseList(string(text))
	if err == nil && l.Version > contract.NumberAt(time.Now().Add(contract.NumbersAhead)) {
		return nil, fmt.Errorf("a list of version %d, which is more than %v ahead of the clock", l.Version, contract.NumbersAhead)
	}
	return l, err
}
