package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// boundMemory tells the garbage collector how much memory there is, unless the
// environment does.
func (f *flags) boundMemory() error {
	if os.Getenv("GOGC") == "" {
		// Most of the heap is caches, which stay, and there is little garbage. So it
		// costs little to let the heap grow by a third between collections, not to twice
		// its size.
		debug.SetGCPercent(35)
	}
	limit, err := heapLimit(f.memoryLimit)
	if err != nil || limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return err
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// heapLimit is what the Go runtime may use of a container's limit, in bytes. A tenth is
// left to the program itself and to the kernel's buffers. 0 means no limit.
func heapLimit(container string) (int64, error) {
	if container == "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(container, 10, 64)
	if err != nil || limit < 0 {
		return 0, fmt.Errorf("--memory-limit, or MEMORY_LIMIT: %q is not a number of bytes", container)
	}
	return limit - limit/10, nil
}
