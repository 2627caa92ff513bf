package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// A writer that is killed before its file has its name leaves it under another one. A member that is killed again and
// again would fill the volume with them.
func TestAStartRemovesTheFilesOfKilledWriters(t *testing.T) {
	t.Cleanup(func() { rename = os.Rename })
	var left []string
	rename = func(file, path string) error { // what it was given is kept, as if the writer were killed now
		copied := file + "0"
		left = append(left, filepath.Base(copied))
		return errors.Join(os.Link(file, copied), os.Rename(file, path))
	}
	dir := t.TempDir()
	untouched := func(want bool) {
		t.Helper()
		if is, err := Untouched(dir); is != want || err != nil {
			t.Errorf("untouched: %v, %v, want %v", is, err, want)
		}
	}
	meta := "Tmain\nKstop_time 1\n"
	for name, write := range map[string]func() error{
		contract.Manifest: func() error { return WriteManifest(dir, &Manifest{State: Starting}) },
		contract.MetaFile: func() error { return writeDurably(filepath.Join(dir, contract.MetaFile), []byte(meta)) },
		contract.ListFile: func() error { return KeepList(dir, &contract.List{Version: 1}) },
		contract.InUse: func() error {
			_, err := NoteInUse(dir)
			return err
		},
	} {
		if err := errors.Join(write(), os.Remove(filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	probe, err := os.CreateTemp(dir, probePrefix+"*")
	if err != nil {
		t.Fatal(err)
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	if left = append(left, filepath.Base(probe.Name())); len(left) != 5 {
		t.Fatalf("the writers leave %q", left)
	}
	untouched(true)
	others := []string{"lost+found", ".manifest.json-of-a-person", ".snapshot", "note-1"}
	for _, name := range others {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	untouched(false)
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if !Missing(filepath.Join(dir, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range others {
		if Missing(filepath.Join(dir, name)) {
			t.Errorf("%s, which is not ours, is removed", name)
		}
	}
	if !strings.HasPrefix(left[0], ".") {
		t.Errorf("a temporary file is named %s", left[0])
	}
}

// Marks belong to a generation. Beside the current file, they would hide its items from a drain, or make each
// start cold.
func TestAStartRemovesMarksThatBelongToNoGeneration(t *testing.T) {
	tier.Second(t, "TestAFileOfAnotherKindIsUnrecoverable")
	for what, put := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte{0xff}, 0o600) },
		"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "within"), 0o700) },
		"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			generation := filepath.Join(dir, GenerationName(1, false))
			kept := filepath.Join(generation, contract.ReplayedFile)
			if err := errors.Join(os.Mkdir(generation, 0o700), os.WriteFile(filepath.Join(generation, contract.WarmFile), nil, 0o600),
				os.WriteFile(kept, nil, 0o600), put(filepath.Join(dir, contract.ReplayedFile))); err != nil {
				t.Fatal(err)
			}
			if err := Sweep(dir); err != nil {
				t.Fatal(err)
			}
			if marks, err := openReplayed(dir); marks != nil || err != nil {
				t.Errorf("the current file has marks: %v, %v", marks, err)
			}
			if Missing(kept) {
				t.Error("the generation has lost its marks")
			}
		})
	}
}
