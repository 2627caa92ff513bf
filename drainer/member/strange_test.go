//go:build linux

package member_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// A drain reports it as final, and a member starts. There are neither endless retries nor a crash loop.
func TestAFileOfAnotherKindIsUnrecoverable(t *testing.T) {
	t.Parallel()
	sound := drainertest.Leaving(t, "saved", drainertest.Objects(39, 50))
	packed := drainertest.Packed(t, sound)
	strange := map[string]func(path string) error{
		"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "within"), 0o700) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"2 MiB":       func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 2<<20)), 0o600) },
		"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
	}
	for _, name := range []string{contract.InUse, contract.Manifest, contract.MetaFile, contract.WarmFile, contract.SaveFile, unfinishedSave,
		contract.SpareFile, volume.GenerationName(1, false)} {
		for what, put := range strange {
			for mode, source := range map[string]string{"Mapped": sound, "Saved": packed} {
				t.Run(name+" is "+what+", "+mode, func(t *testing.T) {
					if (what == "a pipe") != (mode == "Saved") || (what == "a directory") != (mode == "Mapped") {
						tier.Second(t, "TestAFileOfAnotherKindIsUnrecoverable")
					}
					dir := t.TempDir()
					if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
						t.Fatal(err)
					}
					path := filepath.Join(dir, name)
					if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
						t.Fatal(err)
					}
					if v, err := volume.OpenAll(dir, false); err == nil {
						v.Close()
					} else if !errors.Is(err, warmfile.ErrUnrecoverable) {
						t.Errorf("a drain would try again: %v", err)
					}
					m := start.Member{Volume: dir, Command: []string{"memcached", "-m", "128"}}
					if mode == "Saved" {
						m.Memory = t.TempDir()
					}
					for range 2 { // the second one finds what the first one has left
						if _, err := start.Prepare(t.Context(), m, nil, volume.SaveOptions{Logf: t.Logf}); err != nil {
							t.Fatalf("a member does not start: %v", err)
						}
						if mode == "Saved" {
							if _, err := volume.NoteInUse(dir); err != nil {
								t.Fatalf("a member does not start: %v", err)
							}
						}
					}
				})
			}
		}
	}
}

// A directory gives way to the save whose writer was killed. Otherwise no start would succeed.
func TestADirectoryInPlaceOfASaveGivesWay(t *testing.T) {
	tier.Second(t, "TestAFileOfAnotherKindIsUnrecoverable")
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(drainertest.Packed(t, drainertest.Leaving(t, "saved", drainertest.Objects(39, 50))))); err != nil {
		t.Fatal(err)
	}
	save := filepath.Join(dir, contract.SaveFile)
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, contract.InUse)), os.Rename(save, filepath.Join(dir, unfinishedSave)),
		os.MkdirAll(filepath.Join(save, "within"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := volume.Sweep(dir); err != nil {
		t.Fatalf("a member does not start: %v", err)
	}
	if info, err := os.Lstat(save); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the save is not there: %v, %v", info, err)
	}
}
