package volume

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// savedMember returns the volume of a member that saved 500 items, three of them large, with a manifest like
// the supervisor's.
func savedMember(t testing.TB, args ...string) string {
	t.Helper()
	m := startMember(t, memcachedtest.FewPages(append([]string{"-m", "24"}, args...)...)...)
	raw := m.Raw()
	for i := range 497 {
		raw.Must("STORED", "set key"+strconv.Itoa(i)+" 5 0 10", []byte("0123456789"))
	}
	for i := range 3 {
		raw.Must("STORED", "set large"+strconv.Itoa(i)+" 0 0 600000", make([]byte, 600000))
	}
	flagsBytes := m.image().FlagsBytes
	m.Save()
	meta, err := ReadMeta(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	meta.FlagsBytes = flagsBytes
	meta.Version, meta.Items, meta.ItemsExact = "1.6.18", 500, true
	m.writeManifest(Manifest{State: Saved, Image: meta})
	return m.dir
}

func edit(t testing.TB, dir string, change func(m *Manifest)) {
	t.Helper()
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	writeManifest(t, dir, *m)
}

func remove(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t testing.TB, dir, name string, offset int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt(data, offset)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// count reads everything, as a drain would.
func count(t testing.TB, dir string) (live int64, clean bool, err error) {
	t.Helper()
	r, err := Open(dir, Options{})
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	for it, err := range r.Items(t.Context()) {
		if err != nil {
			return live, r.Clean(), err
		}
		if it.State == item.Live {
			live++
		}
	}
	return live, r.Clean(), nil
}

// A volume is read if it says enough about its warm file, and is refused with a reason if it doesn't. No
// volume reads as empty without proof.
func TestAVolumeIsReadOnlyWithEnoughEvidence(t *testing.T) {
	const size = 24 << 20
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		want   warmfile.Reason // "" if all items are found
		clean  bool
	}{
		"as saved": {func(*testing.T, string) {}, "", true},
		"no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
		}, "", true},
		"no .meta, the manifest says saved": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.BootID = "another boot" })
		}, "", true},
		".meta cut short, the manifest says saved": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, contract.MetaFile), 100); err != nil {
				t.Fatal(err)
			}
		}, "", true},
		".meta empty, no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			if err := os.Truncate(filepath.Join(dir, contract.MetaFile), 0); err != nil {
				t.Fatal(err)
			}
		}, warmfile.ReasonCorrupt, false},
		"neither": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			remove(t, dir, contract.MetaFile)
		}, warmfile.ReasonNoEvidence, false},
		"killed, same boot": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Image.ItemsExact = Running, false })
		}, "", false},
		"killed, other boot": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.BootID = Running, "another boot" })
		}, warmfile.ReasonNodeRestarted, false},
		"died and synced, other boot": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.BootID = Died, "another boot" })
		}, "", false},
		"killed while starting": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Previous, m.Image = Starting, m.Image, nil })
		}, "", false},
		"starting for the first time": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Image = Starting, nil })
		}, warmfile.ReasonNoEvidence, false},
		".meta survived the node that had started from it": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) {
				m.State, m.Previous, m.BootID = Running, m.Image, "another boot"
			})
		}, warmfile.ReasonNodeRestarted, false},
		"about to start from the save": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) { m.State, m.Previous, m.Image = Starting, m.Image, nil })
		}, "", true},
		"no warm file": {func(t *testing.T, dir string) {
			remove(t, dir, contract.WarmFile)
		}, warmfile.ReasonMissing, false},
		"empty directory": {func(t *testing.T, dir string) {
			remove(t, dir, contract.WarmFile)
			remove(t, dir, contract.Manifest)
			remove(t, dir, contract.MetaFile)
		}, warmfile.ReasonMissing, false},
		"file of 0 bytes": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), 0); err != nil {
				t.Fatal(err)
			}
		}, warmfile.ReasonTruncated, false},
		"file cut in half": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), size/2); err != nil {
				t.Fatal(err)
			}
		}, warmfile.ReasonTruncated, false},
		"file cut in half, no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), size/2); err != nil {
				t.Fatal(err)
			}
		}, warmfile.ReasonCorrupt, false},
		"file of zeros": {func(t *testing.T, dir string) {
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, size))
		}, warmfile.ReasonWiped, true},
		"file of zeros, no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, size))
		}, warmfile.ReasonWiped, true},
		"file of random bytes": {func(t *testing.T, dir string) {
			data := make([]byte, size)
			r := rand.New(rand.NewPCG(1, 2))
			for i := 0; i < len(data); i += 8 {
				binary.LittleEndian.PutUint64(data[i:], r.Uint64())
			}
			overwrite(t, dir, contract.WarmFile, 0, data)
		}, warmfile.ReasonCorrupt, true},
		"a few pages of zeros": {func(t *testing.T, dir string) {
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, 5<<20))
		}, warmfile.ReasonCountMismatch, true},
		"more items were saved": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) { m.Image.Items++ })
		}, warmfile.ReasonCountMismatch, true},
		"a fresh file after a crash": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Image.Items, m.Image.ItemsExact = Running, 1000000, false })
		}, warmfile.ReasonCountMismatch, false},
		"another growth factor": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
			if err != nil {
				t.Fatal(err)
			}
			s := strings.Replace(string(b), "slab_config 2\n", "slab_config 2.1\n", 1)
			overwrite(t, dir, contract.MetaFile, 0, []byte(s))
		}, warmfile.ReasonCorrupt, true},
		"CAS numbers that are not there": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
			if err != nil {
				t.Fatal(err)
			}
			s := strings.Replace(string(b), "use_cas true\n", "use_cas false\n", 1)
			overwrite(t, dir, contract.MetaFile, 0, []byte(s))
		}, warmfile.ReasonUnknownLayout, true},
	}
	saved := savedMember(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			test.change(t, dir)
			live, clean, err := count(t, dir)
			if test.want == "" {
				if err != nil || live != 500 || clean != test.clean {
					t.Errorf("%d items, clean %t, %v; want 500, %t", live, clean, err, test.clean)
				}
				return
			}
			var refusal *warmfile.Error
			if !errors.As(err, &refusal) || refusal.Reason != test.want || !errors.Is(err, warmfile.ErrUnrecoverable) {
				t.Errorf("%d items, %v; want reason %s", live, err, test.want)
			}
		})
	}
}

func TestAReadErrorIsNoVerdict(t *testing.T) {
	dir := savedMember(t)
	t.Cleanup(func() { readFile = os.ReadFile })
	readFile = func(path string) ([]byte, error) { return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EIO} }
	if _, _, err := count(t, dir); err == nil || errors.Is(err, warmfile.ErrUnrecoverable) {
		t.Errorf("got %v, want an error that another attempt may fix", err)
	}
}

// A member that never had an item is read as empty: its file proves that.
func TestUnusedServerIsEmpty(t *testing.T) {
	t.Parallel()
	m := startMember(t, memcachedtest.FewPages()...)
	m.Save()
	if live, clean, err := count(t, m.dir); live != 0 || !clean || err != nil {
		t.Errorf("%d items, clean %t, %v; want an empty, clean source", live, clean, err)
	}
}
