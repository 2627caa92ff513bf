package volume

import (
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

// TestTheNewestGoesLast: a disk that refuses to remove something old keeps what is newer,
// without which the old would be replayed.
func TestTheNewestGoesLast(t *testing.T) {
	t.Parallel()
	for _, newest := range []string{contract.WarmFile, contract.SaveFile} {
		dir := t.TempDir()
		old := filepath.Join(dir, GenerationName(1, false), contract.SaveFile)
		// A directory that isn't empty can't be removed as a file.
		if err := os.MkdirAll(filepath.Join(old, "stays"), 0o700); err != nil {
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
