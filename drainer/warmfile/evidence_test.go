package warmfile

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
)

// savedMember is the volume of a member that saved 500 items, three of them
// large, with a manifest as the supervisor writes it.
func savedMember(t testing.TB, args ...string) string {
	t.Helper()
	m := startMember(t, args...)
	raw := m.Raw()
	for i := range 497 {
		raw.Must("STORED", "set key"+strconv.Itoa(i)+" 5 0 10", []byte("0123456789"))
	}
	for i := range 3 {
		raw.Must("STORED", "set large"+strconv.Itoa(i)+" 0 0 600000", make([]byte, 600000))
	}
	m.Save()
	meta, err := ReadMeta(m.dir)
	if err != nil {
		t.Fatal(err)
	}
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

// TestEvidence: a volume is read where it says enough about its warm file, and
// is refused, with the reason, where it doesn't. Nothing reads as empty.
func TestEvidence(t *testing.T) {
	const size = 64 << 20
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		want   Reason // "" means that all items are found
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
		}, ReasonCorrupt, false},
		"neither": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			remove(t, dir, contract.MetaFile)
		}, ReasonNoEvidence, false},
		"killed, same boot": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Image.ItemsExact = Running, false })
		}, "", false},
		"killed, other boot": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.BootID = Running, "another boot" })
		}, ReasonNodeRestarted, false},
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
		}, ReasonNoEvidence, false},
		".meta survived the node that had started from it": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) {
				m.State, m.Previous, m.BootID = Running, m.Image, "another boot"
			})
		}, ReasonNodeRestarted, false},
		"about to start from the save": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) { m.State, m.Previous, m.Image = Starting, m.Image, nil })
		}, "", true},
		"no warm file": {func(t *testing.T, dir string) {
			remove(t, dir, contract.WarmFile)
		}, ReasonMissing, false},
		"empty directory": {func(t *testing.T, dir string) {
			remove(t, dir, contract.WarmFile)
			remove(t, dir, contract.Manifest)
			remove(t, dir, contract.MetaFile)
		}, ReasonMissing, false},
		"file of 0 bytes": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), 0); err != nil {
				t.Fatal(err)
			}
		}, ReasonTruncated, false},
		"file cut in half": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), size/2); err != nil {
				t.Fatal(err)
			}
		}, ReasonTruncated, false},
		"file cut in half, no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			if err := os.Truncate(filepath.Join(dir, contract.WarmFile), size/2); err != nil {
				t.Fatal(err)
			}
		}, ReasonCorrupt, false},
		"file of zeros": {func(t *testing.T, dir string) {
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, size))
		}, ReasonWiped, true},
		"file of zeros, no manifest": {func(t *testing.T, dir string) {
			remove(t, dir, contract.Manifest)
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, size))
		}, ReasonWiped, true},
		"file of random bytes": {func(t *testing.T, dir string) {
			data := make([]byte, size)
			r := rand.New(rand.NewPCG(1, 2))
			for i := 0; i < len(data); i += 8 {
				binary.LittleEndian.PutUint64(data[i:], r.Uint64())
			}
			overwrite(t, dir, contract.WarmFile, 0, data)
		}, ReasonCorrupt, true},
		"a few pages of zeros": {func(t *testing.T, dir string) {
			overwrite(t, dir, contract.WarmFile, 0, make([]byte, 5<<20))
		}, ReasonCountMismatch, true},
		"more items were saved": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *Manifest) { m.Image.Items++ })
		}, ReasonCountMismatch, true},
		"a fresh file after a crash": {func(t *testing.T, dir string) {
			remove(t, dir, contract.MetaFile)
			edit(t, dir, func(m *Manifest) { m.State, m.Image.Items, m.Image.ItemsExact = Running, 1000000, false })
		}, ReasonCountMismatch, false},
		"another growth factor": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
			if err != nil {
				t.Fatal(err)
			}
			s := strings.Replace(string(b), "slab_config 1.25", "slab_config 1.26", 1)
			overwrite(t, dir, contract.MetaFile, 0, []byte(s))
		}, ReasonCorrupt, true},
		"CAS numbers that are not there": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
			if err != nil {
				t.Fatal(err)
			}
			s := strings.Replace(string(b), "use_cas true\n", "use_cas false\n", 1)
			overwrite(t, dir, contract.MetaFile, 0, []byte(s))
		}, ReasonUnknownLayout, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := savedMember(t)
			test.change(t, dir)
			live, clean, err := count(t, dir)
			if test.want == "" {
				if err != nil || live != 500 || clean != test.clean {
					t.Errorf("%d items, clean %t, %v; want 500, %t", live, clean, err, test.clean)
				}
				return
			}
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Reason != test.want || !errors.Is(err, ErrUnrecoverable) {
				t.Errorf("%d items, %v; want reason %s", live, err, test.want)
			}
		})
	}
}

// TestBrokenEvidence: what can't be read now is no verdict on the file.
func TestBrokenEvidence(t *testing.T) {
	t.Parallel()
	dir := savedMember(t)
	remove(t, dir, contract.MetaFile)
	if err := os.Symlink(contract.MetaFile, filepath.Join(dir, contract.MetaFile)); err != nil {
		t.Fatal(err) // a link to itself: ELOOP for everybody, root too
	}
	if _, _, err := count(t, dir); err == nil || errors.Is(err, ErrUnrecoverable) {
		t.Errorf("got %v, want an error that another attempt may mend", err)
	}
}

// TestUnusedServerIsEmpty: a member that never held an item is read as such:
// its file says so.
func TestUnusedServerIsEmpty(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	m.Save()
	if live, clean, err := count(t, m.dir); live != 0 || !clean || err != nil {
		t.Errorf("%d items, clean %t, %v; want an empty, clean source", live, clean, err)
	}
}

// TestEveryFieldIsChecked: one field of one item that can't be is found, and
// the error says where.
func TestEveryFieldIsChecked(t *testing.T) {
	t.Parallel()
	dir := savedMember(t)
	path := filepath.Join(dir, contract.WarmFile)
	pristine, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	small, large := findItem(t, pristine, "key100"), findItem(t, pristine, "large1")
	chunk := int64(binary.LittleEndian.Uint64(pristine[large+48+8+7:]) - image(t, dir).Base) // its second
	tests := map[string]struct {
		offset int64
		data   []byte
		want   error
	}{
		"unknown flag":              {small + offFlags, []byte{0x03, 0x80}, ErrUnknownLayout},
		"value in extstore":         {small + offFlags, []byte{0x83, 0x01}, ErrUnknownLayout},
		"linked and free":           {small + offFlags, []byte{0x07, 0x01}, ErrUnknownLayout},
		"no CAS":                    {small + offFlags, []byte{0x01, 0x01}, ErrUnknownLayout},
		"free with a flag":          {small + offFlags, []byte{0x04, 0x01}, ErrCorrupt},
		"no flags field":            {small + offFlags, []byte{0x03, 0x00}, ErrUnknownLayout},
		"another class":             {small + offClass, []byte{0x05}, ErrCorrupt},
		"no class":                  {small + offClass, []byte{0x00}, ErrCorrupt},
		"empty key":                 {small + offKeyLen, []byte{0}, ErrCorrupt},
		"key too long":              {small + offKeyLen, []byte{251}, ErrCorrupt},
		"key longer than it is":     {small + offKeyLen, []byte{7}, ErrUnknownLayout},
		"value without line end":    {small + offBytes, []byte{1, 0, 0, 0}, ErrCorrupt},
		"negative value":            {small + offBytes, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
		"value past its slot":       {small + offBytes, []byte{0xff, 0x00, 0, 0}, ErrCorrupt},
		"value past everything":     {small + offBytes, []byte{0xff, 0xff, 0xff, 0x7f}, ErrCorrupt},
		"value shorter than it is":  {small + offBytes, []byte{11, 0, 0, 0}, ErrUnknownLayout},
		"chunked in another class":  {large + offClass, []byte{0x05}, ErrCorrupt},
		"chunked in another page":   {large + 48 + 8 + 7 + offChunkOrig, []byte{0x09}, ErrCorrupt},
		"chunked, another owner":    {large + 48 + 8 + 7 + offChunkHead, []byte{0x08}, ErrCorrupt},
		"chain out of the file":     {large + 48 + 8 + 7 + 6, []byte{0xff}, ErrCorrupt},
		"chain between slots":       {large + 48 + 8 + 7, []byte{0x37}, ErrCorrupt},
		"chain ends early":          {large + 48 + 8 + 7, make([]byte, 8), ErrCorrupt},
		"chain longer than item":    {large + offBytes, []byte{0x00, 0x10, 0x00, 0x00}, ErrCorrupt},
		"chain in a circle":         {chunk + offNext, pristine[large+48+8+7 : large+48+8+7+8], ErrCorrupt},
		"chunk of another owner":    {chunk + offChunkHead, []byte{0x08}, ErrCorrupt},
		"chunk that is free":        {chunk + offFlags, []byte{4, 0}, ErrCorrupt},
		"chunk over its size":       {chunk + offChunkUsed, []byte{0xff, 0xff, 0xff, 0x00}, ErrCorrupt},
		"chunk with less than size": {chunk + offChunkUsed, []byte{0x01, 0x00, 0x00, 0x00}, ErrCorrupt},
		"chunk of negative size":    {chunk + offChunkUsed, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			overwrite(t, dir, contract.WarmFile, test.offset, test.data)
			defer overwrite(t, dir, contract.WarmFile, 0, pristine)
			_, _, err := count(t, dir)
			var refusal *Error
			if !errors.As(err, &refusal) || !errors.Is(err, test.want) || refusal.Offset < 0 || !strings.Contains(err.Error(), "offset") {
				t.Errorf("got %v, want %v with the offset", err, test.want)
			}
		})
	}
}

func image(t testing.TB, dir string) *Image {
	t.Helper()
	m, err := ReadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// findItem returns the offset of the linked item with the key.
func findItem(t testing.TB, file []byte, key string) int64 {
	t.Helper()
	for at := 0; at < len(file); {
		i := strings.Index(string(file[at:]), key)
		if i < 0 {
			break
		}
		start := at + i - itemHeader - 8
		if start >= 0 && file[start+offFlags]&flagLinked != 0 && int(file[start+offKeyLen]) == len(key) {
			return int64(start)
		}
		at += i + 1
	}
	t.Fatalf("no item %q in the file", key)
	return 0
}
