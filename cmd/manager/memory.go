package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// Most of the heap is caches, which stay. The collector runs when the heap has reached heapGoal, in bytes. If the
// caches leave little room below that, it runs when the heap has grown by leastGrowth percent.
const (
	heapGoal                = 96 << 20
	leastGrowth, mostGrowth = 35, 400
)

// boundMemory tells the garbage collector how much memory there is, unless the environment sets
// GOMEMLIMIT, and how often to run, unless it sets GOGC.
func (f *flags) boundMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(leastGrowth)
		afterEachCollection(setHeapGrowth)
	}
	limit, err := heapLimit(f.memoryLimit)
	if err != nil || limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return err
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// afterEachCollection calls f after each garbage collection, as long as the process runs: nothing holds the object,
// so that each collection cleans it up.
func afterEachCollection(f func()) {
	runtime.AddCleanup(&struct{ _ *byte }{}, func(f func()) {
		f()
		afterEachCollection(f)
	}, f)
}

// setHeapGrowth sets the collector's percentage by what its last run has left.
func setHeapGrowth() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(heapGrowth(live[0].Value.Uint64()))
}

// heapGrowth is by how many percent the heap may grow until the next collection, when live bytes stay.
func heapGrowth(live uint64) int {
	return min(max((heapGoal-int(live))*100/max(int(live), 1), leastGrowth), mostGrowth)
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
