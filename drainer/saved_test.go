package drainer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/warmfile"
)

// pod is a member of mode Saved: a volume that outlives it, and a directory in
// memory that doesn't.
type pod struct {
	t              *testing.T
	volume, memory string
}

func newPod(t *testing.T) *pod { return (&pod{t: t, volume: t.TempDir()}).again() }

// again is the next pod on the same volume.
func (p *pod) again() *pod { return &pod{p.t, p.volume, p.t.TempDir()} }

// savedPod is one that is gone, and has left a save of these.
func savedPod(t *testing.T, all map[string]object) *pod {
	t.Helper()
	p := newPod(t)
	s := p.start("", "-m", "128")
	store(t, s.address(), all)
	s.end("saved")
	return p
}

// start runs the pod's container, for the first time or after it ended.
func (p *pod) start(env string, args ...string) *served {
	p.t.Helper()
	c := memberArgs(contract.Connection{}, p.volume, memcachedtest.FreePort(p.t), args...)
	c.MemoryDir = p.memory
	return serveCommand(p.t, env, c)
}

func (p *pod) command(port int, args ...string) contract.Serve {
	return contract.Serve{Dir: p.volume, MemoryDir: p.memory, Port: int32(port), Command: args}
}

// expectFiles checks what lies on the volume.
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

// packed makes of a volume with a warm file one with its save.
func packed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := warmfile.Pack(t.Context(), dir, filepath.Join(to, contract.SaveFile), 1); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestSavedMemberRestartsWarm: the next pod has it all, and so has the one after
// that; the volume holds one save.
func TestSavedMemberRestartsWarm(t *testing.T) {
	t.Parallel()
	all := objects(70, 2000)
	p := savedPod(t, all)
	for round := range 2 {
		p = p.again()
		s := p.start("", "-m", "128")
		check(t, "gomemcache", []string{s.address()}, all)
		if said := s.err.String(); !strings.Contains(said, "the save is loaded") || strings.Contains(said, "replay") {
			t.Errorf("it said %s", said)
		}
		newer := map[string]object{"written in round " + strconv.Itoa(round): {value: []byte("v")}}
		store(t, s.address(), newer)
		for key, o := range newer {
			all[key] = o
		}
		s.end("saved")
	}
	p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
}

// TestSavedMemberReplays: what memcached would not take up comes back all the same,
// from the volume, so that there is never more than one file in memory.
func TestSavedMemberReplays(t *testing.T) {
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
			all := objects(71, 1000)
			p := newPod(t)
			s := p.start("", "-m", "128")
			store(t, s.address(), all)
			s.settle(len(all))
			if test.how == "crashed" {
				s.killMemcached()
			} else {
				s.end(test.how)
			}
			if !test.samePod {
				p = p.again()
			}
			args := test.args
			if args == nil {
				args = []string{"-m", "128"}
			}
			s = p.start("", args...)
			s.waitFor("replayed generation-1: 1000 items found: 1000 added")
			check(t, "gomemcache", []string{s.address()}, all)
			expectAside(t, p.volume)
			expectAside(t, p.memory)
			s.end("saved")
			s = p.again().start("", args...)
			check(t, "gomemcache", []string{s.address()}, all)
			s.end("saved")
		})
	}
}

// TestOutdatedSaveIsNeverServed: a pod that is lost without a save takes what
// clients wrote with it, and what it was started from is not served in its place,
// neither by the next pod nor by a drain. Both say so. A save that was cut short
// is none.
func TestOutdatedSaveIsNeverServed(t *testing.T) {
	for name, test := range map[string]struct {
		before bool // there was a save, and the member started from it
		args   []string
		cut    bool
	}{
		"the first pod":          {},
		"a pod that was warm":    {before: true},
		"a pod that replayed":    {before: true, args: []string{"-m", "160"}},
		"its save was cut short": {before: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			old, newer := objects(72, 500), map[string]object{}
			for key := range old {
				newer[key] = object{value: []byte("newer")}
			}
			if test.before {
				s := p.start("", "-m", "128")
				store(t, s.address(), old)
				s.end("saved")
				p = p.again()
			}
			args := append([]string{"-m", "128"}, test.args...)
			s := p.start("", args...)
			if test.args != nil {
				s.waitFor("replayed")
			}
			store(t, s.address(), newer)
			s.settle(len(newer))
			s.end("killed")
			if test.cut {
				b, err := os.ReadFile(filepath.Join(p.volume, contract.SaveFile))
				if err == nil {
					err = os.WriteFile(filepath.Join(p.volume, newSave), b[:len(b)/2], 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}

			_, addresses := survivors(t, 1)
			r := migrate(t, migrateArgs(t, p.volume, addresses))
			r.oneLine(t, "without", "save")
			if r.code != contract.ExitUnrecoverable || r.receipt.Reason != "SaveOutdated" || r.receipt.Found != 0 {
				t.Errorf("exit code %d, %+v", r.code, r.receipt)
			}
			r = migrate(t, withReader(t, migrateArgs(t, p.volume, addresses), contract.ReaderRestart))
			if r.code != contract.ExitUnrecoverable || r.receipt.Reason != "SaveOutdated" {
				t.Errorf("by a restart: exit code %d, %+v", r.code, r.receipt)
			}

			p = p.again()
			log := filepath.Join(t.TempDir(), "termination-log")
			install := contract.Install{To: t.TempDir(), Member: contract.Serve{Dir: p.volume, MemoryDir: p.memory, TerminationLog: log, Command: append([]string{"memcached"}, args...)}}
			if code := start(t, install.Args()...).wait(); code != 0 {
				t.Errorf("install: exit code %d", code)
			}
			if said, err := os.ReadFile(log); err != nil || contract.ParseColdStart(string(said)) == nil {
				t.Errorf("foretold was %q, %v", said, err)
			}
			s = p.start("", args...)
			s.waitFor("memcached starts cold")
			if n := (&memcachedtest.Server{Port: s.port}).Items(t); n != 0 {
				t.Errorf("%d items came back", n)
			}
			p.expectFiles(contract.InUse, contract.LockFile)
			store(t, s.address(), newer)
			s.end("saved")
			s = p.again().start("", args...)
			check(t, "gomemcache", []string{s.address()}, newer)
			s.end("saved")
		})
	}
}

// TestSavedMemberStopsWhileReplaying: what was replayed is in the save, the rest
// stays a generation; a drain and the next pod find both.
func TestSavedMemberStopsWhileReplaying(t *testing.T) {
	t.Parallel()
	all := objects(73, 3000)
	p := savedPod(t, all).again()
	s := p.start(stallAt+"2000", "-m", "160")
	s.waitFor("stalled before item")
	s.end("killed") // the container: the next one goes on
	s = p.start(stallAt+"2000", "-m", "160")
	s.waitFor("stalled before item")
	newer := map[string]object{"written while it replayed": {value: []byte("v")}}
	store(t, s.address(), newer)
	all["written while it replayed"] = newer["written while it replayed"]
	s.end("saved")
	_, addresses := survivors(t, 2)
	before := fingerprint(t, p.volume)
	m := migrateArgs(t, p.volume, addresses)
	if r := migrate(t, m); r.receipt.AddsUp("the-claim") != nil {
		t.Errorf("%+v; %s", r.receipt, r.err)
	}
	check(t, m.Client, addresses, all)
	if fingerprint(t, p.volume) != before {
		t.Error("the drain has changed the volume")
	}
	s = p.again().start("", "-m", "160")
	s.waitFor("replayed generation-1")
	check(t, "gomemcache", []string{s.address()}, all)
	s.end("saved")
}

// TestDrainOfASave: by both readers, which agree.
func TestDrainOfASave(t *testing.T) {
	t.Parallel()
	all := objects(74, 2000)
	p := savedPod(t, all)
	before := fingerprint(t, p.volume)
	for _, reader := range []string{contract.ReaderWarmFile, contract.ReaderRestart} {
		_, addresses := survivors(t, 2)
		m := withReader(t, migrateArgs(t, p.volume, addresses), reader)
		r := migrate(t, m)
		if err := r.receipt.AddsUp("the-claim"); err != nil || r.receipt.Added != 2000 || r.receipt.Reader != reader || !r.receipt.Clean {
			t.Errorf("%v: %+v; %s", err, r.receipt, r.err)
		}
		check(t, m.Client, addresses, all)
	}
	if fingerprint(t, p.volume) != before {
		t.Error("the drain has changed the volume")
	}
}

// TestDamagedSaveOfAMember: it is set aside for a drain, which refuses it, and the
// member serves.
func TestDamagedSaveOfAMember(t *testing.T) {
	t.Parallel()
	p := savedPod(t, objects(75, 500))
	f, err := os.OpenFile(filepath.Join(p.volume, contract.SaveFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), 5<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	_, addresses := survivors(t, 1)
	if r := migrate(t, migrateArgs(t, p.volume, addresses)); r.code != contract.ExitUnrecoverable || r.receipt.Reason != "WarmFileCorrupt" {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
	s := p.again().start("", "-m", "128")
	s.waitFor("for a drain to look at")
	expectAside(t, p.volume, "generation-1.failed")
	s.end("saved")
	if r := migrate(t, migrateArgs(t, p.volume, addresses)); r.code != contract.ExitUnrecoverable || r.receipt.Reason != "WarmFileCorrupt" {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
}

// TestSavedMemcachedEndsAtOnce: a memcached that doesn't start outdates nothing,
// with arguments that a save suits, and with others.
func TestSavedMemcachedEndsAtOnce(t *testing.T) {
	for name, args := range map[string][]string{"same": {"-m", "128", "-t", "nonsense"}, "others": {"-m", "128", "-I", "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(76, 500)
			p := savedPod(t, all).again()
			for range 2 {
				port := memcachedtest.FreePort(t)
				c := p.command(port, append(append([]string{"memcached"}, memcachedtest.Args(port)...), args...)...)
				if code := start(t, c.Args()...).wait(); code == 0 || code == contract.ExitUsage {
					t.Errorf("exit code %d", code)
				}
			}
			s := p.again().start("", "-m", "128")
			memcachedtest.WaitFor(t, "the items", func() error {
				if n := (&memcachedtest.Server{Port: s.port}).Items(t); n != 500 {
					return errors.New(strconv.FormatInt(n, 10) + " items")
				}
				return nil
			})
			check(t, "gomemcache", []string{s.address()}, all)
			s.end("saved")
		})
	}
}

// TestNoRoomForASave: it is foretold, and when it comes to it said; the save that
// was there has made room in vain, and is not served.
func TestNoRoomForASave(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	s := p.start(freeIs+"1000000", "-m", "128")
	store(t, s.address(), objects(77, 500))
	log, err := os.ReadFile(terminationLog(p.volume))
	if err != nil || contract.ParseColdStart(string(log)) == nil {
		t.Errorf("the termination message is %q, %v", log, err)
	}
	s.signal(15)
	if code := s.wait(); code != contract.ExitFailed || !strings.Contains(s.err.String(), "of room for a save of") {
		t.Errorf("exit code %d: %s", code, s.err.String())
	}
	p.expectFiles(contract.InUse, contract.LockFile)
}

// TestMemberOfTheOtherMode: on the volume that a member of a cluster of the same name
// has left, everything of that is there, and nothing twice or out of date afterwards.
func TestMemberOfTheOtherMode(t *testing.T) {
	memory := []string{"-m", "128"}
	mapped := func(p *pod) *served { return serve(p.t, p.volume, memory...) }
	saved := func(p *pod) *served { return p.again().start("", memory...) }
	for name, test := range map[string]struct {
		from, to func(*pod) *served
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
			p, all := newPod(t), objects(78, 1000)
			var key string
			for key = range all {
				break
			}
			s := test.from(p)
			store(t, s.address(), all)
			s.settle(len(all))
			s.end(test.how)

			s = test.to(p)
			if test.lost {
				s.waitFor("memcached starts cold")
				all = map[string]object{}
			} else {
				s.waitFor("replayed generation-1: 1000 items found: 1000 added")
			}
			expectAside(t, p.volume)
			store(t, s.address(), map[string]object{key: {value: []byte("newer")}})
			all[key] = object{value: []byte("newer")}
			s.end("saved")
			s = test.to(p)
			check(t, "gomemcache", []string{s.address()}, all)
			s.end("saved")
			_, addresses := survivors(t, 1)
			m := migrateArgs(t, p.volume, addresses)
			if r := migrate(t, m); r.receipt.AddsUp("the-claim") != nil {
				t.Errorf("%+v; %s", r.receipt, r.err)
			}
			check(t, m.Client, addresses, all)
		})
	}
}

// TestMappedFileIsOutdatedInMemory: what is replayed of it into memory is lost with
// the pod, and not served again.
func TestMappedFileIsOutdatedInMemory(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	s := serve(t, p.volume, "-m", "128")
	store(t, s.address(), objects(79, 1000))
	s.settle(1000)
	s.end("saved")
	for range 2 { // in one pod, which goes on
		s = p.start(stallAt+"500", "-m", "128")
		s.waitFor("stalled before item")
		s.end("killed")
	}
	_, addresses := survivors(t, 1)
	if r := migrate(t, migrateArgs(t, p.volume, addresses)); r.code != contract.ExitUnrecoverable || r.receipt.Reason != "SaveOutdated" {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
	s = p.again().start("", "-m", "128")
	s.waitFor("memcached starts cold")
	if n := (&memcachedtest.Server{Port: s.port}).Items(t); n != 0 {
		t.Errorf("%d items came back", n)
	}
	s.end("saved")
	p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
}
