package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// usage is what one round took.
type usage struct {
	// seconds by the clock, and of CPU time; 0: not measured.
	seconds, cpu float64
	// supervisors is the CPU time of those that stream; 0: not measured.
	supervisors float64
	// servers is the CPU time of those that were filled; 0: not measured.
	servers float64
	// around is what of the seconds is before the first item and after the last; 0: not measured.
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

// ownCPU is the CPU time of this process so far, in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// cpu is the CPU time of the servers so far, in seconds.
func (f fleet) cpu() float64 {
	ticks := 0
	for _, s := range f {
		ticks += ticksOf(s.memcached())
	}
	return float64(ticks) / ticksPerSecond
}

// supervisorsCPU is that of the servers' supervisors, in seconds.
func (f fleet) supervisorsCPU() float64 {
	ticks := 0
	for _, s := range f {
		if s.child != 0 {
			ticks += ticksOf(s.cmd.Process.Pid)
		}
	}
	return float64(ticks) / ticksPerSecond
}

const ticksPerSecond = 100 // of proc(5), on every platform of Linux

func ticksOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, behindName, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(behindName)
	if len(fields) <= 12 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}

// watch samples a process' anonymous memory until stop, which returns the peak.
func watch(pid int) (stop func() int64) {
	const pause = 5 * time.Millisecond
	quit, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			most = max(most, rssAnon(pid))
			select {
			case <-ticker.C:
			case <-quit:
				peak <- most
				return
			}
		}
	}()
	return func() int64 {
		close(quit)
		return <-peak
	}
}

// watchSupervisors samples the anonymous memory of the servers' supervisors until stop, which returns
// the peak of the one that has the most.
func (f fleet) watchSupervisors() (stop func() int64) {
	var stops []func() int64
	for _, s := range f {
		if s.child != 0 {
			stops = append(stops, watch(s.cmd.Process.Pid))
		}
	}
	return func() (most int64) {
		for _, stop := range stops {
			most = max(most, stop())
		}
		return most
	}
}

// rssAnon is a process' resident anonymous memory in bytes, 0 when it is gone.
func rssAnon(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}
