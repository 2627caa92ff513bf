package e2e

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A test begins when the CPUs have time left, one after the other. More tests at a time than that are not
// done sooner: they only make each other late, until deadlines pass that have nothing to do with what is tested.
const (
	// roomLooks is how long the CPUs are watched, and roomIdle the part of it in which they have to be idle.
	roomLooks = 5 * time.Second
	roomIdle  = 0.1
	// roomWaits is how long a test waits, where others keep the machine busy.
	roomWaits = 5 * time.Minute
)

// room is taken by the test that begins next; tests is how many run.
var room struct {
	sync.Mutex
	tests atomic.Int32
}

// waitForRoom until the test may begin. The first does at once.
func waitForRoom(t *testing.T) {
	t.Helper()
	came := time.Now()
	room.Lock()
	defer room.Unlock()
	for room.tests.Load() > 0 && time.Since(came) < roomWaits {
		idle, all := cpuTime(t)
		time.Sleep(roomLooks)
		idleNow, allNow := cpuTime(t)
		if float64(idleNow-idle) >= roomIdle*float64(allNow-all) {
			break
		}
	}
	room.tests.Add(1)
	t.Cleanup(func() { room.tests.Add(-1) })
}

// cpuTime that the machine's CPUs were idle, and all of it, since it started: in the unit of /proc/stat.
func cpuTime(t *testing.T) (idle, all int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var times [8]int64 // user, nice, system, idle, iowait, irq, softirq, steal
	if _, err := fmt.Sscanf(string(line), "cpu %d %d %d %d %d %d %d %d", &times[0], &times[1], &times[2], &times[3],
		&times[4], &times[5], &times[6], &times[7]); err != nil {
		t.Fatalf("/proc/stat: %v: %q", err, line)
	}
	for _, one := range times {
		all += one
	}
	return times[3] + times[4], all
}
