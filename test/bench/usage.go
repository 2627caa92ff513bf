package main

import (
	"os/exec"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/harness"
)

// usage has the resources that one round took.
type usage struct {
	// seconds are by the clock, cpu is CPU time. 0: not measured.
	seconds, cpu float64
	// supervisors is the CPU time of supervisors that stream; 0: not measured.
	supervisors float64
	// servers is the CPU time of the servers that were filled; 0: not measured.
	servers float64
	// around is how many of the seconds were before the first item and after the last; 0: not measured.
	around float64
	// phases has the seconds of a receipt, of the longest mover; nil: there is none.
	phases map[contract.Phase]float64
	// anonymous memory at its peak, in bytes; 0: not measured.
	anonymous int64
}

// runWatched runs cmd to its end.
func runWatched(cmd *exec.Cmd) (usage, error) {
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return usage{}, err
	}
	stop := watch(cmd.Process.Pid)
	err := cmd.Wait()
	u := usage{seconds: time.Since(begin).Seconds(), anonymous: stop()}
	u.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return u, err
}

// seconds reads a meter.
func seconds(m *harness.Meter, into *float64) error {
	used, err := m.Used()
	*into = used.Seconds()
	return err
}

// watch samples the anonymous memory of processes until stop. This returns the highest of their peaks, in
// bytes.
func watch(pids ...int) (stop func() int64) {
	const pause = 5 * time.Millisecond
	return harness.Highest(pause, func() (most int64) {
		for _, pid := range pids {
			m, _ := harness.MemoryOf(pid) // 0 if the process has ended
			most = max(most, m.Anonymous)
		}
		return most
	})
}
