package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

// If the disk refuses to remove something old, the newer generations stay, without which the old one would be
// replayed.
func TestTheNewestGoesLast(t *testing.T) {
	t.Cleanup(func() { removeAll = os.RemoveAll })
	for _, newest := range []string{contract.WarmFile, contract.SaveFile} {
		dir := t.TempDir()
		old := filepath.Join(dir, GenerationName(1, false), contract.SaveFile)
		removeAll = func(path string) error {
			if path == old {
				return os.ErrPermission
			}
			return os.RemoveAll(path)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o700), os.WriteFile(old, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, newest), []byte("newer items"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := DropAll(dir); err == nil {
			t.Errorf("%s: all is dropped", newest)
		}
		if Missing(filepath.Join(dir, newest)) {
			t.Errorf("%s is dropped, and the older generation is there", newest)
		}
	}
}
