package warmfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// pack makes a volume with a save of the warm file in dir.
func pack(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := Pack(context.Background(), dir, filepath.Join(to, contract.SaveFile), 1); err != nil {
		t.Fatal(err)
	}
	return to
}

// unpack loads the save in dir.
func unpack(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := Unpack(context.Background(), dir, to, nil); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestSaveHoldsUsedPagesOnly, and what is loaded of it is the file that was saved,
// byte for byte where it is used.
func TestSaveHoldsUsedPagesOnly(t *testing.T) {
	t.Parallel()
	dir := savedMember(t, "-m", "256")
	volume := pack(t, dir)
	info, err := os.Stat(filepath.Join(volume, contract.SaveFile))
	if err != nil {
		t.Fatal(err)
	}
	if size, err := PackedSize(dir); err != nil || size != info.Size() || size > 128<<20 {
		t.Errorf("the save has %d bytes, foretold were %d, %v", info.Size(), size, err)
	}
	loaded := unpack(t, volume)
	for _, name := range []string{contract.WarmFile, contract.MetaFile} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(loaded, name))
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d bytes, want %d; %v", name, len(got), len(want), err)
		}
		const page = 1 << 20
		for at := 0; at < len(got); at += page {
			if g, w := got[at:min(at+page, len(got))], want[at:min(at+page, len(got))]; !bytes.Equal(g, w) && (name != contract.WarmFile || !unusedPage(w)) {
				t.Errorf("%s: the page at %d is another one", name, at)
			}
		}
	}
}

// refused tells whether nothing of the volume's save is believed: neither is an item
// yielded behind the damage, nor is anything loaded.
func refused(t *testing.T, volume string, what string) {
	t.Helper()
	_, _, err := count(t, volume)
	if !errors.Is(err, ErrUnrecoverable) {
		t.Errorf("%s: read with %v", what, err)
	}
	to := t.TempDir()
	if err := Unpack(t.Context(), volume, to, nil); !errors.Is(err, ErrUnrecoverable) {
		t.Errorf("%s: loaded with %v", what, err)
	}
	if left, _ := os.ReadDir(to); len(left) > 0 {
		t.Errorf("%s: loaded was %v", what, left)
	}
}

// TestDamagedSaveIsRefused: one bit anywhere, an end anywhere, more than the end,
// a page in another's place, or of another save.
func TestDamagedSaveIsRefused(t *testing.T) {
	t.Parallel()
	dir := savedMember(t, "-m", "64")
	volume := pack(t, dir)
	path := filepath.Join(volume, contract.SaveFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSave(bytes.NewReader(sound), int64(len(sound)))
	if err != nil {
		t.Fatal(err)
	}
	damage := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, volume, what)
	}
	flip := func(at int64) {
		t.Helper()
		b := bytes.Clone(sound)
		b[at] ^= 1 << rand.IntN(8)
		damage("a bit at "+strconv.FormatInt(at, 10), b)
	}
	for _, at := range []int64{0, 7, 8, 12, 16, s.body - 1, s.body, s.body + s.record() - 1, int64(len(sound)) - 1} {
		flip(at)
	}
	for range 3 {
		flip(rand.Int64N(int64(len(sound))))
	}
	for _, end := range []int64{0, 1, int64(savePrefix) - 1, int64(savePrefix), s.body - 1, s.body, s.body + 1, s.body + s.record(), int64(len(sound)) - 1} {
		damage("cut at "+strconv.FormatInt(end, 10), sound[:end])
	}
	damage("one byte more", append(bytes.Clone(sound), 0))
	swapped := bytes.Clone(sound)
	copy(swapped[s.body:], sound[s.body+s.record():s.body+2*s.record()])
	copy(swapped[s.body+s.record():], sound[s.body:s.body+s.record()])
	damage("two pages in each other's place", swapped)
	if err := Pack(t.Context(), dir, path, 2); err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(path)
	if err != nil || len(other) != len(sound) {
		t.Fatalf("%d bytes, want %d; %v", len(other), len(sound), err)
	}
	damage("a page of another save", append(bytes.Clone(sound[:s.body+s.record()]), other[s.body+s.record():]...))
}

// TestOutdatedSave: what a member has started from is refused, until there is a
// later save; what it started without, too.
func TestOutdatedSave(t *testing.T) {
	t.Parallel()
	dir := savedMember(t)
	volume := pack(t, dir)
	mark := func(number int64) {
		t.Helper()
		b, err := InUse{Number: number, Since: time.Now()}.Marshal()
		if err == nil {
			err = os.WriteFile(filepath.Join(volume, contract.InUse), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, want Reason) {
		t.Helper()
		_, err := Generations(volume)
		var refusal *Error
		if want == "" && err != nil || want != "" && (!errors.As(err, &refusal) || refusal.Reason != want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
	}
	expect("before a start", "")
	mark(1)
	expect("started from it", ReasonSaveOutdated)
	if last, err := LastNumber(volume); err != nil || last != 1 {
		t.Errorf("the last number is %d, %v", last, err)
	}
	if err := Pack(t.Context(), dir, filepath.Join(volume, contract.SaveFile), 2); err != nil {
		t.Fatal(err)
	}
	expect("saved again", "")
	if err := os.Mkdir(filepath.Join(volume, contract.GenerationPrefix+"1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, contract.SaveFile), filepath.Join(volume, contract.GenerationPrefix+"1", contract.SaveFile)); err != nil {
		t.Fatal(err)
	}
	expect("set aside", "")
	mark(2)
	expect("started with it set aside", ReasonSaveOutdated)
	if err := os.RemoveAll(filepath.Join(volume, contract.GenerationPrefix+"1")); err != nil {
		t.Fatal(err)
	}
	expect("all of it was replayed", ReasonSaveOutdated)
	for _, bad := range []string{"", "{", "{}", `{"number":-1,"since":"2026-01-01T00:00:00Z"}`} {
		overwriteAll(t, filepath.Join(volume, contract.InUse), bad)
		expect("the mark is "+bad, ReasonCorrupt)
	}
	remove(t, volume, contract.InUse)
	expect("nothing", ReasonMissing)
}

func overwriteAll(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// smallSave is one of smallFile.
func smallSave(t testing.TB) []byte {
	t.Helper()
	image := smallImage()
	h := &saveHeader{Number: 1, Size: image.MaxBytes, PageSize: image.SlabPageSize, Used: []byte{0b0111}}
	manifest := Manifest{State: Died, Image: &image, BootID: "a boot"}
	var err error
	if h.Manifest, err = manifest.Marshal(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeSave(t.Context(), bytes.NewReader(smallFile()), &b, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAsFile reads all of the warm file in a save.
func readAsFile(b []byte) ([]byte, error) {
	s, err := readSave(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(s, 0, min(s.Size, 1<<20)))
}

// FuzzSave: no change of a save passes, whatever is overwritten or cut off.
func FuzzSave(f *testing.F) {
	sound := smallSave(f)
	want, err := readAsFile(sound)
	if err != nil || !bytes.Equal(want, smallFile()) {
		f.Fatalf("%d bytes, %v", len(want), err)
	}
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(20), []byte("\x00\x00"), uint32(1))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(sound)
		copy(b[int(at)%len(b):], patch)
		b = b[:len(b)-int(cut)%len(b)]
		switch got, err := readAsFile(b); {
		case bytes.Equal(b, sound):
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("a sound save: %v", err)
			}
		case !errors.Is(err, ErrUnrecoverable):
			t.Errorf("a damaged save was read with %v", err)
		}
	})
}

// FuzzSaveHeader: whatever a header says whose checksum is right, nothing panics,
// and errors are of the documented kind.
func FuzzSaveHeader(f *testing.F) {
	h := saveHeader{Number: 1, Size: 16 << 10, PageSize: 4 << 10, Used: []byte{1}}
	header, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, make([]byte, h.record()))
	f.Fuzz(func(t *testing.T, header, pages []byte) {
		b := append([]byte(saveMagic), make([]byte, 8)...)
		binary.LittleEndian.PutUint32(b[len(saveMagic):], uint32(len(header)))
		binary.LittleEndian.PutUint32(b[len(saveMagic)+4:], crc32.Checksum(header, castagnoli))
		if _, err := readAsFile(append(append(b, header...), pages...)); err != nil && !errors.Is(err, ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
