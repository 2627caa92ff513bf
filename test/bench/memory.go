package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// usage is what one round took.
type usage struct {
	// seconds by the clock, and of CPU time; 0: not measured.
	seconds, cpu float64
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
