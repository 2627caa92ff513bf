package volume

import (
	"io"
	"os"
	"path/filepath"

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

// ReadList reads a list from a file.
func ReadList(path string) (*contract.List, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, contract.MaxList+1))
	if err != nil {
		return nil, err
	}
	return contract.ParseList(string(text))
}
