package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"
)

// Most of the heap is caches, which stay. The collector runs when the heap has reached heapGoal, in bytes. If the
// caches leave little room below that, it runs when the heap has grown by leastGrowth percent.
const (
	heapGoal                = 128 << 20
	leastGrowth, mostGrowth = 35, 400
	growthLookedAtEach      = 5 * time.Second
)

// boundMemory tells the garbage collector how much memory there is, unless the environment sets
// GOMEMLIMIT, and how often to run, unless it sets GOGC.
func (f *flags) boundMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(mostGrowth)
		go keepHeapGrowth()
	}
	limit, err := heapLimit(f.memoryLimit)
	if err != nil || limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return err
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// keepHeapGrowth sets the collector's percentage by what the last collection has left. It runs as long as the process.
func keepHeapGrowth() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := mostGrowth; ; time.Sleep(growthLookedAtEach) {
		metrics.Read(live)
		if growth := heapGrowth(live[0].Value.Uint64()); growth != set {
			debug.SetGCPercent(growth)
			set = growth
		}
	}
}

// heapGrowth is by how many percent the heap may grow until the next collection, when live bytes stay.
func heapGrowth(live uint64) int {
	if live == 0 { // nothing has been collected yet
		return mostGrowth
	}
	return min(max((heapGoal-int(live))*100/int(live), leastGrowth), mostGrowth)
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
