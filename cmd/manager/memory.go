package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// boundMemory tells the garbage collector how much memory there is, unless the environment sets
// GOMEMLIMIT.
func (f *flags) boundMemory() error {
	if os.Getenv("GOGC") == "" {
		// Most of the heap is caches, which stay, and there is little garbage. So collecting when
		// the heap has grown by a third, instead of at twice its size, costs little.
		debug.SetGCPercent(35)
	}
	limit, err := heapLimit(f.memoryLimit)
	if err != nil || limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return err
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// heapLimit is how much of a container's limit the Go runtime may use, in bytes; 0 means no limit.
// A tenth is left for the program itself and for the kernel's buffers.
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
