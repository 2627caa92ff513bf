//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// So the supervisor refuses each form of a refused option, before anything is changed.
func TestArgumentsOfMemcachedAreReadAsMemcachedReadsThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for what, all := range map[string][]commandline.Form{
		"not for the user to set":  commandline.SupervisorsForms(),
		"memcached never restarts": commandline.ShortPagesForms(),
		"memcached never starts":   commandline.NeverStartsForms(),
		"extstore":                 commandline.ExternalForms(),
	} {
		for _, f := range all {
			if !f.Refused {
				continue // package commandline tests these
			}
			line := append([]string{"supervise", "--dir=" + dir, "--", "memcached"}, f.Arguments...)
			if r := drainertest.RunMain(t, line...); r.Code != contract.ExitUsage || !strings.Contains(r.Err, what) {
				t.Errorf("%q: exit code %d, %q; want %d, %q", f.Arguments, r.Code, r.Err, contract.ExitUsage, what)
			}
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were made: %v", files)
	}
}

// program is a script that runs in place of memcached. The program reports a version, and how many bytes its
// client flags take, as memcached does.
func program(t *testing.T, text string) string {
	t.Helper()
	memcached := memcachedtest.Binary(t)
	path := filepath.Join(t.TempDir(), "memcached")
	text = fmt.Sprintf("#!/bin/sh\ncase \"$*\" in -V|*' -m 8 -t 1'*) exec '%s' \"$@\";; esac\n%s\n", memcached, strings.ReplaceAll(text, "MEMCACHED", memcached))
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// An image adds the arguments, so that only memcached itself shows them.
func TestAMemcachedThatWouldNeverRestartIsEnded(t *testing.T) {
	t.Parallel()
	for name, added := range map[string]string{
		"short pages": "no_slab_reassign,slab_chunk_max=1048576",
		"extstore":    "ext_path=" + filepath.Join(t.TempDir(), "values") + ":64m",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c := p.serve("-m", "64")
			c.Command[0] = program(t, `exec MEMCACHED "$@" -o `+added)
			s := drainertest.Start(t, c.Args()...)
			if code := s.Wait(); code != contract.ExitUsage || !strings.Contains(s.Err.String(), "memcached never restarts") {
				t.Errorf("exit code %d, it said %s", code, s.Err.String())
			}
			message, err := os.ReadFile(c.TerminationLog)
			if why := contract.ParseRefusal(string(message)); err != nil || why == nil || why.Reason != contract.ReasonLayoutRefused {
				t.Errorf("the kubelet is told %q, %v", message, err)
			}
		})
	}
}

// An earlier version let memcached make it.
func TestAFileOfShortPagesIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := memcachedtest.StartMapped(t, filepath.Join(dir, contract.WarmFile), "-m", "64", "-o", "no_modern")
	drainertest.Store(t, m.Address(), drainertest.Objects(36, 500))
	m.Save()
	r, err := volume.Open(dir, volume.Options{})
	if err == nil {
		_, err = r.Count(t.Context())
		r.Close()
	}
	if !errors.Is(err, warmfile.ErrUnknownLayout) || !strings.Contains(err.Error(), "no_modern") {
		t.Errorf("it is read with %v", err)
	}
}

// spin is a memcached that has read its .meta and then works forever, as memcached does with a file that has
// short pages.
const spin = `rm -f "$2.meta"
while :; do :; done`

// memcached is killed, and the next one has all items.
func TestAStartThatNeverEndsIsBounded(t *testing.T) {
	for mode, text := range map[string]string{"Mapped": spin, "Saved": spin, "Mapped, and it does nothing": "rm -f \"$2.meta\"\nexec sleep 3600"} {
		t.Run(mode, func(t *testing.T) {
			if mode != "Mapped" {
				tier.Second(t, "TestAStartThatNeverEndsIsBounded/Mapped")
			}
			t.Parallel()
			all := drainertest.Objects(37, 500)
			p := newPod(t)
			if strings.HasPrefix(mode, "Mapped") {
				p.memory = ""
			}
			s := p.start("", "-m", "64")
			drainertest.Store(t, s.Address(), all)
			s.End("saved")
			c := p.serve()
			c.Command[0], c.HangAfter = program(t, text), time.Second
			stuck := drainertest.Start(t, c.Args()...)
			if code := stuck.Wait(); code != 128+int(syscall.SIGKILL) || !strings.Contains(stuck.Err.String(), "memcached does not start: it has") {
				t.Errorf("exit code %d, it said %s", code, stuck.Err.String())
			}
			again := p.start("")
			again.WaitFor("replayed generation-1: 500 items found: 500 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
		})
	}
}

// slab_config of memcached's .meta doesn't show the classes of each of these. A start with other arguments replays the
// items, after a save and after a crash.
func TestItemsAreReadWhateverTheSlabsAreLike(t *testing.T) {
	t.Parallel()
	for i, options := range []string{"-o slab_sizes=96-200-1000-10000-100000-524288", "-o slab_sizes=1000", "-n 600000", "-f 99999999", "-f 2x", "-o slab_sizes=96-1000 -f 2"} {
		for end, crash := range map[string]bool{"a save": false, "a crash": true} {
			t.Run(options+"/"+end, func(t *testing.T) {
				if i > 1 {
					tier.Second(t, "TestItemsAreReadWhateverTheSlabsAreLike/-o_slab_sizes=1000/a_save")
				}
				t.Parallel()
				all := drainertest.Objects(38, 90)
				p := newPod(t)
				p.memory = ""
				s := p.start("", append([]string{"-m", "128"}, strings.Fields(options)...)...)
				drainertest.Store(t, s.Address(), all)
				s.Settle(len(all))
				if crash {
					s.KillMemcached()
				} else {
					s.End("saved")
				}
				again := p.start("", "-m", "192")
				again.WaitFor("replayed generation-1: 90 items found: 90 added")
				drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
				again.End("saved")
			})
		}
	}
}
