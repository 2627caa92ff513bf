package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// pack returns a volume with a save of the warm file in dir.
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
	if err := Unpack(context.Background(), dir, to, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	return to
}

// A file that is loaded from it is the saved file, byte for byte where it is used.
func TestSaveHoldsUsedPagesOnly(t *testing.T) {
	t.Parallel()
	dir := savedMember(t, "-m", "64")
	volume := pack(t, dir)
	info, err := os.Stat(filepath.Join(volume, contract.SaveFile))
	if err != nil {
		t.Fatal(err)
	}
	if size, err := PackedSize(dir); err != nil || size != info.Size() || size > 32<<20 {
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
			if g, w := got[at:min(at+page, len(got))], want[at:min(at+page, len(got))]; !bytes.Equal(g, w) && (name != contract.WarmFile || !warmfile.UnusedPage(w)) {
				t.Errorf("%s: the page at %d is another one", name, at)
			}
		}
	}
}

// refused checks that nothing of the volume's save is trusted: no item is yielded after the damage, and
// nothing is loaded.
func refused(t *testing.T, volume string, what string) {
	t.Helper()
	_, _, err := count(t, volume)
	if !errors.Is(err, warmfile.ErrUnrecoverable) {
		t.Errorf("%s: read with %v", what, err)
	}
	notLoaded(t, volume, what)
}

// notLoaded checks that nothing of the volume's save is loaded.
func notLoaded(t *testing.T, volume string, what string) {
	t.Helper()
	to := t.TempDir()
	if err := Unpack(t.Context(), volume, to, func(int64, int64) {}); !errors.Is(err, warmfile.ErrUnrecoverable) {
		t.Errorf("%s: loaded with %v", what, err)
	}
	if left, _ := os.ReadDir(to); len(left) > 0 {
		t.Errorf("%s: loaded was %v", what, left)
	}
}

// pieces are the parts of a save that a test damages.
type pieces struct {
	sound []byte
	// body is the offset of its slots, slot their size, end the offset of its index.
	body, slot, end int64
}

func piecesOf(t *testing.T, volume string) pieces {
	t.Helper()
	sound, err := os.ReadFile(filepath.Join(volume, contract.SaveFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSave(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const block, slot = 4 << 10, 1<<20 + 4<<10
	body := (16 + int64(binary.LittleEndian.Uint32(sound[8:])) + block - 1) / block * block
	return pieces{sound, body, slot, body + int64(len(s.UsedPages()))*slot}
}

// The damage is one bit anywhere, an end anywhere, or a page in another's place. All items on the whole pages
// are read, no others, and missing ones are reported. Only a save with all pages is loaded.
func TestDamagedSaveIsWorthItsWholePages(t *testing.T) {
	tier.Second(t, "TestASaveIsWorthItsWholePages")
	t.Parallel()
	dir := savedMember(t)
	want, n := readAll(t, dir)
	volume := pack(t, dir)
	p := piecesOf(t, volume)
	check := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(volume, contract.SaveFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openSave(volume)
		if err != nil {
			refused(t, volume, what)
			return
		}
		missing, lost := missingOf(t, dir, s)
		got, _ := readAll(t, volume)
		for key, held := range want {
			switch g, there := got[key]; {
			case there && g != held:
				t.Errorf("%s: %q has another value", what, key)
			case strings.HasPrefix(key, "large") && missing > 0: // its chunks may be on any page
			case there == lost(key):
				t.Errorf("%s: %q is there: %t", what, key, there)
			}
		}
		if len(got) > len(want) {
			t.Errorf("%s: %d items, there were %d", what, len(got), len(want))
		}
		_, err = drainAll(t.Context(), volume)
		if told := warmfile.IsReason(err, warmfile.ReasonSaveIncomplete); told != (missing > 0) {
			t.Errorf("%s: %d pages are missing, and a drain ends with %v", what, missing, err)
		}
		if missing > 0 {
			notLoaded(t, volume, what)
		} else if _, loaded := readAll(t, unpack(t, volume)); loaded != n {
			t.Errorf("%s: all pages are there, and %d of %d items are loaded", what, loaded, n)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	flip := func(at int64) {
		t.Helper()
		b, bit := bytes.Clone(p.sound), random.IntN(8)
		b[at] ^= 1 << bit
		check(fmt.Sprintf("bit %d of the byte at %d", bit, at), b)
	}
	for _, at := range []int64{0, 7, 8, 12, 16, p.body, p.body + 4096, p.end - 1, p.end} {
		flip(at)
	}
	for range 5 {
		flip(p.body + random.Int64N(p.end-p.body))
	}
	for _, end := range []int64{0, 15, 16, p.body - 1, p.body, p.body + p.slot, p.end - p.slot, p.end - 1, p.end, int64(len(p.sound)) - 1} {
		check("cut at "+strconv.FormatInt(end, 10), p.sound[:end])
	}
	for range 5 {
		end := p.body + random.Int64N(p.end-p.body)
		check("cut at "+strconv.FormatInt(end, 10), p.sound[:end])
		holes := bytes.Clone(p.sound[:p.end])
		for range 10 {
			at := p.body + random.Int64N(p.end-p.body)/p.slot*p.slot
			clear(holes[at : at+p.slot])
		}
		check("with holes", holes)
	}
	swapped := bytes.Clone(p.sound[:p.end])
	copy(swapped[p.body:], p.sound[p.body+p.slot:p.body+2*p.slot])
	copy(swapped[p.body+p.slot:], p.sound[p.body:p.body+p.slot])
	check("two slots in each other's place", swapped)
}

// missingOf returns how many pages of the warm file in dir are missing in a save of it, and whether a key is
// on one of them. missingOf doesn't use the reader: a page is there if it is the same, byte for byte.
func missingOf(t *testing.T, dir string, s *snapshot.Save) (n int, lost func(key string) bool) {
	t.Helper()
	defer s.Close()
	file, err := os.ReadFile(filepath.Join(dir, contract.WarmFile))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[int]bool{}
	page := make([]byte, s.PageSize)
	for _, n := range s.UsedPages() {
		if _, err := s.ReadAt(page, int64(n)*int64(s.PageSize)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(page, file[int(n)*s.PageSize:][:s.PageSize]) {
			missing[int(n)] = true
		}
	}
	return len(missing), func(key string) bool { return missing[bytes.Index(file, []byte(key+"\x00"))/s.PageSize] }
}

// A save from which a member has started, or without which it has started, is refused until there is a later
// save.
func TestASaveThatAMemberStartedFromIsRefused(t *testing.T) {
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
	expect := func(when string, want warmfile.Reason) {
		t.Helper()
		_, err := Generations(volume)
		var refusal *warmfile.Error
		if want == "" && err != nil || want != "" && (!errors.As(err, &refusal) || refusal.Reason != want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
	}
	expect("before a start", "")
	mark(1)
	expect("started from it", warmfile.ReasonSaveOutdated)
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
	expect("kept", "")
	mark(2)
	expect("started with it kept", warmfile.ReasonSaveOutdated)
	if err := os.RemoveAll(filepath.Join(volume, contract.GenerationPrefix+"1")); err != nil {
		t.Fatal(err)
	}
	expect("all of it was replayed", warmfile.ReasonSaveOutdated)
	for _, bad := range []string{"", "{", "{}", `{"number":-1,"since":"2026-01-01T00:00:00Z"}`} {
		overwriteAll(t, filepath.Join(volume, contract.InUse), bad)
		expect("the mark is "+bad, warmfile.ReasonCorrupt)
	}
	remove(t, volume, contract.InUse)
	expect("nothing", warmfile.ReasonMissing)
}

func overwriteAll(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
