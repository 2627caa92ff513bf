//go:build linux

package member_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/test/tier"
)

// flagged returns objects of every kind for which 64-bit client flags change the layout: values that end as a
// shorter one would, flags of all sizes, chunks; most is the highest flag.
func flagged(n int, most uint64) map[string]drainertest.Object {
	all := map[string]drainertest.Object{}
	for i := range n {
		value := "HTTP/1.1 200 OK\r\nServer: " + strconv.Itoa(i) + "\r\n\r\n"
		all["header:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte(value), Flags: uint64(i%1000 + 1)}
		all["plain:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("plain")}
	}
	for i, flags := range []uint64{1, 1 << 16, 1<<32 - 1, 1 << 32, 1<<63 + 1, 1<<64 - 1} {
		if flags <= most {
			all["flags:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("value"), Flags: flags}
			all["chunked:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte(strings.Repeat("x", 600_000+i)), Flags: flags}
		}
	}
	return all
}

// serveBuild runs a member with that memcached; memory is "" for Mapped.
func serveBuild(t *testing.T, program, dir, memory string, args ...string) *drainertest.Served {
	t.Helper()
	c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), args...)
	c.Command[0], c.MemoryDir = program, memory
	return drainertest.SuperviseCommand(t, "", c)
}

// largeSurvivors accept client flags of 64 bits.
func largeSurvivors(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		addresses = append(addresses, memcachedtest.StartLarge(t).Address())
	}
	return addresses
}

// A drain, a replay and a restart read the file of a memcached with 64-bit client flags exactly.
func TestLargeClientFlags(t *testing.T) {
	program := memcachedtest.Large(t)
	for _, mode := range []string{"Mapped", "Saved"} {
		for _, how := range []string{"saved", "killed"} {
			t.Run(mode+", "+how, func(t *testing.T) {
				t.Parallel()
				all, dir, memory := flagged(1000, 1<<64-1), t.TempDir(), ""
				if mode == "Mapped" {
					all = flagged(1000, 0) // no item shows which build wrote it
				}
				if mode == "Saved" {
					memory = t.TempDir()
				}
				s := serveBuild(t, program, dir, memory, "-m", "128")
				drainertest.Store(t, s.Address(), all)
				s.Settle(len(all))
				if how == "killed" && mode == "Saved" {
					s.KillMemcached() // the supervisor survives and saves
				} else {
					s.End(how)
				}
				addresses := largeSurvivors(t, 2)
				m := drainertest.DrainArgs(t, dir, addresses)
				if r := drainertest.Drain(t, m); r.Code != 0 || r.Receipt.Added != int64(len(all)) {
					t.Errorf("drain: %+v\n%s", r.Receipt, r.Err)
				}
				drainertest.Check(t, m.Client, addresses, all)
				if how == "saved" {
					s = serveBuild(t, program, dir, memory, "-m", "128")
					s.ExpectItems(all)
					drainertest.ExpectGenerations(t, dir)
					s.End("saved")
				}
				s = serveBuild(t, program, dir, memory, "-m", "192")
				s.WaitFor(fmt.Sprintf("%d items found: %d added", len(all), len(all)))
				s.ExpectItems(all)
				s.End("saved")
			})
		}
	}
}

// The manifest has the build of memcached after a save and after a crash.
func TestTheBuildIsRecorded(t *testing.T) {
	for _, how := range []string{"saved", "killed"} {
		t.Run(how, func(t *testing.T) {
			if how != "killed" {
				tier.Second(t, "TestTheBuildIsRecorded")
			}
			t.Parallel()
			dir := t.TempDir()
			s := drainertest.Serve(t, dir, "-m", "64")
			settings, err := s.Memcached().DialFor(t).Stats("settings")
			if err != nil {
				t.Fatal(err)
			}
			s.End(how)
			if want, got := fmt.Sprintf(`"clientFlagsBytes": %d,`, item.FlagsBytes(settings)), drainertest.ManifestText(t, dir); !strings.Contains(got, want) {
				t.Errorf("%s is not in %s", want, got)
			}
		})
	}
}

// A memcached never resumes from the file of a build with another layout: it would serve wrong values.
func TestMemcachedNeverResumesFromAFileOfAnotherLayout(t *testing.T) {
	large := memcachedtest.Large(t)
	small := memcachedtest.Binary(t)
	for name, builds := range map[string][2]string{"from 64 bits to 32": {large, small}, "from 32 bits to 64": {small, large}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, dir := flagged(500, 1<<32-1), t.TempDir()
			s := serveBuild(t, builds[0], dir, "", "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.End("saved")
			again := serveBuild(t, builds[1], dir, "", "-m", "128")
			again.WaitFor(fmt.Sprintf("%d items found: %d added", len(all), len(all)))
			again.ExpectItems(all)
			again.End("saved")
		})
	}
}

// Flags of 2^32 and more make a drain and a move fail with that reason, which a retry can't fix; all other
// items are moved.
func TestFlagsThatNoSurvivorTakes(t *testing.T) {
	program := memcachedtest.Large(t)
	all, taken := flagged(500, 1<<64-1), flagged(500, 1<<32-1)
	check := func(t *testing.T, r drainertest.Result, servers []string) {
		t.Helper()
		if r.Code != contract.ExitUsage || r.Receipt.Reason != "ClientFlagsTooLarge" || !r.Receipt.Complete || r.Receipt.Rejected == 0 {
			t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
		}
		if want := "client flags of 2^32 and more"; !strings.Contains(r.Receipt.Message, want) {
			t.Errorf("it says %q, want %q", r.Receipt.Message, want)
		}
		drainertest.Check(t, "gomemcache", servers, taken)
	}
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s := serveBuild(t, program, dir, "", "-m", "128")
		drainertest.Store(t, s.Address(), all)
		s.End("saved")
		_, addresses := drainertest.Survivors(t, 2)
		m := drainertest.DrainArgs(t, dir, addresses)
		m.Client = "gomemcache"
		check(t, drainertest.Drain(t, m), addresses)
	})
	t.Run("move", func(t *testing.T) {
		t.Parallel()
		source := memcachedtest.StartLarge(t, "-m", "128")
		drainertest.Store(t, source.Address(), all)
		_, addresses := drainertest.Survivors(t, 1)
		addresses = append([]string{source.Address()}, addresses...)
		check(t, drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses)), addresses)
	})
}

// The items of a file that can't be counted are saved.
func TestACountThatFailsCostsNoSave(t *testing.T) {
	t.Parallel()
	all, p := drainertest.Objects(31, 500), newPod(t)
	s := p.start(countFails+"1", "-m", "128")
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	if _, err := os.Stat(filepath.Join(p.volume, contract.SaveFile)); err != nil {
		t.Fatalf("%v\n%s", err, s.Err.String())
	}
	s.WaitFor("can't be counted")
	p.nextPod().start("", "-m", "128").ExpectItems(all)
}
