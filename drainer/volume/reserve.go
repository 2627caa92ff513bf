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
)

// reserveStep is how many bytes of a file are reserved at once; ctx is checked in between.
const reserveStep = 1 << 30

// Fallocate reserves a part of a file; tests replace it.
var Fallocate = linux.Fallocate

// ReserveWarmFile reserves room on the disk for all of the warm file in dir, which memcached maps: a file
// with holes would end memcached by SIGBUS at a store when the disk is full. It makes the file if it isn't
// there. It returns an error if there is not enough room. Then it removes a new file, and an older file keeps
// what it has.
//
// Reserved blocks are not written to. On ext4 and xfs the reservation takes a moment for any size, and the
// blocks read as zeros. A file system in memory would write to them, so there nothing is reserved. If a file
// system can't reserve, or its reservation guarantees nothing, logf is called.
func ReserveWarmFile(ctx context.Context, dir string, size int64, logf func(string, ...any)) error {
	if inMemory, err := linux.InMemory(dir); inMemory || err != nil {
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
	err = errors.Join(reserve(ctx, file, size, logf), file.Close())
	if err != nil && isNew {
		err = errors.Join(err, removeDurably(path))
	}
	if err == nil {
		reserveSpare(dir, logf)
	}
	return err
}

// spareBytes is the size of a spare file. It is far more than what is written at the end, because a file
// system makes no file if it lacks room for everything that a new file may need, hundreds of KiB on xfs.
const spareBytes = 1 << 20

// reserveSpare reserves room for what is written at a planned end. If the disk has no such room, the member
// starts all the same.
func reserveSpare(dir string, logf func(string, ...any)) {
	file, err := os.OpenFile(filepath.Join(dir, contract.SpareFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(Fallocate(int(file.Fd()), 0, 0, spareBytes), file.Close())
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		logf("disk space for the files that this member writes when it ends can't be reserved, so it can't write them if the disk is full by then: %v", err)
	}
}

// DropSpare frees that room, before something is written there. xfs frees the blocks of a removed file some
// time later, but those of a truncated file at once.
func DropSpare(dir string) error {
	path := filepath.Join(dir, contract.SpareFile)
	if err := os.Truncate(path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, removeDurably(path))
	}
	return removeDurably(path)
}

func reserve(ctx context.Context, file *os.File, size int64, logf func(string, ...any)) error {
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
			return nil
		}
	}
	return nil
}
