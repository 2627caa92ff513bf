package volume

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// KeepList writes the clients' list to the volume for the member's next start.
func KeepList(dir string, list *contract.List) error {
	return writeDurably(filepath.Join(dir, contract.ListFile), []byte(list.String()))
}

// KeptList returns the list that an earlier start has kept.
func KeptList(dir string) (*contract.List, error) {
	return ReadList(filepath.Join(dir, contract.ListFile))
}

// ReadList reads a list from a file. The version in it is not trusted: one so far ahead that later lists
// would be ignored for long is an error.
func ReadList(path string) (*contract.List, error) {
	f, err := openNow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // reading a pipe may block forever, too
		return nil, fmt.Errorf("%s is not a file", filepath.Base(path))
	}
	text, err := io.ReadAll(io.LimitReader(f, contract.MaxList+1))
	if err != nil {
		return nil, err
	}
	l, err := contract.ParseList(string(text))
	if err == nil && l.Version > contract.NumberAt(time.Now().Add(contract.NumbersAhead)) {
		return nil, fmt.Errorf("list version %d is more than %v ahead of this node's clock", l.Version, contract.NumbersAhead)
	}
	return l, err
}
