//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	guardWord = "guard"
	// clusterState exists while a cluster of test/cluster is up.
	clusterState = "/var/lib/memcached-operator-cluster"
	// endsWithin is how long a killed process, or a file or mount that it uses, may take to go.
	endsWithin = time.Minute
)

// guardian is the guard, for the runner.
type guardian struct {
	cmd   *exec.Cmd
	leash io.WriteCloser
}

// startGuard starts the guard. The guard removes the folder at the end, and the cluster, unless one is up now.
func startGuard(scratch string) (*guardian, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &guardian{cmd: exec.Command(self, guardWord, scratch)}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	g.cmd.Stdout, g.cmd.Stderr = os.Stdout, os.Stderr
	if g.leash, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

// watch tells the guard of a session whose processes it ends.
func (g *guardian) watch(session int) { _, _ = fmt.Fprintln(g.leash, session) }

// finish lets the guard clean up, and waits for it.
func (g *guardian) finish() error {
	return errors.Join(g.leash.Close(), g.cmd.Wait())
}

// guard waits until the runner has ended, and cleans up.
func guard(scratch string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	_, err := os.Stat(clusterState)
	mayRemove := errors.Is(err, os.ErrNotExist)
	var sessions []int
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if session, err := strconv.Atoi(lines.Text()); err == nil {
			sessions = append(sessions, session)
		}
	}
	if err := cleanUp(sessions, scratch, mayRemove); err != nil {
		fmt.Fprintln(os.Stderr, "testrun: clean up:", err)
		os.Exit(1)
	}
}

func cleanUp(sessions []int, scratch string, cluster bool) error {
	var errs []error
	for _, session := range sessions {
		for end := time.Now().Add(endsWithin); ; time.Sleep(50 * time.Millisecond) {
			left := ofSession(session)
			for _, p := range left {
				p.kill()
			}
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				errs = append(errs, fmt.Errorf("these processes don't end: %v", left))
				break
			}
		}
	}
	if _, err := os.Stat(clusterState); err == nil && cluster {
		if out, err := exec.Command("make", "--no-print-directory", "cluster-down").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("make cluster-down: %w\n%s", err, out))
		}
	}
	return errors.Join(append(errs, unmountBelow(scratch), os.RemoveAll(scratch))...)
}

// unmountBelow unmounts the mounts of a killed test in the folder, the last mounted first.
func unmountBelow(folder string) error {
	// The kernel names mounts by their real paths.
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		// proc_pid_mountinfo(5): ID PARENT DEVICE ROOT POINT …, where a space and the like are \ooo.
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, octal.ReplaceAllStringFunc(fields[4], func(s string) string {
				code, _ := strconv.ParseUint(s[1:], 8, 8)
				return string([]byte{byte(code)})
			}))
		}
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if strings.HasPrefix(point, real+"/") {
			if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
			}
		}
	}
	return errors.Join(errs...)
}

var octal = regexp.MustCompile(`\\[0-3][0-7]{2}`)

// process is a process that runs.
type process struct {
	pid  int
	name string
}

// String returns its name and number.
func (p process) String() string { return fmt.Sprintf("%s (%d)", p.name, p.pid) }

func (p process) kill() { _ = syscall.Kill(p.pid, syscall.SIGKILL) }

// ofSession finds the processes of a session.
func ofSession(session int) []process {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []process
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// proc(5): PID (NAME) STATE PPID PGRP SESSION …
		head, rest, _ := strings.Cut(string(text), "(")
		end := strings.LastIndex(rest, ")")
		fields := strings.Fields(rest[max(end, 0)+1:])
		if end < 0 || len(fields) < 4 || fields[0] == "Z" || fields[3] != strconv.Itoa(session) {
			continue
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(head))
		found = append(found, process{pid, rest[:end]})
	}
	return found
}
