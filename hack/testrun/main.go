//go:build linux

// Command testrun runs make targets that run tests, and leaves nothing behind, however it ends: no
// process, no cluster, no file but the targets' logs.
//
//	testrun [-logs DIR] [-at-once N] [-within DURATION] [-from TEXT] TARGET…
//
// The targets begin in their order, N of them at once: a target that waits leaves its CPU time to others.
// Command testrun prints which package or test passed or failed; each target's whole output is in
// DIR/TARGET.log. The last lines name the failures and their logs. After a failure, the other targets still
// run.
//
// Two processes share the work. This one runs the targets. The other one, a guard in a session of its own,
// cleans up when this one has ended in any way, also by SIGKILL: the guard reads a pipe whose other end only
// this one has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardWord {
		guard(os.Args[2])
		return
	}
	logs := flag.String("logs", "bin/logs", "Folder of the targets' logs.")
	atOnce := flag.Int("at-once", 1, "How many targets run at once.")
	within := flag.Duration("within", 0, "Begin no target, and end the one that runs, after this time; what passed or failed until then has passed or failed. 0: no limit.")
	from := flag.String("from", "", "Begin with the target that this text chooses, and go on from there: a commit's hash gives each commit another one.")
	flag.Parse()
	// Without this, the process would run on when make is killed.
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	r, err := newRun(*logs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	targets := rotated(flag.Args(), *from)
	if *from != "" && len(targets) > 0 {
		fmt.Printf("%s begins with %s\n", *from, targets[0])
	}
	r.all(targets, *atOnce, *within)
	os.Exit(r.report())
}

// rotated returns the targets, beginning with the one that the text chooses.
func rotated(targets []string, from string) []string {
	if from == "" || len(targets) == 0 {
		return targets
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(from))
	first := int(h.Sum32() % uint32(len(targets)))
	return append(append([]string{}, targets[first:]...), targets[:first]...)
}

// run has the targets of one call.
type run struct {
	logs, scratch string
	began         time.Time
	guard         *guardian
	results       []result // in the order of the targets

	mu      sync.Mutex
	trouble []string
}

// result is that of one target.
type result struct {
	target, log string
	outcome     outcome
	took        time.Duration
	failed      []string
}

type outcome string

const (
	passed      outcome = "passed"
	failed      outcome = "FAILED"
	unfinished  outcome = "not finished"
	interrupted outcome = "interrupted"
	notBegun    outcome = "not begun"
)

func newRun(logs string) (*run, error) {
	r := &run{logs: logs, began: time.Now()}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	parent, err := exec.Command("hack/scratch.sh").Output()
	if err != nil {
		return nil, fmt.Errorf("hack/scratch.sh: %w", err)
	}
	if r.scratch, err = os.MkdirTemp(strings.TrimSpace(string(parent)), "memcached-operator-tests-"); err != nil {
		return nil, err
	}
	r.guard, err = startGuard(r.scratch)
	return r, err
}

// all runs the targets, and returns when those that have begun have ended.
func (r *run) all(targets []string, atOnce int, within time.Duration) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if within > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, within)
		defer end()
	}
	r.results = make([]result, len(targets))
	next := make(chan int)
	var running sync.WaitGroup
	for range max(1, min(atOnce, len(targets))) {
		running.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					r.results[i] = result{target: targets[i], outcome: notBegun}
					continue
				}
				res := r.one(ctx, targets[i])
				fmt.Printf("%s: %s after %.0f s\n", targets[i], res.outcome, res.took.Seconds())
				r.results[i] = res
			}
		})
	}
	for i := range targets {
		next <- i
	}
	close(next)
	running.Wait()
}

// troubled notes an error outside the tests.
func (r *run) troubled(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = append(r.trouble, err.Error())
}

// one runs a target in a session of its own, because its processes are found by their session.
func (r *run) one(ctx context.Context, target string) result {
	began := time.Now()
	res := result{target: target, log: filepath.Join(r.logs, target+".log"), outcome: failed}
	defer func() { res.took = time.Since(began) }()
	log, err := newLog(res.log, target)
	if err != nil {
		r.troubled(err)
		return res
	}
	defer log.close()
	cmd := exec.Command("make", "--no-print-directory", target)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.scratch)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 10 * time.Second // a process that was left behind may hold the output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		r.troubled(err)
		return res
	}
	r.guard.watch(cmd.Process.Pid)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var failures []string
	res.outcome = await(ctx, cmd.Process.Pid, done, func() { failures = log.failures() })
	if res.outcome == unfinished && len(failures) > 0 {
		res.outcome, res.failed = failed, failures
	}
	for _, left := range leftBy(cmd.Process.Pid) {
		if res.outcome == passed {
			res.outcome = failed
			log.note("a process was left behind: " + left.String())
		}
		left.kill()
	}
	if res.failed == nil {
		res.failed = log.failures()
	}
	res.took = time.Since(began)
	return res
}

// leftBy finds the processes of a target that has ended. leftBy leaves them a moment to end.
func leftBy(session int) []process {
	for end := time.Now().Add(endsWithin / 6); ; time.Sleep(50 * time.Millisecond) {
		left := ofSession(session)
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// await waits for the end of a target, of the time, or of this process. Before await ends a target, it calls
// late.
func await(ctx context.Context, session int, done <-chan error, late func()) outcome {
	select {
	case err := <-done:
		return ended(err)
	case <-ctx.Done():
		late()
	}
	for _, p := range ofSession(session) {
		p.kill()
	}
	err := <-done
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return interrupted
	case err == nil:
		return passed // the target ended at that moment
	default:
		return unfinished
	}
}

func ended(err error) outcome {
	if err != nil {
		return failed
	}
	return passed
}

// report prints the results, failures last. report returns the exit code.
func (r *run) report() int {
	if err := r.guard.finish(); err != nil {
		r.troubled(fmt.Errorf("clean up: %w", err))
	}
	good, bad, code := 0, 0, 0
	for _, res := range r.results {
		switch res.outcome {
		case passed:
			good++
		case failed:
			bad++
		}
	}
	fmt.Println()
	for _, res := range r.results {
		if res.outcome != passed && res.outcome != failed {
			fmt.Printf("%s: %s\n", res.target, res.outcome)
		}
		if res.outcome == interrupted {
			code = 130
		}
	}
	fmt.Printf("%d passed, %d failed in %.0f s; logs are in %s\n", good, bad, time.Since(r.began).Seconds(), r.logs)
	for _, line := range append(r.failures(), r.trouble...) {
		fmt.Println(line)
	}
	if code == 0 && bad+len(r.trouble) > 0 {
		code = 1
	}
	return code
}

// most bounds the lines of failures, so that all are seen at once. Each failed target has its line in any case.
const most = 8

// failures returns a line for each target that failed, with some lines about the failed tests in it.
func (r *run) failures() (lines []string) {
	targets := 0
	for _, res := range r.results {
		if res.outcome == failed {
			targets++
		}
	}
	for _, res := range r.results {
		if res.outcome != failed {
			continue
		}
		lines = append(lines, fmt.Sprintf("FAILED %s: %s", res.target, res.log))
		details := max(0, most/targets-1)
		for i, f := range res.failed {
			if i == details && len(res.failed) > details+1 {
				lines[len(lines)-1] += fmt.Sprintf(", and %d lines more", len(res.failed)-details)
				break
			}
			lines = append(lines, "  "+f)
		}
	}
	return lines
}
