//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

const beTestrun = "BE_TESTRUN"

func TestMain(m *testing.M) {
	if os.Getenv(beTestrun) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// folder makes one with a Makefile, and a directory for files of the run.
func folder(t *testing.T, makefile string) string {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		tier.Needs(t, "make", err)
	}
	dir := t.TempDir()
	scratch := fmt.Sprintf("#!/bin/sh\necho %s/scratch\n", dir)
	err := errors.Join(os.Mkdir(filepath.Join(dir, "hack"), 0o755), os.Mkdir(filepath.Join(dir, "scratch"), 0o755),
		os.WriteFile(filepath.Join(dir, "hack", "scratch.sh"), []byte(scratch), 0o755),
		os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// testrun returns a command in the folder, and the buffer of its output.
func testrun(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := exec.Command(self, append([]string{"-logs=logs"}, args...)...), &bytes.Buffer{}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), beTestrun+"=1", "MAKEFLAGS=")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// left fails the test if files of the run, or the process, are left.
func left(t *testing.T, dir string, pid int) {
	t.Helper()
	wait.For(t, "nothing to be left", func() error {
		entries, err := os.ReadDir(filepath.Join(dir, "scratch"))
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("files: %v", entries)
		}
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && len(stat) > 0 && !bytes.Contains(stat, []byte(") Z ")) {
			err = fmt.Errorf("process %d", pid)
		}
		return err
	})
}

func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	wait.For(t, path, func() error {
		text, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return pid
}

// hangs is a target that starts a process, and waits for it for ever.
const hangs = "hang:\n\t@touch $$TMPDIR/file; sleep 86400 & echo $$! >pid.new; mv pid.new pid; wait\n"

func TestARunThatIsKilledLeavesNothingBehind(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := folder(t, hangs)
			cmd, _ := testrun(t, dir, "hang", "hang")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := pidIn(t, filepath.Join(dir, "pid"))
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it says that all is well")
			}
			left(t, dir, pid)
		})
	}
}

func TestAProcessThatATestLeavesBehindIsAFailure(t *testing.T) {
	dir := folder(t, "leaves:\n\t@sleep 86400 >/dev/null 2>&1 & echo $$! >pid\n")
	cmd, out := testrun(t, dir, "leaves")
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "a process was left behind: sleep") {
		t.Errorf("%v\n%s", err, out)
	}
	left(t, dir, pidIn(t, filepath.Join(dir, "pid")))
}

func TestTheLastLinesSayWhatFailedAndWhere(t *testing.T) {
	dir := folder(t, "good:\n\t@echo ok one\nbad:\n\t@echo first; printf -- '--- FAIL: TestThis (0.1s)\\n    this_test.go:7: no\\n'; exit 1\n")
	cmd, out := testrun(t, dir, "bad", "good")
	if err := cmd.Run(); err == nil {
		t.Error("a failure is not said")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := strings.Join(lines[max(0, len(lines)-10):], "\n")
	for _, want := range []string{"1 passed, 1 failed", "FAILED bad: logs/bad.log", "TestThis (logs/bad.log:2)"} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q in:\n%s", want, last)
		}
	}
	if !strings.Contains(out.String(), "good: passed") {
		t.Errorf("what follows a failure does not run:\n%s", out)
	}
}

func TestTheLastLinesNameEachTargetThatFailed(t *testing.T) {
	makefile, targets := "", []string{"-at-once=2"}
	for _, name := range []string{"one", "two", "three"} {
		makefile += name + ":\n\t@for i in 1 2 3 4 5 6 7 8 9; do echo \"--- FAIL: Test$$i (0.1s)\"; done; exit 1\n"
		targets = append(targets, name)
	}
	cmd, out := testrun(t, folder(t, makefile), targets...)
	if err := cmd.Run(); err == nil {
		t.Error("a failure is not said")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := strings.Join(lines[max(0, len(lines)-10):], "\n")
	for _, want := range []string{"3 failed", "FAILED one: logs/one.log", "FAILED two: logs/two.log", "FAILED three: logs/three.log", "Test1 (logs/three.log:1)"} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q in:\n%s", want, last)
		}
	}
}

func TestAMountOfAKilledRunGoes(t *testing.T) {
	if os.Getuid() != 0 {
		tier.Needs(t, "root, who may mount", os.ErrPermission)
	}
	dir := folder(t, "hang:\n\t@mkdir \"$$TMPDIR/a disk\" && mount -t tmpfs none \"$$TMPDIR/a disk\" && echo $$$$ >pid.new && mv pid.new pid; exec sleep 86400\n")
	// As where the folder for temporary files is a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "scratch"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hack", "scratch.sh"), []byte("#!/bin/sh\necho "+link+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, _ := testrun(t, dir, "hang")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := pidIn(t, filepath.Join(dir, "pid"))
	t.Cleanup(func() { // if the run doesn't
		disks, _ := filepath.Glob(filepath.Join(dir, "scratch", "*", "a disk"))
		for _, disk := range disks {
			_ = syscall.Unmount(disk, syscall.MNT_DETACH)
		}
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	left(t, dir, pid)
}

func TestARunWhoseTimeIsOverEndsWithWhatPassed(t *testing.T) {
	dir := folder(t, "quick:\n\t@true\n"+hangs)
	cmd, out := testrun(t, dir, "-within=1s", "hang", "quick")
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"hang: not finished", "quick: not begun"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestATestThatFailedBeforeTheTimeIsOverIsAFailure(t *testing.T) {
	dir := folder(t, "hang:\n\t@echo '--- FAIL: TestThis (0.1s)'; exec sleep 86400\n")
	for within := time.Second; ; within *= 2 {
		cmd, out := testrun(t, dir, "-within="+within.String(), "hang")
		err := cmd.Run()
		if !strings.Contains(out.String(), "hang: --- FAIL: TestThis") {
			continue // the machine was too busy to come to it
		}
		if err == nil || !strings.Contains(out.String(), "FAILED hang: logs/hang.log") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
}

func TestTargetsThatRunAtOnceWaitForEachOther(t *testing.T) {
	meet := "%s:\n\t@touch %[1]s.here; while ! test -e %s.here; do sleep 0.05; done\n"
	dir := folder(t, fmt.Sprintf(meet, "one", "two")+fmt.Sprintf(meet, "two", "one")+"three:\n\t@test -e one.here -o -e two.here\n")
	cmd, out := testrun(t, dir, "-at-once=2", "one", "two", "three")
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "3 passed, 0 failed") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEachTextBeginsElsewhere(t *testing.T) {
	all, first := []string{"a", "b", "c"}, map[string]bool{}
	for i := range 50 {
		got := rotated(all, strconv.Itoa(i))
		first[got[0]] = true
		slices.Sort(got)
		if !slices.Equal(got, all) {
			t.Fatal(got)
		}
	}
	if len(first) != len(all) || !slices.Equal(rotated(all, ""), all) {
		t.Errorf("%v", first)
	}
}
