package volume

import (
	"errors"
	"syscall"

	"example.com/memcached-operator/drainer/contract"
)

// Trouble returns the reason that people are given if the disk is the cause of an error; "" if it isn't.
func Trouble(err error) string {
	var room *RoomError
	switch {
	case errors.As(err, &room), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return contract.ReasonVolumeFull
	case errors.Is(err, syscall.EROFS):
		return contract.ReasonVolumeReadOnly
	case errors.Is(err, syscall.EIO):
		return contract.ReasonVolumeFailed
	}
	return ""
}
