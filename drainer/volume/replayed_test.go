package volume

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// A member saves at its end, with any file in place of a replay's marks, and after any damage to them. Only a
// generation whose marks may be lost is removed, with all older ones.
func TestMarksVetoNoSave(t *testing.T) {
	dir := savedMember(t)
	_, want := readAll(t, dir)
	for name, test := range map[string]struct {
		make func(path string) error
		fail error
		left int
	}{
		"none":              {func(string) error { return nil }, nil, 3},
		"a file":            {func(path string) error { return os.WriteFile(path, []byte{1}, 0o600) }, nil, 3},
		"a directory":       {func(path string) error { return os.Mkdir(path, 0o700) }, nil, 3},
		"a pipe":            {func(path string) error { return unix.Mkfifo(path, 0o600) }, nil, 3},
		"a loop":            {func(path string) error { return os.Symlink(path, path) }, nil, 3},
		"a disk that fails": {func(path string) error { return os.WriteFile(path, []byte{1}, 0o600) }, syscall.EIO, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "a pipe" && name != "a disk that fails" {
				tier.Second(t, "TestMarksVetoNoSave")
			}
			volume := t.TempDir()
			for number := 1; number <= 3; number++ {
				if _, err := Save(t.Context(), dir, volume, SaveOptions{Logf: t.Logf}); err != nil {
					t.Fatal(err)
				}
				if err := Keep(volume, number, false); err != nil {
					t.Fatal(err)
				}
			}
			marks := filepath.Join(volume, GenerationName(2, false), contract.ReplayedFile)
			if err := test.make(marks); err != nil {
				t.Fatal(err)
			}
			defer func() { syncFile = Sync }()
			if test.fail != nil {
				syncFile = func(path string) error { return &os.PathError{Op: "sync", Path: path, Err: test.fail} }
			}
			if _, err := Save(t.Context(), dir, volume, SaveOptions{Logf: t.Logf}); err != nil {
				t.Fatal(err)
			}
			if kept, err := Kept(volume); err != nil || len(kept) != test.left {
				t.Errorf("%v are left, want %d of 3; %v", kept, test.left, err)
			}
			if _, got := readAll(t, volume); got != want {
				t.Errorf("%d items are saved, want %d", got, want)
			}
		})
	}
}

// A full disk takes no marks. Outdated files are removed first, and the generation that is replayed is never
// removed.
func TestRoomForMarksIsMadeByWhatIsOlder(t *testing.T) {
	dir, volume := savedMember(t), t.TempDir()
	for number := 1; number <= 2; number++ {
		if _, err := Save(t.Context(), dir, volume, SaveOptions{Logf: t.Logf}); err != nil {
			t.Fatal(err)
		}
		if err := Keep(volume, number, false); err != nil {
			t.Fatal(err)
		}
	}
	before := Fallocate
	defer func() { Fallocate = before }()
	var left int
	Fallocate = func(int, uint32, int64, int64) error {
		kept, err := Kept(volume)
		if err != nil {
			return err
		}
		if len(kept) > left {
			return unix.ENOSPC
		}
		return nil
	}
	newest := Generation{Dir: filepath.Join(volume, GenerationName(2, false)), Number: 2}
	left = 1
	marks, err := OpenMarks(volume, newest, 1<<20, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := marks.Close(); err != nil {
		t.Fatal(err)
	}
	if kept, err := Kept(volume); err != nil || len(kept) != 1 || kept[0].Number != 2 {
		t.Errorf("%v are left, want generation 2; %v", kept, err)
	}
	left = 0
	if _, err := OpenMarks(volume, newest, 1<<20, t.Logf); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("no room for marks at all: %v", err)
	}
	if kept, err := Kept(volume); err != nil || len(kept) != 1 {
		t.Errorf("%v are left, want generation 2; %v", kept, err)
	}
}

// The removal of a generation also frees the room of its marks.
func TestAGenerationsMarksAreRoomThatItsRemovalMakes(t *testing.T) {
	volume := t.TempDir()
	if _, err := Save(t.Context(), savedMember(t), volume, SaveOptions{Logf: t.Logf}); err != nil {
		t.Fatal(err)
	}
	if err := Keep(volume, 1, false); err != nil {
		t.Fatal(err)
	}
	kept, err := Kept(volume)
	if err != nil {
		t.Fatal(err)
	}
	before, err := allocated(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 30
	marks, err := OpenMarks(volume, kept[0], size, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer marks.Close()
	if after, err := allocated(kept[0]); err != nil || after-before < MarksBytes(size) {
		t.Errorf("its removal makes %d bytes of room, and made %d before it had marks of %d; %v", after, before, MarksBytes(size), err)
	}
}
