//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// There is no room to record which items have been replayed, or the disk fails at it. All of them are
// restored nevertheless. The next start sends none of them again, so keys that clients have deleted stay
// deleted. If the replay is interrupted, the rest is lost.
func TestAReplayThatCannotBeNotedIsNotRepeated(t *testing.T) {
	for _, test := range []struct {
		name, end string
		back      int
	}{
		{"no room", "saved", 6000},
		{"no room, and killed in the middle", "killed", 4999},
		{"a disk that fails in the middle", "saved", 6000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.end != "killed" {
				tier.Second(t, "TestAReplayThatCannotBeNotedIsNotRepeated")
			}
			t.Parallel()
			all := map[string]drainertest.Object{}
			for i := range 6000 {
				all[fmt.Sprintf("key:%04d", i)] = drainertest.Object{Value: []byte(strings.Repeat("v", 100))}
			}
			dir, hold := drainertest.Leaving(t, "killed", all), filepath.Join(t.TempDir(), "hold")
			env := []string{noMarks + "1"}
			switch {
			case test.end == "killed":
				env = append(env, stallAt+"5000")
			case test.name != "no room":
				if err := os.WriteFile(hold, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				env = []string{holdBy + hold, holdAt + "3000"}
			}
			c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
			s := drainertest.SuperviseCommand(t, "", c, env...)
			if !volume.Missing(hold) {
				wait.For(t, "the first batch", func() error {
					if s.Memcached().Items(t) == 0 {
						return errors.New("no item is back")
					}
					return nil
				})
				fault{call: "pwrite64", file: marksFile, fail: "EIO"}.on(dir).attach(s)
				if err := os.Remove(hold); err != nil {
					t.Fatal(err)
				}
			}
			s.WaitFor("generation-1 is removed from the volume during its replay")
			if test.end == "killed" {
				s.WaitFor("stalled before item")
			} else {
				s.WaitFor("replayed generation-1: 6000 items found: 6000 added")
			}
			drainertest.ExpectGenerations(t, dir)
			back := drainertest.Held(t, s.Address(), all)
			if len(back) != test.back {
				t.Errorf("%d items are back, want %d", len(back), test.back)
			}
			raw := s.Memcached().RawFor(t)
			deleted := 0
			for key := range back {
				if deleted++; deleted > 100 {
					break
				}
				raw.Must("DELETED", "delete "+key, nil)
				delete(back, key)
			}
			s.End(test.end)
			again := drainertest.Serve(t, dir, "-m", "128")
			if test.end == "killed" {
				again.WaitFor("replayed generation-1")
			}
			if n := again.Memcached().Items(t); n != int64(len(back)) {
				t.Errorf("%d items are there, want %d: %d that clients had deleted, or that were lost, are back", n, len(back), n-int64(len(back)))
			}
			drainertest.Check(t, "gomemcache", []string{again.Address()}, back)
			again.End("saved")
		})
	}
}

const marksFile = contract.GenerationPrefix + "1/" + contract.ReplayedFile

// The disk fails at the marks themselves. memcached is not started, because a later replay would override the
// values and deletes of clients while nothing is replayed.
func TestAStartThatCannotNoteItsReplayIsRefused(t *testing.T) {
	tier.Second(t, "TestAStartThatTheDiskRefuses")
	t.Parallel()
	dir := drainertest.Leaving(t, "killed", drainertest.Objects(99, 100))
	c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := fault{call: "openat", file: marksFile, fail: "EIO"}.on(dir)
	cmd := exec.CommandContext(t.Context(), memcachedtest.Program(t, "strace"), append(append(f.arguments(), self), c.Args()...)...)
	cmd.Env = append(os.Environ(), drainertest.BeDrainer+"=1")
	out, err := tied.CombinedOutput(cmd)
	if err == nil || !strings.Contains(string(out), "input/output error") {
		t.Errorf("%v: %s", err, out)
	}
	expectRefusal(t, drainertest.TerminationLog(dir), contract.ReasonVolumeFailed, "input/output error")
	again := drainertest.Serve(t, dir, "-m", "128")
	again.WaitFor("replayed generation-1: 100 items found: 100 added")
	again.End("saved")
}
