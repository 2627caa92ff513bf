//go:build linux

package member_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// pod is a member of mode Saved: a volume that outlives it, and a directory in memory that doesn't.
type pod struct {
	t              *testing.T
	volume, memory string
	// args are memcached's in the latest start.
	args []string
}

func newPod(t *testing.T) *pod { return (&pod{t: t, volume: t.TempDir()}).nextPod() }

// nextPod returns the next pod with the same volume.
func (p *pod) nextPod() *pod { return &pod{p.t, p.volume, p.t.TempDir(), p.args} }

// savedPod returns a pod that has ended and left a save of these items.
func savedPod(t *testing.T, all map[string]drainertest.Object) *pod {
	t.Helper()
	p := newPod(t)
	s := p.start("", "-m", "128")
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	return p
}

// start runs the pod's container, for the first time or again. Without args, memcached has those of the
// latest start.
func (p *pod) start(env string, args ...string) *drainertest.Served {
	p.t.Helper()
	return drainertest.SuperviseCommand(p.t, env, p.serve(args...))
}

func (p *pod) serve(args ...string) contract.Supervise {
	if len(args) > 0 {
		p.args = args
	}
	c := drainertest.MemberArgs(contract.Connection{}, p.volume, memcachedtest.FreePort(p.t), p.args...)
	c.MemoryDir = p.memory
	return c
}

func (p *pod) command(port int, args ...string) contract.Supervise {
	return contract.Supervise{Dir: p.volume, MemoryDir: p.memory, Port: int32(port), Command: args}
}

// expectFiles checks the volume's files.
func (p *pod) expectFiles(want ...string) {
	p.t.Helper()
	entries, err := os.ReadDir(p.volume)
	if err != nil {
		p.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("on the volume are %v, want %v", got, want)
	}
}

// The next pod has all items, and so has the one after that; the volume has one save.
func TestSavedMemberRestartsWarm(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(70, 2000)
	p := savedPod(t, all)
	for round := range 2 {
		p = p.nextPod()
		s := p.start("", "-m", "128")
		drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
		if said := s.Err.String(); !strings.Contains(said, "the save is loaded") || !strings.Contains(said, "loading: ") || strings.Contains(said, "replay") {
			t.Errorf("it said %s", said)
		}
		newer := map[string]drainertest.Object{"written in round " + strconv.Itoa(round): {Value: []byte("v")}}
		drainertest.Store(t, s.Address(), newer)
		for key, o := range newer {
			all[key] = o
		}
		s.End("saved")
	}
	p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
}

// Items that memcached would not resume from are restored nevertheless, from the volume, so that there is
// never more than one file in memory.
func TestSavedMemberReplays(t *testing.T) {
	tier.Second(t, "TestAMemberThatStartsColdComesBackWithItsItems")
	for name, test := range map[string]struct {
		how     string
		samePod bool
		args    []string
	}{
		"memcached crashed":                    {how: "crashed", samePod: true},
		"the container was killed":             {how: "killed", samePod: true},
		"memcached crashed, then the pod went": {how: "crashed"},
		"killed, then a larger -m":             {how: "killed", samePod: true, args: []string{"-m", "192"}},
		"larger -m":                            {how: "saved", args: []string{"-m", "192"}},
		"smaller -m":                           {how: "saved", args: []string{"-m", "96"}},
		"another factor":                       {how: "saved", args: []string{"-m", "128", "-f", "1.5"}},
		"larger -I":                            {how: "saved", args: []string{"-m", "128", "-I", "2m"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := drainertest.Objects(71, 1000)
			p := newPod(t)
			s := p.start("", "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			if test.how == "crashed" {
				s.KillMemcached()
			} else {
				s.End(test.how)
			}
			if !test.samePod {
				p = p.nextPod()
			}
			args := test.args
			if args == nil {
				args = []string{"-m", "128"}
			}
			s = p.start("", args...)
			s.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
			drainertest.ExpectGenerations(t, p.volume)
			drainertest.ExpectGenerations(t, p.memory)
			s.End("saved")
			s = p.nextPod().start("", args...)
			drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
			s.End("saved")
		})
	}
}

// When a pod is lost without a save, its clients' writes are lost, and the save that it was started from is
// served neither by the next pod nor by a drain. Both report that. A save that was cut short doesn't count.
func TestOutdatedSaveIsNeverServed(t *testing.T) {
	for name, test := range map[string]struct {
		before bool // there was a save, from which the member started
		args   []string
		cut    bool
	}{
		"the first pod":          {},
		"a pod that was warm":    {before: true},
		"a pod that replayed":    {before: true, args: []string{"-m", "160"}},
		"its save was cut short": {before: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "a pod that was warm" {
				tier.Second(t, "TestOutdatedSaveIsNeverServed")
			}
			t.Parallel()
			p := newPod(t)
			old, newer := drainertest.Objects(72, 500), map[string]drainertest.Object{}
			for key := range old {
				newer[key] = drainertest.Object{Value: []byte("newer")}
			}
			if test.before {
				s := p.start("", "-m", "128")
				drainertest.Store(t, s.Address(), old)
				s.End("saved")
				p = p.nextPod()
			}
			args := append([]string{"-m", "128"}, test.args...)
			s := p.start("", args...)
			if test.args != nil {
				s.WaitFor("replayed")
			}
			drainertest.Store(t, s.Address(), newer)
			s.Settle(len(newer))
			s.End("killed")
			if test.cut {
				b, err := os.ReadFile(filepath.Join(p.volume, contract.SaveFile))
				if err == nil {
					err = os.WriteFile(filepath.Join(p.volume, unfinishedSave), b[:len(b)/2], 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}

			_, addresses := drainertest.Survivors(t, 1)
			r := drainertest.Drain(t, drainertest.DrainArgs(t, p.volume, addresses))
			r.OneLine(t, "without", "save")
			if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "SaveOutdated" || r.Receipt.Found != 0 {
				t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
			}

			p = p.nextPod()
			log := filepath.Join(t.TempDir(), "termination-log")
			install := contract.Install{To: t.TempDir(), Member: contract.Supervise{Dir: p.volume, MemoryDir: p.memory, TerminationLog: log, Command: append([]string{"memcached"}, args...)}}
			if code := drainertest.Start(t, install.Args()...).Wait(); code != 0 {
				t.Errorf("install: exit code %d", code)
			}
			if said, err := os.ReadFile(log); err != nil || contract.ParseColdStart(string(said)) == nil {
				t.Errorf("foretold was %q, %v", said, err)
			}
			s = p.start("", args...)
			s.WaitFor("memcached starts cold")
			if n := s.Memcached().Items(t); n != 0 {
				t.Errorf("%d items came back", n)
			}
			p.expectFiles(contract.InUse, contract.LockFile)
			drainertest.Store(t, s.Address(), newer)
			s.End("saved")
			s = p.nextPod().start("", args...)
			drainertest.Check(t, "gomemcache", []string{s.Address()}, newer)
			s.End("saved")
		})
	}
}

// The replayed items are in the save, the rest stays a generation; a drain and the next pod find both.
func TestSavedMemberStopsWhileReplaying(t *testing.T) {
	tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
	t.Parallel()
	all := drainertest.Objects(73, 3000)
	p := savedPod(t, all).nextPod()
	s := p.start(stallAt+"1", "-m", "160")
	s.WaitFor("stalled before item") // a kill then loses no item that is being sent
	s.End("killed")                  // the container, whose next one continues
	s = p.start(stallAt+"2000", "-m", "160")
	s.WaitFor("stalled before item")
	newer := map[string]drainertest.Object{"written while it replayed": {Value: []byte("v")}}
	drainertest.Store(t, s.Address(), newer)
	all["written while it replayed"] = newer["written while it replayed"]
	s.End("saved")
	_, addresses := drainertest.Survivors(t, 2)
	before := drainertest.Fingerprint(t, p.volume)
	m := drainertest.DrainArgs(t, p.volume, addresses)
	if r := drainertest.Drain(t, m); r.Receipt.AddsUp("the-claim") != nil {
		t.Errorf("%+v; %s", r.Receipt, r.Err)
	}
	drainertest.Check(t, m.Client, addresses, all)
	if drainertest.Fingerprint(t, p.volume) != before {
		t.Error("the drain has changed the volume")
	}
	s = p.nextPod().start("", "-m", "160")
	s.WaitFor("replayed generation-1")
	drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
	s.End("saved")
}

// A save is read like its warm file.
func TestDrainOfASave(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(74, 2000)
	p := savedPod(t, all)
	before := drainertest.Fingerprint(t, p.volume)
	_, addresses := drainertest.Survivors(t, 2)
	m := drainertest.DrainArgs(t, p.volume, addresses)
	r := drainertest.Drain(t, m)
	if err := r.Receipt.AddsUp("the-claim"); err != nil || r.Receipt.Added != 2000 || r.Receipt.Reader != contract.ReaderWarmFile || !r.Receipt.Clean {
		t.Errorf("%v: %+v; %s", err, r.Receipt, r.Err)
	}
	drainertest.Check(t, m.Client, addresses, all)
	if drainertest.Fingerprint(t, p.volume) != before {
		t.Error("the drain has changed the volume")
	}
}

// The items of its other pages are restored, and a drain moves them and fails.
func TestDamagedSaveOfAMember(t *testing.T) {
	tier.Second(t, "TestASaveIsWorthItsWholePages")
	t.Parallel()
	all := large('a', 40)
	p := savedPod(t, all)
	damage(t, p)
	_, addresses := drainertest.Survivors(t, 1)
	r := drainertest.Drain(t, drainertest.DrainArgs(t, p.volume, addresses))
	left := drainertest.Held(t, addresses[0], all)
	if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "SaveIncomplete" || r.Receipt.Added != int64(len(left)) || len(left) == 0 || len(left) == len(all) {
		t.Errorf("exit code %d, %d of %d items are left, %+v", r.Code, len(left), len(all), r.Receipt)
	}
	s := p.nextPod().start("", "-m", "128")
	s.WaitFor("memcached would start cold: its save is damaged")
	s.ExpectItems(left)
	drainertest.ExpectGenerations(t, p.volume)
	s.End("saved")
	p.expectAllOrNothing(left, false)
}

// damage changes one page of a pod's save, far after the empty ones.
func damage(t *testing.T, p *pod) {
	t.Helper()
	path := filepath.Join(p.volume, contract.SaveFile)
	info := fileOf(t, p.volume, contract.SaveFile)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), info.Size()-2<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A memcached that doesn't start makes nothing outdated, with arguments that suit the save, and with others.
func TestSavedMemcachedEndsAtOnce(t *testing.T) {
	for name, args := range map[string][]string{"same": {"-m", "128", "-t", "nonsense"}, "others": {"-m", "128", "-I", "1"}} {
		t.Run(name, func(t *testing.T) {
			if name != "others" {
				tier.Second(t, "TestSavedMemcachedEndsAtOnce")
			}
			t.Parallel()
			all := drainertest.Objects(76, 500)
			p := savedPod(t, all).nextPod()
			for range 2 {
				port := memcachedtest.FreePort(t)
				c := p.command(port, append(append([]string{"memcached"}, memcachedtest.Args(port)...), args...)...)
				if code := drainertest.Start(t, c.Args()...).Wait(); code == 0 || code == contract.ExitUsage {
					t.Errorf("exit code %d", code)
				}
			}
			s := p.nextPod().start("", "-m", "128")
			wait.For(t, "the items", func() error {
				if n := s.Memcached().Items(t); n != 500 {
					return errors.New(strconv.FormatInt(n, 10) + " items")
				}
				return nil
			})
			drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
			s.End("saved")
		})
	}
}

// The lack of room is predicted, and reported when it happens. The previous save was removed in vain, and is
// not served.
func TestNoRoomForASave(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	s := p.start(freeIs+"1000000", "-m", "128")
	s.WaitFor("a full cache can't be saved: the volume lacks 128 MiB of room for a save of 128 MiB")
	drainertest.Store(t, s.Address(), drainertest.Objects(77, 500))
	log, err := os.ReadFile(drainertest.TerminationLog(p.volume))
	if err != nil || contract.ParseColdStart(string(log)) == nil {
		t.Errorf("the termination message is %q, %v", log, err)
	}
	s.Signal(15)
	if code := s.Wait(); code != contract.ExitFailed || !strings.Contains(s.Err.String(), "of room for a save of") {
		t.Errorf("exit code %d: %s", code, s.Err.String())
	}
	p.expectFiles(contract.InUse, contract.LockFile)
}

// A member of a cluster with the same name has left the volume. All of its items are there afterwards, none
// twice or out of date.
func TestMemberOfTheOtherMode(t *testing.T) {
	tier.Second(t, "TestSavedMemberRestartsWarm")
	memory := []string{"-m", "128"}
	mapped := func(p *pod) *drainertest.Served { return drainertest.Serve(p.t, p.volume, memory...) }
	saved := func(p *pod) *drainertest.Served { return p.nextPod().start("", memory...) }
	for name, test := range map[string]struct {
		from, to func(*pod) *drainertest.Served
		how      string
		lost     bool
	}{
		"Mapped to Saved":                {from: mapped, to: saved, how: "saved"},
		"Mapped to Saved after a crash":  {from: mapped, to: saved, how: "killed"},
		"Saved to Mapped":                {from: saved, to: mapped, how: "saved"},
		"Saved to Mapped without a save": {from: saved, to: mapped, how: "killed", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, all := newPod(t), drainertest.Objects(78, 1000)
			var key string
			for key = range all {
				break
			}
			s := test.from(p)
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			s.End(test.how)

			s = test.to(p)
			if test.lost {
				s.WaitFor("memcached starts cold")
				all = map[string]drainertest.Object{}
			} else {
				s.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			}
			drainertest.ExpectGenerations(t, p.volume)
			drainertest.Store(t, s.Address(), map[string]drainertest.Object{key: {Value: []byte("newer")}})
			all[key] = drainertest.Object{Value: []byte("newer")}
			s.End("saved")
			s = test.to(p)
			drainertest.Check(t, "gomemcache", []string{s.Address()}, all)
			s.End("saved")
			_, addresses := drainertest.Survivors(t, 1)
			m := drainertest.DrainArgs(t, p.volume, addresses)
			if r := drainertest.Drain(t, m); r.Receipt.AddsUp("the-claim") != nil {
				t.Errorf("%+v; %s", r.Receipt, r.Err)
			}
			drainertest.Check(t, m.Client, addresses, all)
		})
	}
}

// Items that are replayed from a mapped file into memory are lost with the pod, and not served again.
func TestMappedFileIsOutdatedInMemory(t *testing.T) {
	tier.Second(t, "TestOutdatedSaveIsNeverServed")
	t.Parallel()
	p := newPod(t)
	s := drainertest.Serve(t, p.volume, "-m", "128")
	drainertest.Store(t, s.Address(), drainertest.Objects(79, 1000))
	s.Settle(1000)
	s.End("saved")
	for range 2 { // in the same pod, which continues
		s = p.start(stallAt+"500", "-m", "128")
		s.WaitFor("stalled before item")
		s.End("killed")
	}
	_, addresses := drainertest.Survivors(t, 1)
	if r := drainertest.Drain(t, drainertest.DrainArgs(t, p.volume, addresses)); r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "SaveOutdated" {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	s = p.nextPod().start("", "-m", "128")
	s.WaitFor("memcached starts cold")
	if n := s.Memcached().Items(t); n != 0 {
		t.Errorf("%d items came back", n)
	}
	s.End("saved")
	p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
}

// unfinishedSave is the name of a save that is being written.
const unfinishedSave = contract.SaveFile + ".new"
