//go:build linux

package member_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// fault is a failure of a supervisor: strace kills it, or makes a system call fail, when one of its threads
// (each counts separately) makes the n-th such call on the file.
type fault struct {
	call string // in strace's form
	file string
	n    int    // 0: each call
	fail string // the error, or, if empty, SIGKILL before the call
}

func (f fault) arguments() []string {
	inject := "signal=KILL"
	if f.fail != "" {
		inject = "error=" + f.fail
	}
	when := strconv.Itoa(f.n)
	if f.n == 0 {
		when = "1+"
	}
	return []string{"-f", "-qq", "-o", "/dev/null", "-P", f.file, "-e", "trace=" + f.call,
		"-e", "inject=" + f.call + ":" + inject + ":when=" + when}
}

// on returns the fault for the file in this directory.
func (f fault) on(dir string) fault {
	f.file = filepath.Join(dir, f.file)
	return f
}

const renames = "/^rename"

// attach makes the fault happen to a running supervisor.
func (f fault) attach(s *drainertest.Served) {
	s.T.Helper()
	trace(s, f.arguments()...)
}

// expectWhatIsWhole checks the rest of a pod whose save was cut short: a drain moves the items of the whole
// pages, reports that there were others, and fails; the next pod restores those items. some means that there
// are whole pages.
func (p *pod) expectWhatIsWhole(all map[string]drainertest.Object, some bool) {
	p.t.Helper()
	_, addresses := drainertest.Survivors(p.t, 1)
	m := drainertest.DrainArgs(p.t, p.volume, addresses)
	r := drainertest.Drain(p.t, m)
	left := drainertest.Held(p.t, addresses[0], all)
	if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "SaveIncomplete" || r.Receipt.Complete || r.Receipt.AddsUp("the-claim") == nil ||
		r.Receipt.Added != int64(len(left)) || len(left) == len(all) || (len(left) > 0) != some {
		p.t.Errorf("exit code %d, %d of %d items are left, %+v", r.Code, len(left), len(all), r.Receipt)
	}
	s := p.nextPod().start("")
	s.WaitFor("memcached would start cold: its save was cut short")
	s.WaitFor("pages of the save are missing or damaged")
	s.ExpectItems(left)
	drainertest.ExpectGenerations(p.t, p.volume)
	s.End("saved")
	p.expectAllOrNothing(left, false)
}

// fewPages makes memcached have few slab classes: each has a page before its first item, and these pages are
// saved first.
var fewPages = []string{"-m", "128", "-f", "16"}

// large returns objects that take a while to save: dozens of pages.
func large(value byte, n int) map[string]drainertest.Object { return sized(value, n, 700_000) }

// midsize returns objects without chunks, each on one page.
func midsize(value byte, n int) map[string]drainertest.Object { return sized(value, n, 300_000) }

func sized(value byte, n, size int) map[string]drainertest.Object {
	all := map[string]drainertest.Object{}
	for i := range n {
		all["large:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte(strings.Repeat(string(value), size))}
	}
	return all
}

// expectAllOrNothing checks the rest of a lost pod: a drain finds all of the last items, or refuses older
// ones, and so does the next pod.
func (p *pod) expectAllOrNothing(all map[string]drainertest.Object, lost bool, reason ...warmfile.Reason) {
	p.t.Helper()
	_, addresses := drainertest.Survivors(p.t, 1)
	m := drainertest.DrainArgs(p.t, p.volume, addresses)
	r := drainertest.Drain(p.t, m)
	if lost {
		all = map[string]drainertest.Object{}
		if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != string(append(reason, warmfile.ReasonSaveOutdated)[0]) || r.Receipt.Found != 0 {
			p.t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
		}
	} else if err := r.Receipt.AddsUp("the-claim"); err != nil {
		p.t.Errorf("%v: %+v", err, r.Receipt)
	}
	drainertest.Check(p.t, m.Client, addresses, all)
	s := p.nextPod().start("")
	if lost {
		s.WaitFor("memcached starts cold")
	}
	s.ExpectItems(all)
	s.End("saved")
}

// The result of a save that was cut short.
const (
	nothing = "nothing"
	some    = "some"
	none    = "none of its pages"
	all     = "all"
)

// The supervisor is ended at each step, by SIGKILL or by an error of the disk. If the pod is lost, the items
// of the written pages are used, and the items from before are not served. The container that starts again
// has them all.
func TestSupervisorKilledWhileSaving(t *testing.T) {
	for name, test := range map[string]struct {
		fault fault
		left  string
		named bool
	}{
		"before the new save is made":       {fault: fault{call: "openat", file: unfinishedSave, n: 1}, left: nothing},
		"before it has room":                {fault: fault{call: "fallocate", file: unfinishedSave, n: 1}, left: nothing},
		"before its header is written":      {fault: fault{call: "pwrite64", file: unfinishedSave, n: 1}, left: nothing},
		"before its header is on the disk":  {fault: fault{call: "fdatasync", file: unfinishedSave, n: 1}, left: none},
		"between its pages":                 {fault: fault{call: "pwrite64", file: unfinishedSave, n: 7}, left: some},
		"before it is on the disk":          {fault: fault{call: "fsync", file: unfinishedSave, n: 1}, left: all},
		"before it has its name":            {fault: fault{call: renames, file: unfinishedSave, n: 1}, left: all},
		"before its name is on the disk":    {fault: fault{call: "fsync", file: ".", n: 1}, left: all, named: true},
		"it can't be made":                  {fault: fault{call: "openat", file: unfinishedSave, fail: "EIO"}, left: nothing},
		"the disk has no room for all":      {fault: fault{call: "fallocate", file: unfinishedSave, n: 1, fail: "ENOSPC"}, left: nothing},
		"the disk doesn't take its header":  {fault: fault{call: "pwrite64", file: unfinishedSave, n: 1, fail: "EIO"}, left: nothing},
		"its header doesn't reach the disk": {fault: fault{call: "fdatasync", file: unfinishedSave, n: 1, fail: "EIO"}, left: nothing},
		"the disk is full in the middle":    {fault: fault{call: "pwrite64", file: unfinishedSave, n: 7, fail: "ENOSPC"}, left: some},
		"the disk fails in the middle":      {fault: fault{call: "pwrite64", file: unfinishedSave, n: 7, fail: "EIO"}, left: some},
		"the disk fails at its end":         {fault: fault{call: "fsync", file: unfinishedSave, n: 1, fail: "EIO"}, left: all},
		"it can't be given its name":        {fault: fault{call: renames, file: unfinishedSave, n: 1, fail: "EIO"}, left: all},
		"its name does not reach the disk":  {fault: fault{call: "fsync", file: ".", n: 1, fail: "EIO"}, left: all, named: true},
		"the file in memory can't be read":  {fault: fault{call: "pread64", file: contract.WarmFile, n: 1, fail: "EIO"}, left: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			if test.fault.fail == "ENOSPC" {
				return // it drops the previous save; see TestASaveThatFindsTheDiskFullDropsWhatIsOutdated
			}
			if name != "between its pages" {
				tier.Second(t, "TestSupervisorKilledWhileSaving")
			}
			t.Parallel()
			p := newPod(t)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), midsize('a', 80))
			s.End("saved")
			p = p.nextPod()
			before := fileOf(t, p.volume, contract.SaveFile)
			s = p.start("")
			all := midsize('b', 80)
			drainertest.Store(t, s.Address(), all)
			dir := p.volume
			if test.fault.file == contract.WarmFile {
				dir = p.memory
			}
			test.fault.on(dir).attach(s)
			s.Signal(syscall.SIGTERM)
			if code := s.Wait(); code == 0 {
				t.Fatalf("the fault did not happen: %s", s.Err.String())
			}
			if after := fileOf(t, p.volume, contract.SaveFile); os.SameFile(before, after) == test.named || !test.named && !before.ModTime().Equal(after.ModTime()) {
				t.Errorf("the save on the volume was %+v and is %+v", before, after)
			}
			switch {
			case test.left == some || test.left == none:
				p.expectWhatIsWhole(all, test.left == some)
			case test.fault.fail != "":
				p.expectAllOrNothing(all, test.left == nothing, warmfile.ReasonSaveFailed)
			default:
				p.expectAllOrNothing(all, test.left == nothing)
			}
		})
		t.Run(name+", and the container starts again", func(t *testing.T) {
			tier.Second(t, "TestAFileInMemoryOutlivesASaveThatCannotBeRead")
			t.Parallel()
			p := newPod(t)
			s := p.start("", fewPages...)
			all := midsize('b', 80)
			drainertest.Store(t, s.Address(), all)
			dir := p.volume
			if test.fault.file == contract.WarmFile {
				dir = p.memory
			}
			test.fault.on(dir).attach(s)
			s.Signal(syscall.SIGTERM)
			if code := s.Wait(); code == 0 {
				t.Fatalf("the fault did not happen: %s", s.Err.String())
			}
			s = p.start("")
			s.ExpectItems(all)
			s.End("saved")
			p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
			p.expectAllOrNothing(all, false)
		})
	}
}

func fileOf(t *testing.T, dir, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// The supervisor is killed at each step. The save stays current until the note says that it is not.
func TestSupervisorKilledWhileLoading(t *testing.T) {
	tier.Second(t, "TestSupervisorKilledWhileSaving")
	for name, test := range map[string]struct {
		fault fault
		noted bool
	}{
		"before the file is made":        {fault: fault{call: "openat", file: contract.WarmFile + ".new", n: 1}},
		"between its pages":              {fault: fault{call: "pwrite64", file: contract.WarmFile + ".new", n: 3}},
		"before what speaks for it":      {fault: fault{call: "openat", file: contract.MetaFile, n: 1}},
		"before it has its name":         {fault: fault{call: renames, file: contract.WarmFile + ".new", n: 1}},
		"before the note":                {fault: fault{call: renames, file: contract.InUse, n: 1}},
		"before the note is on the disk": {fault: fault{call: "fsync", file: ".", n: 1}, noted: true},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", and the container starts again", true: ", and the pod is lost"}[lost], func(t *testing.T) {
				t.Parallel()
				p, all := newPod(t), large('a', 40)
				s := p.start("", fewPages...)
				drainertest.Store(t, s.Address(), all)
				s.End("saved")
				p = p.nextPod()
				dir := p.memory
				if slices.Contains([]string{contract.InUse, "."}, test.fault.file) {
					dir = p.volume
				}
				p.startUnder(test.fault.on(dir))
				if _, err := volume.Generations(p.volume); warmfile.IsReason(err, warmfile.ReasonSaveOutdated) != test.noted {
					t.Errorf("the volume has %v", err)
				}
				if lost {
					p.expectAllOrNothing(all, test.noted)
					return
				}
				s = p.start("")
				s.ExpectItems(all)
				s.End("saved")
				p.expectAllOrNothing(all, false)
			})
		}
	}
}

// memcached has crashed, in its own save if the pod is lost, and its supervisor is killed in the middle of
// the save. The container that starts again still has the whole file in memory. The part on the volume is
// only for the case that the pod is lost.
func TestKilledWhileItSavesAfterACrash(t *testing.T) {
	tier.Second(t, "TestSupervisorKilledWhileSaving")
	for name, lost := range map[string]bool{"the container starts again": false, "the pod is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, all := newPod(t), midsize('a', 80)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			fault{call: "pwrite64", file: unfinishedSave, n: 7}.on(p.volume).attach(s)
			if lost {
				dieInItsSave(s)
			} else if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.Wait()
			if lost {
				p.expectWhatIsWhole(all, true)
				return
			}
			s = p.start("")
			s.WaitFor("replayed generation-1: 80 items found: 80 added")
			s.ExpectItems(all)
			s.End("saved")
			p.expectAllOrNothing(all, false)
		})
	}
}

// Items that an interrupted replay had not restored are older than the missing items of the save.
func TestNothingOlderComesBackBehindAPartOfASave(t *testing.T) {
	tier.Second(t, "TestOutdatedSaveIsNeverServed")
	t.Parallel()
	newer := midsize('b', 80)
	p := savedPod(t, midsize('a', 80)).nextPod()
	s := p.start(stallAt+"1", "-m", "160", "-f", "16")
	s.WaitFor("stalled before item")
	drainertest.Store(t, s.Address(), newer)
	fault{call: "pwrite64", file: unfinishedSave, n: 7}.on(p.volume).attach(s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code == 0 {
		t.Fatalf("it was not killed: %s", s.Err.String())
	}
	drainertest.ExpectGenerations(t, p.volume, "generation-1")
	p.expectWhatIsWhole(newer, true)
}

// The member does not start, and reports why. The save stays current, and the next start has all items.
func TestALoadThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		fault fault
		words string
	}{
		"the save can't be opened":         {fault{call: "openat", file: contract.SaveFile, fail: "EIO"}, "input/output error"},
		"its header can't be read":         {fault{call: "pread64", file: contract.SaveFile, n: 1, fail: "EIO"}, "input/output error"},
		"the file can't be made":           {fault{call: "openat", file: contract.WarmFile + ".new", fail: "ENOSPC"}, "no space left"},
		"it can't be as large":             {fault{call: "ftruncate", file: contract.WarmFile + ".new", n: 1, fail: "ENOSPC"}, "load the save: truncate"},
		"there is no memory for its pages": {fault{call: "pwrite64", file: contract.WarmFile + ".new", n: 3, fail: "ENOSPC"}, "load the save: write"},
		"there is no memory for its .meta": {fault{call: "write", file: contract.MetaFile, n: 1, fail: "ENOSPC"}, "load the save: write"},
		"it can't be given its name":       {fault{call: renames, file: contract.WarmFile + ".new", n: 1, fail: "EIO"}, "load the save: rename"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "there is no memory for its pages" {
				tier.Second(t, "TestALoadThatFails")
			}
			t.Parallel()
			p, all := newPod(t), midsize('a', 80)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), all)
			s.End("saved")
			p = p.nextPod()
			dir := p.memory
			if test.fault.file == contract.SaveFile {
				dir = p.volume
			}
			out, err := p.runUnder(test.fault.on(dir))
			if err == nil || !strings.Contains(out, test.words) {
				t.Errorf("%v: %s", err, out)
			}
			if _, err := volume.Generations(p.volume); err != nil {
				t.Errorf("the volume has %v", err)
			}
			s = p.start("")
			s.WaitFor("the save is loaded")
			s.ExpectItems(all)
			s.End("saved")
		})
	}
}

// startUnder starts the pod's container, which the fault kills.
func (p *pod) startUnder(f fault) {
	p.t.Helper()
	if out, err := p.runUnder(f); err == nil || !strings.Contains(err.Error(), "killed") {
		p.t.Fatalf("the fault did not happen: %v: %s", err, out)
	}
}

// runUnder runs the pod's container, which the fault ends.
func (p *pod) runUnder(f fault) (out string, err error) {
	p.t.Helper()
	return p.runCommandUnder(f, p.serve())
}

func (p *pod) runCommandUnder(f fault, member contract.Supervise) (out string, err error) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(p.t.Context(), wait.Deadline())
	defer cancel()
	cmd := exec.CommandContext(ctx, memcachedtest.Program(p.t, "strace"), append(append(f.arguments(), self), member.Args()...)...)
	cmd.Env = append(os.Environ(), drainertest.BeDrainer+"=1")
	// The container ends with its tracer if the fault doesn't happen.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute
	b, err := tied.CombinedOutput(cmd)
	if ctx.Err() != nil {
		p.t.Fatalf("the fault did not happen: %v: %s", err, b)
	}
	return string(b), err
}

// The file in memory is saved to the volume nevertheless, as after any crash.
func TestMemcachedDiesWhileItSaves(t *testing.T) {
	tier.Second(t, "TestSupervisorKilledWhileSaving")
	t.Parallel()
	p, all := newPod(t), drainertest.Objects(80, 1000)
	s := p.start("", fewPages...)
	drainertest.Store(t, s.Address(), all)
	s.Settle(len(all))
	dieInItsSave(s)
	if code := s.Wait(); code != 128+9 || !strings.Contains(s.Err.String(), "memcached ended without saving the cache") {
		t.Errorf("exit code %d: %s", code, s.Err.String())
	}
	p.expectAllOrNothing(all, false)
}

// dieInItsSave kills a memcached that was told to save, before it begins.
func dieInItsSave(s *drainertest.Served) {
	s.T.Helper()
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.T.Fatal(err)
	}
	s.Signal(syscall.SIGTERM)
	s.WaitFor("saving the cache")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.T.Fatal(err)
	}
}
