//go:build linux

package member_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
)

// disks are disks that fail at writes: a call's result, the reason that people are given, and its words.
var disks = map[string]struct{ answer, reason, words string }{
	"a full disk":      {"ENOSPC", contract.ReasonVolumeFull, "no space left on device"},
	"over the quota":   {"EDQUOT", contract.ReasonVolumeFull, "quota exceeded"},
	"a read-only disk": {"EROFS", contract.ReasonVolumeReadOnly, "read-only file system"},
	"a broken disk":    {"EIO", contract.ReasonVolumeFailed, "input/output error"},
}

// expectRefusal checks the message that the kubelet finds.
func expectRefusal(t *testing.T, log, reason, words string) {
	t.Helper()
	said, err := os.ReadFile(log)
	if why := contract.ParseRefusal(string(said)); err != nil || why == nil || why.Reason != reason || !strings.Contains(why.Message, words) {
		t.Errorf("the termination message is %q, want %s: %s; %v", said, reason, words, err)
	}
}

// The termination message, the log, a drain and the next pod report the writes that the disk refused.
func TestWhyNothingWasSaved(t *testing.T) {
	for name, disk := range disks {
		t.Run(name, func(t *testing.T) {
			if name != "a full disk" {
				tier.Second(t, "TestWhyNothingWasSaved")
			}
			t.Parallel()
			p := newPod(t)
			s := p.start("", "-m", "128")
			drainertest.Store(t, s.Address(), drainertest.Objects(99, 100))
			fault{call: "openat", file: unfinishedSave, fail: disk.answer}.on(p.volume).attach(s)
			s.Signal(syscall.SIGTERM)
			if code := s.Wait(); code != contract.ExitFailed || !strings.Contains(s.Err.String(), disk.words) {
				t.Errorf("exit code %d: %s", code, s.Err.String())
			}
			expectRefusal(t, drainertest.TerminationLog(p.volume), disk.reason, disk.words)

			_, addresses := drainertest.Survivors(t, 1)
			r := drainertest.Drain(t, drainertest.DrainArgs(t, p.volume, addresses))
			r.OneLine(t, disk.words)
			if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "SaveFailed" {
				t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
			}

			p = p.nextPod()
			log := filepath.Join(t.TempDir(), "termination-log")
			install := contract.Install{To: t.TempDir(), Member: contract.Supervise{Dir: p.volume, MemoryDir: p.memory, TerminationLog: log, Command: []string{"memcached", "-m", "128"}}}
			if code := drainertest.Start(t, install.Args()...).Wait(); code != 0 {
				t.Errorf("install: exit code %d", code)
			}
			said, err := os.ReadFile(log)
			if c := contract.ParseColdStart(string(said)); err != nil || c == nil || !strings.Contains(c.SaveError, disk.words) {
				t.Errorf("foretold was %q, %v", said, err)
			}
			s = p.start("", "-m", "128")
			s.WaitFor("memcached starts cold")
			s.End("saved")
		})
	}
}

// The termination message has the reason.
func TestAStartThatTheDiskRefuses(t *testing.T) {
	for name, disk := range disks {
		t.Run(name, func(t *testing.T) {
			if name != "a read-only disk" {
				tier.Second(t, "TestAStartThatTheDiskRefuses")
			}
			t.Parallel()
			memcachedtest.Binary(t)
			dir := t.TempDir()
			c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			f := fault{call: renames, file: contract.Manifest, fail: disk.answer}.on(dir)
			cmd := exec.CommandContext(t.Context(), memcachedtest.Program(t, "strace"), append(append(f.arguments(), self), c.Args()...)...)
			cmd.Env = append(os.Environ(), drainertest.BeDrainer+"=1")
			out, err := tied.CombinedOutput(cmd)
			if err == nil || !strings.Contains(string(out), disk.words) {
				t.Errorf("%v: %s", err, out)
			}
			expectRefusal(t, drainertest.TerminationLog(dir), disk.reason, disk.words)
		})
	}
}
