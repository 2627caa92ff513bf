//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// The kubelet's SIGTERM, or SIGINT, saves the cache, and the next start is warm, even within the same second.
func TestSIGTERMSavesTheCache(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			if name != "SIGTERM" {
				tier.Second(t, "TestSIGTERMSavesTheCache")
			}
			t.Parallel()
			dir, all := t.TempDir(), drainertest.Objects(6, 500)
			s := drainertest.Serve(t, dir, "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.Signal(sig)
			if err := s.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) { // without effect
				t.Error(err)
			}
			if code := s.Wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, s.Err.String())
			}
			m, err := volume.ReadManifest(dir)
			if err != nil || m.State != volume.Saved || !m.Image.ItemsExact || m.Image.Items != 500 || m.Image.Version == "" {
				t.Errorf("manifest %+v, %v", m, err)
			}
			again := drainertest.Serve(t, dir, "-m", "128")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
			if m, err := volume.ReadManifest(dir); err != nil || m.Image.Items != 500 {
				t.Errorf("manifest after the second save %+v, %v", m, err)
			}
		})
	}
}

// A signal that comes before memcached answers also saves.
func TestServeAtOnce(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), drainertest.Objects(7, 500)
	s := drainertest.Serve(t, dir)
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	p := drainertest.Start(t, drainertest.MemberArgs(contract.Connection{}, dir, s.Port).Args()...)
	wait.For(t, "the start", func() error {
		m, err := volume.ReadManifest(dir)
		if err == nil && m.State == volume.Saved {
			err = fmt.Errorf("it has not begun")
		}
		return err
	})
	p.Signal(syscall.SIGTERM)
	p.Wait()
	if live, err := drainertest.LiveItems(t, dir); err != nil || live != 500 {
		t.Errorf("%d items are left, %v\n%s", live, err, p.Err.String())
	}
}

// While memcached runs, the manifest has all that a reader would need right after a crash.
func TestTheManifestSaysWhatAReaderNeedsAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := drainertest.Serve(t, dir, "-f", "1.5", "-C")
	m, err := volume.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.BootID != volume.BootID() || m.PID == 0 || m.Image.SlabConfig != "1.5" || m.Image.UseCAS || m.Image.Base == 0 || len(m.Image.Classes) == 0 {
		t.Errorf("manifest %+v, image %+v", m, m.Image)
	}
	drainertest.Store(t, s.Address(), drainertest.Objects(8, 300))
	s.Settle(300)
	s.Flush()
	s.End("killed")
	if live, err := drainertest.LiveItems(t, dir); err != nil || live != 0 {
		t.Errorf("%d items came back, %v", live, err)
	}
}

// memcached's exit code becomes the container's, and the file is on the disk and can be drained, in any boot.
func TestMemcachedsExitCodeIsTheContainers(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), drainertest.Objects(9, 500)
	s := drainertest.Serve(t, dir, "-m", "128")
	drainertest.Store(t, s.Address(), all)
	s.Settle(len(all))
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.Wait(); code != 128+9 {
		t.Errorf("exit code %d, want 137", code)
	}
	m, err := volume.ReadManifest(dir)
	if err != nil || m.State != volume.Died {
		t.Errorf("manifest %+v, %v", m, err)
	}
	r, err := volume.Open(dir, volume.Options{BootID: "another boot"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.Count(t.Context()); n != 500 || err != nil || r.Clean() {
		t.Errorf("%d items, %v, clean %t", n, err, r.Clean())
	}
	again := drainertest.Serve(t, dir, "-m", "128")
	again.WaitFor("replayed generation-1: 500 items found: 500 added")
	again.End("saved")
}

// This is about a memcached that doesn't start.
func TestExitCodeIsKept(t *testing.T) {
	t.Parallel()
	memcachedtest.Binary(t)
	dir := t.TempDir()
	p := drainertest.Start(t, "supervise", "--dir="+dir, "--port=1", "--", "memcached", "-u", "root", "-m", "nonsense", "-I", "1")
	if code := p.Wait(); code == 0 || code == contract.ExitUsage || !strings.Contains(p.Err.String(), "exit code "+strconv.Itoa(code)) {
		t.Errorf("exit code %d: %s", code, p.Err.String())
	}
}

// script runs a shell in memcached's place, to observe the supervisor. The script prints a version, as
// memcached does, because a program without one is waited for.
func script(t *testing.T, text string) *drainertest.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncase $1 in -V) echo memcached 1.6.18; exit;; esac\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return drainertest.Start(t, "supervise", "--dir="+t.TempDir(), "--port=1", "--", path, "last")
}

// The option of the warm file comes before arguments that might take it as a value.
func TestWarmFileGoesFirst(t *testing.T) {
	t.Parallel()
	p := script(t, `echo "arguments: $1 ${2##*/} $3"`)
	p.WaitFor("arguments: -e memory_file last")
	p.Wait()
}

// A member whose memcached doesn't start keeps the files on its volume, however often it tries, and has all
// items when it starts.
func TestMemcachedEndsAtOnce(t *testing.T) {
	tier.Second(t, "TestSavedMemcachedEndsAtOnce")
	t.Parallel()
	all := drainertest.Objects(60, 500)
	dir := drainertest.Leaving(t, "killed", all)
	for range 3 {
		args := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128", "-I", "1")
		p := drainertest.Start(t, args.Args()...)
		if code := p.Wait(); code == 0 || code == contract.ExitUsage {
			t.Errorf("exit code %d: %s", code, p.Err.String())
		}
	}
	s := drainertest.Serve(t, dir, "-m", "128")
	s.WaitFor("replayed generation-1: 500 items found: 500 added")
	drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
	drainertest.ExpectGenerations(t, dir)
	s.End("saved")
}

// Items that are too large for a lowered -I are counted and reported, on stderr and in the manifest; the
// others are restored.
func TestSmallerItemsThanBefore(t *testing.T) {
	tier.Second(t, "TestAMemberThatStartsColdComesBackWithItsItems")
	t.Parallel()
	all := map[string]drainertest.Object{"small": {Value: []byte("v")}, "large": {Value: make([]byte, 900<<10)}}
	dir := drainertest.Leaving(t, "saved", all)
	s := drainertest.Serve(t, dir, "-m", "128", "-I", "512k")
	const want = "1 of 2 items were rejected"
	s.WaitFor(want)
	drainertest.ExpectGenerations(t, dir)
	delete(all, "large")
	drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
	m, err := volume.ReadManifest(dir)
	if err != nil || !strings.Contains(m.Note, want) {
		t.Errorf("manifest %+v, %v", m, err)
	}
	s.End("saved")
}

// The supervisor keeps its own signals.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	p := script(t, `trap 'echo got HUP' HUP; trap 'echo got USR2' USR2; trap 'echo got WINCH' WINCH
		trap 'echo got USR1; kill $!; exit 7' USR1; echo ready; while :; do sleep 60 & wait $!; kill $!; done`)
	p.WaitFor("ready")
	for sig, name := range map[syscall.Signal]string{syscall.SIGHUP: "HUP", syscall.SIGUSR2: "USR2"} {
		p.Signal(sig)
		p.WaitFor("got " + name)
	}
	p.Signal(syscall.SIGWINCH)
	p.Signal(syscall.SIGTERM)
	p.WaitFor("got USR1")
	if code := p.Wait(); code != 7 {
		t.Errorf("exit code %d, want 7: %s", code, p.Err.String())
	}
	if strings.Contains(p.Out.String(), "WINCH") {
		t.Error("SIGWINCH was passed on")
	}
	if !strings.Contains(p.Err.String(), "without saving") {
		t.Errorf("people were told %q", p.Err.String())
	}
}

// Process 1 would have to do that.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	p := script(t, `trap 'exit 0' USR1; (sh -c 'echo orphan $$; exec sleep 0.1' &) ; while :; do sleep 0.05; done`)
	p.WaitFor("orphan ")
	_, rest, _ := strings.Cut(p.Out.String(), "orphan ")
	pid := strings.Fields(rest)[0]
	wait.For(t, "the orphan to be gone, not a zombie", func() error {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
			return fmt.Errorf("%s", stat)
		}
		return nil
	})
	p.Signal(syscall.SIGTERM)
	p.Wait()
}

// Arguments that can't work are reported in one line, before anything is changed.
func TestArgumentsThatCantWorkAreRefusedFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":                  {[]string{"--dir=" + dir}, "command line after --"},
		"no directory":                {[]string{"--", "memcached"}, "--dir"},
		"bad port":                    {[]string{"--dir=" + dir, "--port=0", "--", "memcached"}, "not a port"},
		"metrics at memcached's port": {[]string{"--metrics-port=11211", "--", "memcached"}, "--metrics-port: 11211 is not a port, or it is used already"},
		"metrics at the probe's port": {[]string{"--metrics-port=9150", "--probe-port=9150", "--", "memcached"}, "--metrics-port: 9150"},
		"metrics at discovery's port": {[]string{"--dir=" + dir, "--list=x", "--discovery=:9150", "--metrics-port=9150", "--", "memcached"}, "--metrics-port: 9150"},
		"own -e":                      {[]string{"--dir=" + dir, "--", "memcached", "-e", "/x"}, "-e"},
		"own memory file":             {[]string{"--dir=" + dir, "--", "memcached", "--memory-file=/x"}, "--memory-file"},
		"daemon":                      {[]string{"--dir=" + dir, "--", "memcached", "-d"}, "-d"},
		"no such program":             {[]string{"--dir=" + dir, "--", "no-such-memcached"}, "no-such-memcached"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := drainertest.RunMain(t, append([]string{"supervise"}, test.args...)...)
			r.OneLine(t, test.want)
			if r.Code != contract.ExitUsage {
				t.Errorf("exit code %d", r.Code)
			}
		})
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were made: %v", files)
	}
}
