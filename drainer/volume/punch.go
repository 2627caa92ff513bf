package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/warmfile"
)

// A running member has room reserved for its whole file, used or not. A file that is kept for a replay needs
// only its used pages, so the others are given back to the disk. Then a volume has room for the file of a
// cache that isn't full, and for a new one.

// gives tells whether the file system of dir takes back a part of a file. If no file can be made there, for
// example because it is full, the answer is no, and room is made otherwise.
func gives(dir string) bool {
	probe, err := os.CreateTemp(dir, probePrefix+"*")
	if err != nil {
		return false
	}
	return errors.Join(os.Remove(probe.Name()), punchHole(probe, 0, 1<<20), probe.Close()) == nil
}

// probePrefix begins the name of a file that is removed as soon as it is made.
const probePrefix = ".probe-"

// punchHole gives a part of the file back to the disk.
func punchHole(file *os.File, offset, length int64) error {
	for {
		if err := Fallocate(int(file.Fd()), linux.PunchHole, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// giveable returns how many bytes of the warm file in dir could be given back: 0 if that is not known.
func giveable(dir string) (int64, error) {
	if HasSave(dir) || Missing(filepath.Join(dir, contract.WarmFile)) {
		return 0, nil
	}
	if !gives(dir) {
		return 0, nil
	}
	taken, err := allocated(Generation{Dir: dir})
	if err != nil {
		return 0, err
	}
	r, err := Open(dir, Options{})
	if err != nil {
		return 0, nil // the file is not kept for a replay
	}
	return max(0, taken-r.Used()), r.Close()
}

// giveBack gives the unused pages of the warm file in dir back to the disk. These pages then read as zeros,
// as unused pages do. A file system that can't take pages back keeps them.
func giveBack(dir string) (err error) {
	r, err := Open(dir, Options{})
	if errors.Is(err, warmfile.ErrUnrecoverable) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	file, err := os.OpenFile(filepath.Join(dir, contract.WarmFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for run, err := range r.Unused() {
		if err == nil {
			err = punchHole(file, run.Offset, run.Length)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("give unused pages of the warm file back to the disk: %w", err)
		}
	}
	return nil
}
