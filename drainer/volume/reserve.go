package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/snapshot"
)

// reserveStep is how many bytes of a file are reserved at once; ctx is checked in between.
const reserveStep = 1 << 30

// Fallocate reserves a part of a file; tests replace it.
var Fallocate = linux.Fallocate

// ReserveWarmFile reserves room on the disk for all of the warm file in dir, which memcached maps: a file
// with holes would end memcached by SIGBUS at a store when the disk is full. ReserveWarmFile makes the file
// if there is none. If the disk or a quota is full, ReserveWarmFile removes what was kept for a replay, the
// oldest first, as long as that may help. If there is still not enough room, ReserveWarmFile returns an
// error, and removes the file if it has just made it; an older file keeps its blocks.
//
// Reserved blocks are not written to. On ext4 and xfs the reservation takes a moment for any size, and the
// blocks read as zeros. A file system in memory would write to them, and some file systems can't reserve:
// there only the free room is checked. logf is called if the file system can't reserve, or if a reservation
// guarantees nothing.
func ReserveWarmFile(ctx context.Context, dir string, size int64, logf func(string, ...any)) error {
	inMemory, err := linux.InMemory(dir)
	if err != nil {
		return err
	}
	if linux.CopiesOnWrite(dir) {
		logf("the volume's file system needs free space for every write, even to reserved blocks: memcached crashes if the disk fills up")
	}
	path := filepath.Join(dir, contract.WarmFile)
	isNew := Missing(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o700)
	if err != nil {
		return fmt.Errorf("reserve room for the warm file: %w", err)
	}
	for {
		if inMemory {
			err = roomFor(file, dir, size)
		} else {
			err = reserve(ctx, file, dir, size, logf)
		}
		if !snapshot.IsFull(err) {
			break
		}
		dropped, dropErr := dropKept(file, dir, size, logf)
		if err = errors.Join(err, dropErr); !dropped || dropErr != nil {
			break
		}
	}
	err = errors.Join(err, file.Close())
	if err != nil && isNew {
		err = errors.Join(err, removeDurably(path))
	}
	if err == nil && !inMemory {
		reserveSpare(dir, logf)
	}
	return err
}

// dropKept removes the oldest generation, to make room for the warm file: a member that starts without its
// items is better than none. dropKept removes nothing if all generations together would not make enough room.
func dropKept(file *os.File, dir string, size int64, logf func(string, ...any)) (dropped bool, err error) {
	kept, err := Kept(dir)
	if err != nil || len(kept) == 0 {
		return false, err
	}
	gained := int64(0)
	for _, g := range kept {
		n, err := allocated(g)
		if err != nil {
			return false, err
		}
		gained += n
	}
	if lacking, err := lacks(file, dir, size); err != nil || lacking > gained {
		return false, err
	}
	return true, kept[len(kept)-1].sacrifice(logf)
}

// lacks returns how many bytes the disk lacks for all of the file, 0 or less if it shows enough room.
func lacks(file *os.File, dir string, size int64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, err
	}
	free, err := linux.FreeBytes(dir)
	const blockBytes = 512
	return size - st.Blocks*blockBytes - free, err
}

// roomFor returns ENOSPC if the disk lacks room for all of the file.
func roomFor(file *os.File, dir string, size int64) error {
	if lacking, err := lacks(file, dir, size); err != nil || lacking <= 0 {
		return err
	}
	return fmt.Errorf("room of %d MiB for the warm file: %w", Mebibytes(size), unix.ENOSPC)
}

// spareBytes is the size of a spare file. The end writes far less, but a file system makes no file if it
// lacks room for everything that a new file may need, hundreds of KiB on xfs.
const spareBytes = 1 << 20

// reserveSpare reserves room for what is written at a planned end. If the disk has no such room, the member
// starts without it.
func reserveSpare(dir string, logf func(string, ...any)) {
	file, err := os.OpenFile(filepath.Join(dir, contract.SpareFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(Fallocate(int(file.Fd()), 0, 0, spareBytes), file.Close())
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		logf("disk space for the files that this member writes when it ends can't be reserved, so it can't write them if the disk is full by then: %v", err)
	}
}

// DropSpare frees the room of reserveSpare, before something is written there. xfs frees the blocks of a
// removed file some time later, but those of a truncated file at once.
func DropSpare(dir string) error {
	path := filepath.Join(dir, contract.SpareFile)
	_ = os.Truncate(path, 0) // a directory in the file's place can't be truncated, but removed
	return removeDurably(path)
}

func reserve(ctx context.Context, file *os.File, dir string, size int64, logf func(string, ...any)) error {
	for done := int64(0); done < size; done += reserveStep {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		switch err := Fallocate(int(file.Fd()), 0, done, min(reserveStep, size-done)); {
		case errors.Is(err, unix.EINTR):
			done -= reserveStep
		case Trouble(err) != "":
			return fmt.Errorf("reserve %d MiB for the warm file: %w", Mebibytes(size), err)
		case err != nil: // usually EOPNOTSUPP
			logf("the volume's file system can't reserve disk space for the warm file (%v): memcached crashes if the disk fills up", err)
			return roomFor(file, dir, size)
		}
	}
	return nil
}
