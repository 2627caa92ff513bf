//go:build linux

package member_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/linux"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/member"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Variables that change a drainer process: it stops before the n-th item of each replay, waits with the first
// (or another) item as long as a file exists, sees another size of room on the volume, fails to count the
// saved items, has a file system without direct I/O, judges by the clock in a directory whether memcached
// hangs, or finds no room for the marks of a replay.
const (
	stallAt    = "DRAINER_TEST_STALL="
	holdBy     = "DRAINER_TEST_HOLD="
	holdAt     = "DRAINER_TEST_HOLD_AT="
	freeIs     = "DRAINER_TEST_FREE="
	countFails = "DRAINER_TEST_COUNT="
	noDirectIO = "DRAINER_TEST_NO_DIRECT_IO="
	clockIn    = "DRAINER_TEST_CLOCK="
	noMarks    = "DRAINER_TEST_NO_MARKS="
)

// stepIn acts as the variables say.
func stepIn() {
	member.CountHoweverLong()
	if n, err := strconv.Atoi(os.Getenv(strings.TrimSuffix(stallAt, "="))); err == nil {
		member.SetReplaySource(func(ctx context.Context, s item.Source) item.Source {
			return &stalled{s, n, func() {
				fmt.Fprintf(os.Stderr, "stalled before item %d\n", n)
				<-ctx.Done()
			}}
		})
	}
	if file := os.Getenv(strings.TrimSuffix(holdBy, "=")); file != "" {
		member.SetReplaySource(func(ctx context.Context, s item.Source) item.Source {
			n, _ := strconv.Atoi(os.Getenv(strings.TrimSuffix(holdAt, "=")))
			return &drainertest.Hooked{Source: s, N: max(n, 1), Do: func() {
				for ctx.Err() == nil && !volume.Missing(file) {
					time.Sleep(10 * time.Millisecond)
				}
			}}
		})
	}
	if n, err := strconv.ParseInt(os.Getenv(strings.TrimSuffix(freeIs, "=")), 10, 64); err == nil {
		volume.FreeBytes = func(string) (int64, error) { return n, nil }
		volume.Fallocate = func(fd int, mode uint32, offset, length int64) error {
			if mode != 0 {
				return unix.EOPNOTSUPP // the file system takes nothing back
			}
			return unix.Fallocate(fd, mode, offset, length)
		}
	}
	if os.Getenv(strings.TrimSuffix(noMarks, "=")) != "" {
		volume.Fallocate = func(fd int, mode uint32, offset, length int64) error {
			if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || filepath.Base(path) == contract.ReplayedFile {
				return unix.ENOSPC
			}
			return unix.Fallocate(fd, mode, offset, length)
		}
	}
	if os.Getenv(strings.TrimSuffix(countFails, "=")) != "" {
		volume.CountItems = func(*warmfile.Reader, []byte) (int64, bool) { return 0, false }
	}
	if dir := os.Getenv(strings.TrimSuffix(clockIn, "=")); dir != "" {
		followClock(dir)
	}
	if os.Getenv(strings.TrimSuffix(noDirectIO, "=")) != "" {
		snapshot.OpenFile = func(path string, flags int, mode os.FileMode) (*os.File, error) {
			if flags&linux.Direct != 0 {
				return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EINVAL}
			}
			return os.OpenFile(path, flags, mode)
		}
	}
}

// The member's items are restored after each cause of a cold start, and the volume is as before: one file.
func TestAMemberThatStartsColdComesBackWithItsItems(t *testing.T) {
	meta := func(change func(data []byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, contract.MetaFile)
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(old, new string) func(t *testing.T, dir string) {
		return meta(func(b []byte) []byte { return []byte(strings.Replace(string(b), old, new, 1)) })
	}
	tests := map[string]struct {
		how    string
		change func(t *testing.T, dir string)
		args   []string
	}{
		"supervisor and memcached killed": {how: "killed"},
		"memcached killed":                {how: "crashed"},
		"larger -m":                       {how: "saved", args: []string{"-m", "192"}},
		"smaller -m":                      {how: "saved", args: []string{"-m", "96"}},
		"larger -I":                       {how: "saved", args: []string{"-m", "128", "-I", "2m"}},
		"another factor":                  {how: "saved", args: []string{"-m", "128", "-f", "1.250"}},
		"without CAS":                     {how: "saved", args: []string{"-m", "128", "-C"}},
		"killed, then a larger -m":        {how: "killed", args: []string{"-m", "192"}},
		"no .meta":                        {how: "saved", change: func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, contract.MetaFile)) }},
		"empty .meta":                     {how: "saved", change: meta(func([]byte) []byte { return nil })},
		".meta cut in a line":             {how: "saved", change: meta(func(b []byte) []byte { return b[:len(b)/2] })},
		".meta without its end":           {how: "saved", change: meta(func(b []byte) []byte { return b[:len(b)-1] })},
		".meta is garbage":                {how: "saved", change: meta(func([]byte) []byte { return []byte("garbage\n") })},
		".meta says another item size":    {how: "saved", change: replace("item_size_max 1048576", "item_size_max 2097152")},
		".meta says no CAS":               {how: "saved", change: replace("use_cas true", "use_cas false")},
		"no manifest":                     {how: "saved", change: func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, contract.Manifest)) }},
		"a newer memcached had saved":     {how: "saved", change: editManifest(func(m *volume.Manifest) { m.Image.Version = "1.99.0" })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if name != "supervisor and memcached killed" {
				tier.Second(t, "TestAMemberThatStartsColdComesBackWithItsItems")
			}
			t.Parallel()
			all := drainertest.Objects(20, 1000)
			dir := t.TempDir()
			s := drainertest.Serve(t, dir, "-m", "128")
			drainertest.Store(t, s.Address(), all)
			if test.how != "saved" {
				s.Settle(len(all))
			}
			if test.how == "crashed" {
				s.KillMemcached()
			} else {
				s.End(test.how)
			}
			if test.change != nil {
				test.change(t, dir)
			}
			args := test.args
			if args == nil {
				args = []string{"-m", "128"}
			}
			again := drainertest.Serve(t, dir, args...)
			again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			drainertest.ExpectGenerations(t, dir)
			again.End("saved")
			third := drainertest.Serve(t, dir, args...)
			drainertest.Check(t, "gomemcache", []string{third.Address()}, all)
			if said := third.Err.String(); strings.Contains(said, "generation") {
				t.Errorf("the start behind it replays: %s", said)
			}
			third.End("saved")
		})
	}
}

func editManifest(change func(m *volume.Manifest)) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		m, err := volume.ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		b, err := m.Marshal()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, contract.Manifest), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The member is killed at the first item, in the middle, before the last item, and twice in a row. The next
// start restores all items, with the newest value of a key that was written meanwhile. A drain of the volume
// after the kill finds the same.
func TestKilledWhileReplaying(t *testing.T) {
	tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
	for _, n := range []int{1, 700, 5999} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			all := drainertest.Objects(21, 6000)
			dir := drainertest.Leaving(t, "killed", all)
			newer := func(s *drainertest.Served, from, to int) {
				t.Helper()
				written := map[string]drainertest.Object{}
				for key := range all {
					if i, _ := strconv.Atoi(strings.Split(strings.TrimPrefix(key, "object:")+":", ":")[0]); i > from && i <= to {
						written[key] = drainertest.Object{Value: []byte("newer by " + s.Dir[:1] + strconv.Itoa(to)), Flags: uint64(to)}
						all[key] = written[key]
					}
				}
				drainertest.Store(t, s.Address(), written)
				s.Settle(len(written))
			}
			for round := 1; round <= 2; round++ {
				s := drainertest.ServeWith(t, stallAt+strconv.Itoa(n), dir, memcachedtest.FreePort(t), "-m", "128")
				newer(s, 100*round, 100*round+200)
				s.WaitFor("stalled before item")
				s.End("killed")
			}
			if found, err := volume.Generations(dir); err != nil || len(found) < 2 {
				t.Errorf("%d generations lie on the volume, %v", len(found), err)
			}

			servers, addresses := drainertest.Survivors(t, 2)
			before := drainertest.Fingerprint(t, dir)
			m := drainertest.DrainArgs(t, dir, addresses)
			r := drainertest.Drain(t, m)
			if err := r.Receipt.AddsUp("the-claim"); err != nil || r.Receipt.Added != 6000 || r.Receipt.AlreadyPresent+r.Receipt.Invalidated < 200 {
				t.Errorf("%v: %+v; %s", err, r.Receipt, r.Err)
			}
			drainertest.Check(t, m.Client, addresses, all)
			if drainertest.Fingerprint(t, dir) != before {
				t.Error("the drain has changed the volume")
			}
			if n := servers[0].Items(t) + servers[1].Items(t); n != 6000 {
				t.Errorf("the survivors hold %d items", n)
			}

			last := drainertest.Serve(t, dir, "-m", "128")
			last.WaitFor("replayed generation-1")
			drainertest.Check(t, "gomemcache", []string{last.Address()}, all)
			drainertest.ExpectGenerations(t, dir)
			last.End("saved")
		})
	}
}

// SIGTERM saves at once. The next start is warm, and replays the rest afterwards. The member isn't ready
// before that is done.
func TestStoppedWhileReplaying(t *testing.T) {
	tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
	t.Parallel()
	all := drainertest.Objects(22, 3000)
	dir := drainertest.Leaving(t, "killed", all)
	s := drainertest.ServeWith(t, stallAt+"2000", dir, memcachedtest.FreePort(t), "-m", "128")
	s.WaitFor("stalled before item")
	ready := func(s *drainertest.Served) drainertest.Result {
		return drainertest.RunMain(t, contract.Ready(int32(s.Port))...)
	}
	if r := ready(s); r.Code != contract.ExitFailed {
		t.Errorf("while it replays it is ready: exit code %d, %s", r.Code, r.Err)
	}
	live := map[string]drainertest.Object{"written while it replayed": {Value: []byte("v")}}
	drainertest.Store(t, s.Address(), live)
	s.End("saved")
	drainertest.ExpectGenerations(t, dir, "generation-1")
	again := drainertest.Serve(t, dir, "-m", "128")
	all["written while it replayed"] = live["written while it replayed"]
	again.WaitFor("replayed generation-1")
	wait.For(t, "the member to be ready", func() error {
		if r := ready(again); r.Code != contract.ExitOK {
			return errors.New(r.Err)
		}
		return nil
	})
	drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
	if said := again.Err.String(); strings.Contains(said, "cold") {
		t.Errorf("it did not start warm: %s", said)
	}
	again.End("saved")
}

// replaying returns a member that has crashed with objects, which are not restored before release is called.
func replaying(t *testing.T, all map[string]drainertest.Object, args ...string) (s *drainertest.Served, release func()) {
	t.Helper()
	dir, hold := drainertest.Leaving(t, "killed", all), filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = drainertest.ServeWith(t, holdBy+hold, dir, memcachedtest.FreePort(t), append([]string{"-m", "128"}, args...)...)
	return s, func() {
		t.Helper()
		if err := os.Remove(hold); err != nil {
			t.Error(err)
		}
	}
}

// The items that a member had when it crashed are newer than those of a drain or a move, and are restored
// after live traffic. So drains and moves wait, each time they connect.
func TestMovesWaitForAReplay(t *testing.T) {
	all := func(value string) map[string]drainertest.Object {
		keys := map[string]drainertest.Object{}
		for i := range 200 {
			keys["key:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte(value)}
		}
		return keys
	}
	tests := map[string]func(t *testing.T, member, other string) (args, servers []string){
		"a drain into it": func(t *testing.T, member, _ string) (args, servers []string) {
			servers = []string{member}
			return drainertest.DrainArgs(t, drainertest.Leaving(t, "saved", all("older")), servers).Args(), servers
		},
		"a move into it": func(t *testing.T, member, other string) (args, servers []string) {
			drainertest.Store(t, other, all("older"))
			return drainertest.MoveArgs(t, "gomemcache", other, []string{other, member}).Args(), []string{member}
		},
		"a move of what it holds": func(t *testing.T, member, other string) (args, servers []string) {
			servers = []string{member, other}
			return drainertest.MoveArgs(t, "gomemcache", member, servers).Args(), servers
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if name == "a move into it" {
				tier.Second(t, "TestMovesWaitForAReplay")
			}
			t.Parallel()
			member, release := replaying(t, all("newer"))
			args, servers := test(t, member.Address(), memcachedtest.Start(t).Address())
			p := drainertest.Start(t, args...)
			p.WaitFor(memcache.ErrReplaying.Error())
			if n := member.Memcached().Items(t); n != 0 {
				t.Errorf("%d items came before those that it held", n)
			}
			release()
			if code := p.Wait(); code != 0 {
				t.Fatalf("exit code %d: %s", code, p.Err.String())
			}
			drainertest.Check(t, "gomemcache", servers, all("newer"))
		})
	}
}

// memcached shows the replay from its first answer to the replay's end, unless a setting of the user prevents
// that.
func TestReplayIsToldOf(t *testing.T) {
	tier.Second(t, "TestAMemcachedThatReplaysIsNotKilled")
	t.Parallel()
	for name, test := range map[string]struct {
		args          []string
		during, after string
	}{
		"by a setting":  {nil, "4294967291", "0"},
		"of the user's": {[]string{"-o", "lru_crawler_tocrawl=7"}, "7", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member, release := replaying(t, drainertest.Objects(29, 10), test.args...)
			expect := func(want string) {
				t.Helper()
				wait.For(t, "a setting of "+want, func() error {
					settings, err := member.Memcached().DialFor(t).Stats("settings")
					if err == nil && settings["lru_crawler_tocrawl"] != want {
						err = errors.New("it is " + settings["lru_crawler_tocrawl"])
					}
					return err
				})
			}
			expect(test.during)
			member.WaitFor("replaying: ")
			release()
			member.WaitFor("replayed generation-1")
			expect(test.after)
			member.End("saved")
		})
	}
}

// Items that clients flush do not come back.
func TestFlushWhileReplaying(t *testing.T) {
	tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
	t.Parallel()
	dir := drainertest.Leaving(t, "killed", drainertest.Objects(23, 3000))
	s := drainertest.ServeWith(t, stallAt+"1", dir, memcachedtest.FreePort(t), "-m", "128")
	s.WaitFor("stalled before item")
	s.Flush()
	s.End("saved")
	again := drainertest.Serve(t, dir, "-m", "128")
	again.WaitFor("3000 invalidated")
	drainertest.ExpectGenerations(t, dir)
	again.End("saved")
}

// The reason is on stderr and in the manifest, and memcached starts cold. The kubelet would find it after a
// crash, too, and nothing after a save.
func TestAStartWithoutRoomSaysSoAndIsCold(t *testing.T) {
	t.Parallel()
	dir := drainertest.Leaving(t, "killed", drainertest.Objects(24, 500))
	s := drainertest.ServeWith(t, freeIs+strconv.Itoa(127<<20), dir, memcachedtest.FreePort(t), "-m", "128")
	const want = "lacks 2 MiB of room for a second file of 128 MiB" // the file, and the marks of replayed items
	s.WaitFor(want)
	m, err := volume.ReadManifest(dir)
	if err != nil || !strings.Contains(m.Note, want) {
		t.Errorf("manifest %+v, %v", m, err)
	}
	if n := s.Memcached().Items(t); n != 0 {
		t.Errorf("%d items", n)
	}
	drainertest.ExpectGenerations(t, dir)
	message := func() string {
		b, err := os.ReadFile(s.TerminationLog())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	need := int64(128<<20) + volume.MarksBytes(128<<20)
	if c := contract.ParseColdStart(message()); c == nil || c.NeedBytes != need || c.FreeBytes != 127<<20 {
		t.Errorf("the termination message is %q", message())
	}
	s.End("saved")
	if message() != "" {
		t.Errorf("after a save it is %q", message())
	}
}

// The message comes in a new pod before memcached could report it, and only where memcached will start cold.
func TestInstallTellsOfAColdStart(t *testing.T) {
	t.Parallel()
	memcachedtest.Binary(t)
	for _, test := range []struct {
		left, memory string
		cold         bool
	}{{"killed", "128", true}, {"saved", "128", false}, {"saved", "160", true}, {"never ran", "128", false}} {
		t.Run(test.left+", -m "+test.memory, func(t *testing.T) {
			if test.left != "killed" && (test.left != "saved" || test.cold) {
				tier.Second(t, "TestInstallTellsOfAColdStart")
			}
			t.Parallel()
			dir, to := t.TempDir(), t.TempDir()
			if test.left != "never ran" {
				dir = drainertest.Leaving(t, test.left, drainertest.Objects(27, 100))
			}
			log := filepath.Join(to, "termination-log")
			p := drainertest.StartWith(t, freeIs+strconv.Itoa(127<<20), contract.Install{To: to, Member: contract.Supervise{
				Dir: dir, TerminationLog: log, Command: append([]string{"memcached"}, memcachedtest.FewPages("-m", test.memory)...)}}.Args()...)
			if code := p.Wait(); code != 0 {
				t.Fatalf("exit code %d: %s", code, p.Err.String())
			}
			message, err := os.ReadFile(log)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if c := contract.ParseColdStart(string(message)); (c != nil) != test.cold {
				t.Errorf("it left %q", message)
			}
			if _, err := os.Stat(filepath.Join(to, "drainer")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Room for a third file is made by removing the first.
func TestOldestMakesRoom(t *testing.T) {
	tier.Second(t, "TestACacheThatIsNotFullIsReplayedOnAVolumeOfLessThanTwoFiles")
	t.Parallel()
	dir := drainertest.Leaving(t, "killed", drainertest.Objects(25, 3000))
	s := drainertest.ServeWith(t, stallAt+"1", dir, memcachedtest.FreePort(t), "-m", "128")
	newest := drainertest.Objects(26, 500)
	drainertest.Store(t, s.Address(), newest)
	s.Settle(len(newest))
	s.WaitFor("stalled before item")
	s.End("killed")
	again := drainertest.ServeWith(t, freeIs+strconv.Itoa(127<<20), dir, memcachedtest.FreePort(t), "-m", "128")
	again.WaitFor("generation-1 is removed to make room")
	again.WaitFor("replayed generation-1: 500 items found")
	drainertest.Check(t, "gomemcache", []string{again.Address()}, newest)
	drainertest.ExpectGenerations(t, dir)
	again.End("saved")
}

// The member serves, and has the sound items. The file stays, and a drain fails on it.
func TestItemsBeforeADamageAreReplayed(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(27, 3000)
	dir := drainertest.Leaving(t, "killed", all)
	f, err := os.OpenFile(filepath.Join(dir, contract.WarmFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(strings.Repeat("garbage!", 4096)), 5<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s := drainertest.Serve(t, dir, "-m", "128")
	s.WaitFor("generation-1 stays on the volume")
	drainertest.ExpectGenerations(t, dir, "generation-1.failed")
	if n := len(drainertest.Held(t, s.Address(), all)); n == 0 || n == len(all) {
		t.Errorf("%d of %d items are back", n, len(all))
	}
	s.End("saved")
	_, addresses := drainertest.Survivors(t, 1)
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
	if r.Code != contract.ExitUnrecoverable || r.Receipt.Complete {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	again := drainertest.Serve(t, dir, "-m", "128")
	again.End("saved")
	if said := again.Err.String(); strings.Contains(said, "replay") {
		t.Errorf("it was tried again: %s", said)
	}
}

// The member is killed between any two steps of keeping a file for a replay or of removing a generation. The
// next start finds the items.
func TestMoveIsAtomic(t *testing.T) {
	all := drainertest.Objects(28, 500)
	in := func(dir, name string) string { return filepath.Join(dir, contract.GenerationPrefix+"1", name) }
	copyOf := func(t *testing.T, from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	steps := []func(t *testing.T, dir string){
		func(t *testing.T, dir string) { _ = os.Mkdir(in(dir, ""), 0o755) },
		func(t *testing.T, dir string) {
			copyOf(t, filepath.Join(dir, contract.Manifest), in(dir, contract.Manifest))
		},
		func(t *testing.T, dir string) {
			copyOf(t, filepath.Join(dir, contract.MetaFile), in(dir, contract.MetaFile))
		},
		func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, contract.WarmFile), in(dir, contract.WarmFile)); err != nil {
				t.Fatal(err)
			}
		},
		func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, contract.MetaFile)) },
	}
	for n := range len(steps) + 1 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			if n != 4 {
				tier.Second(t, "TestMoveIsAtomic")
			}
			t.Parallel()
			dir := drainertest.Leaving(t, "saved", all)
			for _, step := range steps[:n] {
				step(t, dir)
			}
			_, addresses := drainertest.Survivors(t, 1)
			if r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses)); r.Receipt.AddsUp("the-claim") != nil || r.Receipt.Added != 500 {
				t.Errorf("a drain finds %+v", r.Receipt)
			}
			s := drainertest.Serve(t, dir, "-m", "160")
			s.WaitFor("replayed generation-")
			drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
			drainertest.ExpectGenerations(t, dir)
			s.End("saved")
		})
	}
}
