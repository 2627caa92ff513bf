package volume

import (
	"path/filepath"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// Empty removes everything from which a member could restart, and then notes for which serial
// (contract.StepOut) it starts empty. memory is the directory of the warm file in memory; empty if it is on
// the volume. A member that is killed in between starts with the rest, and is told again.
func Empty(dir, memory string, serial int64) error {
	if err := DropAll(dir); err != nil {
		return err
	}
	if memory != "" && memory != dir {
		if err := DropWarmFile(memory); err != nil {
			return err
		}
	}
	if err := DropNote(dir); err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, contract.EmptyFile), []byte(strconv.FormatInt(serial, 10)+"\n"))
}

// StartedEmpty returns the serial for which the member has started empty; 0 if there is none, or if it can't
// be read. Then the member is told again.
func StartedEmpty(dir string) int64 {
	b, err := readSmall(filepath.Join(dir, contract.EmptyFile))
	if err != nil {
		return 0
	}
	serial, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || serial < 0 {
		return 0
	}
	return serial
}
