package linux

import (
	"math"

	"golang.org/x/sys/unix"
)

// MaxFiles is how many files this process may have open; 0 if that is not known. Go has raised the limit as far as it may.
func MaxFiles() int64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int64(limit.Cur)
}
