//go:build linux

package member_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// The file that an earlier memcached of the pod has left in memory is lost with the pod, so it is saved.
func TestAskedToEndBeforeMemcachedAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		// leave ends the member of before, so that its items are only in memory.
		leave  func(p *pod, s *drainertest.Served)
		script string // the next memcached's script, which makes the file %s
	}{
		"killed, then slow to say its version": {killed, neverSays},
		"not saved, then slow to say it":       {notSaved, neverSays},
		"not saved, then slow to start":        {notSaved, neverAnswers},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "not saved, then slow to start" {
				tier.Second(t, "TestAskedToEndBeforeMemcachedAnswers")
			}
			t.Parallel()
			p, all := podWith(t, test.leave)
			program, came := filepath.Join(t.TempDir(), "memcached"), filepath.Join(t.TempDir(), "came")
			if err := os.WriteFile(program, fmt.Appendf(nil, test.script, came), 0o755); err != nil {
				t.Fatal(err)
			}
			starting := drainertest.Start(t, p.command(memcachedtest.FreePort(t), append([]string{program}, fewPages...)...).Args()...)
			wait.For(t, "the supervisor to come to it", func() error {
				_, err := os.Stat(came)
				return err
			})
			starting.Signal(syscall.SIGTERM)
			starting.Wait()
			s := p.nextPod().start("")
			s.WaitFor("replayed generation-1: 80 items found: 80 added")
			s.ExpectItems(all)
			s.End("saved")
		})
	}
}

// Scripts in place of memcached.
const (
	neverSays    = "#!/bin/sh\n: >%s\nexec sleep 600\n"
	neverAnswers = "#!/bin/sh\n[ \"$1\" != -V ] || exec memcached -V\n: >%s\nexec sleep 600\n"
)

// podWith returns a pod that has left these items only in memory.
func podWith(t *testing.T, leave func(p *pod, s *drainertest.Served)) (*pod, map[string]drainertest.Object) {
	t.Helper()
	p, all := newPod(t), midsize('a', 80)
	s := p.start("", fewPages...)
	drainertest.Store(t, s.Address(), all)
	s.Settle(len(all))
	leave(p, s)
	return p, all
}

// killed kills the container, including its supervisor.
func killed(_ *pod, s *drainertest.Served) { s.End("killed") }

// notSaved ends memcached in good order, while the disk takes no save.
func notSaved(p *pod, s *drainertest.Served) {
	fault{call: "fallocate", file: unfinishedSave, n: 1, fail: "ENOSPC"}.on(p.volume).attach(s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code == 0 {
		s.T.Error("it has saved")
	}
}

// A file that is only in memory is saved, and then it isn't only there.
func TestMemoryIsSavedOnce(t *testing.T) {
	tier.Second(t, "TestAskedToEndBeforeMemcachedAnswers")
	t.Parallel()
	p, all := podWith(t, notSaved)
	m := start.Member{Volume: p.volume, Memory: p.memory, Command: append([]string{"memcached"}, fewPages...)}
	for _, want := range []bool{true, false} {
		if saved, err := start.SaveMemory(m, volume.SaveOptions{Logf: t.Logf}); saved != want || err != nil {
			t.Errorf("saved: %v, %v; want %v", saved, err, want)
		}
	}
	s := p.nextPod().start("")
	s.WaitFor("the save is loaded")
	s.ExpectItems(all)
	s.End("saved")
}

// noProgram is a memcached that the kernel can't run.
func noProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "memcached")
	if err := os.WriteFile(program, []byte("of another architecture"), 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// No client can have stored anything.
func TestAMemcachedThatCannotRunOutdatesNothing(t *testing.T) {
	tier.Second(t, "TestSavedMemcachedEndsAtOnce")
	t.Parallel()
	all := drainertest.Objects(78, 500)
	p := savedPod(t, all).nextPod()
	program := noProgram(t)
	for range 2 {
		c := drainertest.Start(t, p.command(memcachedtest.FreePort(t), program, "-m", "128").Args()...)
		if code := c.Wait(); code == 0 || !strings.Contains(c.Err.String(), "exec format error") {
			t.Errorf("exit code %d: %s", code, c.Err.String())
		}
	}
	s := p.nextPod().start("", "-m", "128")
	s.WaitFor("500 items found: 500 added")
	drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
	s.End("saved")
}

// The pages of a save that was cut short may be unknown.
func TestAFileInMemoryOutlivesASaveThatCannotBeRead(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("read %d of each thread", n), func(t *testing.T) {
			if n != 2 {
				tier.Second(t, "TestAFileInMemoryOutlivesASaveThatCannotBeRead")
			}
			t.Parallel()
			p, all := newPod(t), midsize('a', 80)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			fault{call: "pwrite64", file: unfinishedSave, n: 7}.on(p.volume).attach(s)
			if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.Wait()
			read := fault{call: "pread64", file: contract.SaveFile, n: n, fail: "EIO"}.on(p.volume)
			if out, err := p.runCommandUnder(read, p.command(memcachedtest.FreePort(t), append([]string{noProgram(t)}, fewPages...)...)); err == nil {
				t.Errorf("it has run: %s", out)
			}
			s = p.start("")
			s.ExpectItems(all)
			s.End("saved")
		})
	}
}

// The kernel reports it once, long before the last fsync.
func TestADiskThatFailsWhileTheCacheIsWritten(t *testing.T) {
	t.Parallel()
	p, all := newPod(t), midsize('a', 100)
	s := p.start(noDirectIO+"yes", fewPages...)
	drainertest.Store(t, s.Address(), all)
	fault{call: "sync_file_range", file: unfinishedSave, n: 2, fail: "EIO"}.on(p.volume).attach(s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != contract.ExitFailed || !strings.Contains(s.Err.String(), "sync_file_range") || strings.Contains(s.Err.String(), "the cache is saved") {
		t.Errorf("exit code %d: %s", code, s.Err.String())
	}
	message, err := os.ReadFile(drainertest.TerminationLog(p.volume))
	if err != nil || !strings.Contains(string(message), contract.ReasonVolumeFailed) {
		t.Errorf("the termination message is %q, %v", message, err)
	}
}
