package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// TestADrainPutsEveryItemWhereItsClientLooks is the drainer's promise. After a drain, every object is where
// its client looks, with its value, flags and time. The survivors still have what they had before, the volume
// has not changed, and the receipt adds up.
func TestADrainPutsEveryItemWhereItsClientLooks(t *testing.T) {
	t.Parallel()
	first := map[string]string{"saved": "libmemcached-ketama-weighted", "killed": "gomemcache"}
	for _, how := range []string{"saved", "killed"} {
		for _, client := range routing.Clients() {
			t.Run(how+", "+client, func(t *testing.T) {
				if client != first[how] {
					tier.Second(t, "TestADrainPutsEveryItemWhereItsClientLooks")
				}
				t.Parallel()
				all := drainertest.Objects(1, 1000)
				dir := drainertest.Leaving(t, how, all)
				servers, addresses := drainertest.Survivors(t, 3)
				theirs := map[string]drainertest.Object{}
				for key := range all {
					if len(theirs) == 100 {
						break
					}
					theirs[key] = drainertest.Object{Value: []byte("newer"), Flags: 99}
				}
				for _, s := range servers {
					drainertest.Store(t, s.Address(), theirs)
				}
				before := drainertest.Fingerprint(t, dir)
				m := drainertest.DrainArgs(t, dir, addresses)
				m.Client = client
				r := drainertest.Drain(t, m)
				if r.Code != 0 {
					t.Fatalf("exit code %d: %s", r.Code, r.Err)
				}
				for key, o := range theirs {
					all[key] = o
				}
				drainertest.Check(t, client, addresses, all)
				if err := r.Receipt.AddsUp("the-claim"); err != nil {
					t.Error(err)
				}
				want := contract.Outcomes{Added: 900, AlreadyPresent: 100}
				if r.Receipt.Outcomes != want || r.Receipt.Clean != (how == "saved") || r.Receipt.SourceVersion == "" {
					t.Errorf("receipt %+v, want %+v", r.Receipt, want)
				}
				again := drainertest.Drain(t, m)
				if want := (contract.Outcomes{AlreadyPresent: 1000}); again.Receipt.Outcomes != want || again.Code != 0 {
					t.Errorf("second run: %+v, want %+v", again.Receipt.Outcomes, want)
				}
				if drainertest.Fingerprint(t, dir) != before {
					t.Error("the released volume has changed")
				}
			})
		}
	}
}

func TestExpiredAndInvalidatedItemsAreCountedAndDontMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := drainertest.Serve(t, dir, "-o", "no_lru_crawler,no_lru_maintainer")
	server := memcachedtest.Start(t)
	raw := s.Memcached().RawFor(t)
	for i := range 10 {
		raw.Must("STORED", "set live"+strconv.Itoa(i)+" 0 0 1", []byte("v"))
		raw.Must("STORED", "set short"+strconv.Itoa(i)+" 0 0 1", []byte("v"))
		raw.Must("STORED", "set stale"+strconv.Itoa(i)+" 0 0 1", []byte("v"))
		raw.Must("HD", "md stale"+strconv.Itoa(i)+" I", nil)
		raw.Do("mg vivified"+strconv.Itoa(i)+" s N1000", nil)
	}
	for i := range 10 { // no item is stored any more: memcached would take the place of an expired one
		raw.Must("HD", "mg short"+strconv.Itoa(i)+" T1", nil)
	}
	wait.For(t, "an item to expire", func() error {
		if got := raw.Do("mg short0 s", nil); got != "EN" {
			return fmt.Errorf("it answers %q", got)
		}
		return nil
	})
	s.Memcached().WaitSecond(t) // until the clients' items have expired, too
	s.End("saved")
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, []string{server.Address()}))
	want := contract.Outcomes{Added: 10, Expired: 9, Invalidated: 20} // short0 expired when it was read
	if r.Receipt.Outcomes != want || r.Code != 0 {
		t.Errorf("%+v, want %+v; %s", r.Receipt, want, r.Err)
	}
	if n := server.Items(t); n != 10 {
		t.Errorf("the survivor holds %d items, want 10", n)
	}
}

// stalled starts a drain in a process of its own. The drain can't end, because one of two survivors takes
// only some of its items until goOn is called.
func stalled(t *testing.T) (m contract.Drain, p *drainertest.Process, goOn func(), all map[string]drainertest.Object) {
	t.Helper()
	const takes = 200 << 10
	all = map[string]drainertest.Object{}
	for i := range 3000 {
		all["key"+strconv.Itoa(i)] = drainertest.Object{Value: make([]byte, 1000)}
	}
	dir := drainertest.Leaving(t, "saved", all)
	_, addresses := drainertest.Survivors(t, 2)
	var sent atomic.Int64
	hangs, resumed, once := make(chan bool), make(chan bool), sync.Once{}
	addresses[1] = memcachedtest.Between(t, addresses[1], func(piece []byte) bool {
		if sent.Add(int64(len(piece))) > takes {
			once.Do(func() { close(hangs) })
			<-resumed
		}
		return true
	})
	goOn = sync.OnceFunc(func() { close(resumed) })
	t.Cleanup(goOn)
	m = drainertest.DrainArgs(t, dir, addresses)
	p = drainertest.Start(t, m.Args()...)
	p.WaitFor(`"phase":"Adding"`)
	wait.Receive(t, "a survivor to have got some items", hangs)
	return m, p, goOn, all
}

// A drain that is killed and started again puts every item in place and counts it once.
func TestADrainThatIsKilledCountsEveryItemOnce(t *testing.T) {
	t.Parallel()
	m, p, goOn, all := stalled(t)
	p.Signal(syscall.SIGKILL)
	p.Wait()
	if _, err := os.Stat(m.Receipt); err == nil {
		t.Error("a killed drainer left a receipt")
	}
	goOn()
	r := drainertest.Drain(t, m)
	if err := r.Receipt.AddsUp("the-claim"); err != nil || r.Receipt.Found != int64(len(all)) {
		t.Errorf("%v: %+v", err, r.Receipt)
	}
	drainertest.Check(t, m.Client, m.Servers, all)
}

// SIGTERM ends a drain quickly, with a receipt that says that the drain isn't complete.
func TestADrainThatIsStoppedSaysThatItIsIncomplete(t *testing.T) {
	tier.Second(t, "TestADrainThatIsKilledCountsEveryItemOnce")
	t.Parallel()
	m, p, goOn, all := stalled(t)
	if strings.Contains(p.Out.String(), `"phase":"Done"`) {
		t.Fatal("the drain was over before it could be stopped")
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, p.Err.String())
	}
	r := drainertest.ReadReceipt(t, m.Receipt)
	if r.Reason != "Interrupted" || r.AddsUp("the-claim") == nil || r.ExitCode != contract.ExitFailed {
		t.Errorf("receipt %+v", r)
	}
	goOn()
	if again := drainertest.Drain(t, m); again.Code != 0 {
		t.Errorf("the next attempt: %s", again.Err)
	}
	drainertest.Check(t, m.Client, m.Servers, all)
}

// The exit code is 4, and a line of the log names the survivor.
func TestADrainNamesTheSurvivorThatItCantReach(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(2, 10)
	dir := drainertest.Leaving(t, "saved", all)
	_, addresses := drainertest.Survivors(t, 1)
	unreachable := "127.0.0.1:" + strconv.Itoa(memcachedtest.FreePort(t))
	m := drainertest.DrainArgs(t, dir, append(addresses, unreachable))
	var r drainertest.Result
	wait.AtSomeSpeed(t, 3*time.Second, func(rest time.Duration) error { // which also bounds connecting to the other one
		m.UnreachableTimeout = rest
		if r = drainertest.Drain(t, m); strings.Contains(r.Err, "waiting for survivor "+addresses[0]) {
			return errors.New(r.Err)
		}
		return nil
	})
	r.OneLine(t, unreachable, fmt.Sprintf("does not answer for %s", m.UnreachableTimeout))
	if r.Code != contract.ExitUnreachable || r.Receipt.Reason != "SurvivorUnreachable" || r.Receipt.AddsUp("the-claim") == nil {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	if !strings.Contains(r.Out, "waiting for "+unreachable) {
		t.Errorf("progress does not say who is waited for: %s", r.Out)
	}
}

// The receipt counts the items that a survivor can't store, and the drain fails.
func TestItemsThatASurvivorCantStoreKeepADrainFromBeingDone(t *testing.T) {
	t.Parallel()
	all := map[string]drainertest.Object{"small": {Value: []byte("v")}, "large": {Value: make([]byte, 900<<10)}}
	dir := drainertest.Leaving(t, "saved", all)
	_, addresses := drainertest.Survivors(t, 1, "-I", "512k")
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
	r.OneLine(t, "1 of 2 items were rejected", "item size limit")
	if r.Code != contract.ExitRejected || r.Receipt.Added != 1 || r.Receipt.Rejected != 1 || !r.Receipt.Complete || r.Receipt.AddsUp("the-claim") == nil {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
}

// The receipt tells that a survivor is too small.
func TestEvictionsAreReported(t *testing.T) {
	t.Parallel()
	all := map[string]drainertest.Object{}
	for i := range 3000 {
		all["key"+strconv.Itoa(i)] = drainertest.Object{Value: make([]byte, 10000)}
	}
	dir := drainertest.Leaving(t, "saved", all)
	_, addresses := drainertest.Survivors(t, 1, "-m", "16")
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
	if r.Code != 0 || r.Receipt.Survivors[0].Evictions < 1000 {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
}

// A volume that can't be read gives exit code 3 and a reason. Such a volume never counts as an empty cache
// that was drained.
func TestAVolumeThatCantBeReadIsNeverDrained(t *testing.T) {
	t.Parallel()
	saved := t.TempDir() // small, because the test copies it
	s := drainertest.Serve(t, saved, "-m", "40")
	for i := range 100 {
		s.Memcached().RawFor(t).Must("STORED", fmt.Sprintf("set key%d 0 0 1", i), []byte("v"))
	}
	s.End("saved")
	_, addresses := drainertest.Survivors(t, 1)
	tests := map[string]struct {
		change func(dir string) error
		want   warmfile.Reason
	}{
		"garbage": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, contract.WarmFile), []byte(strings.Repeat("garbage!", 40<<20/8)), 0o600)
		}, warmfile.ReasonCorrupt}, // memcached has no such slab class
		"truncated": {func(dir string) error {
			return os.Truncate(filepath.Join(dir, contract.WarmFile), 1<<20)
		}, warmfile.ReasonTruncated},
		"empty file": {func(dir string) error {
			return os.Truncate(filepath.Join(dir, contract.WarmFile), 0)
		}, warmfile.ReasonTruncated},
		"no file": {func(dir string) error {
			return os.Remove(filepath.Join(dir, contract.WarmFile))
		}, warmfile.ReasonMissing},
		"nothing that speaks for it": {func(dir string) error {
			_ = os.Remove(filepath.Join(dir, contract.MetaFile))
			return os.Remove(filepath.Join(dir, contract.Manifest))
		}, warmfile.ReasonNoEvidence},
		"killed on a node that restarted": {func(dir string) error {
			m, err := volume.ReadManifest(dir)
			if err != nil {
				return err
			}
			m.State, m.BootID = volume.Running, "another boot"
			b, err := m.Marshal()
			if err != nil {
				return err
			}
			_ = os.Remove(filepath.Join(dir, contract.MetaFile))
			return os.WriteFile(filepath.Join(dir, contract.Manifest), b, 0o600)
		}, warmfile.ReasonNodeRestarted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
			r.OneLine(t, "can't be read")
			if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != string(test.want) || r.Receipt.Complete || r.Receipt.AddsUp("the-claim") == nil {
				t.Errorf("exit code %d, %+v; want reason %s", r.Code, r.Receipt, test.want)
			}
		})
	}
}

// A member may leave before its memcached first answers. The manifest of its start and the file prove that
// its volume is empty. If the member never started, the operator knows it. Without either proof, an empty
// volume stays unreadable.
func TestAVolumeIsEmptyOnlyWithAProof(t *testing.T) {
	t.Parallel()
	_, addresses := drainertest.Survivors(t, 1)
	starting := func(change func(*volume.Manifest)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			m := volume.Manifest{State: volume.Starting, Fresh: true, BootID: volume.BootID(), Arguments: []string{"memcached"}}
			change(&m)
			b, err := m.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, contract.Manifest), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	asWritten := starting(func(*volume.Manifest) {})
	began := func(store bool) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			asWritten(t, dir)
			m := memcachedtest.Start(t, memcachedtest.FewPages("-e", filepath.Join(dir, contract.WarmFile))...)
			if store {
				m.RawFor(t).Must("STORED", "set k 0 0 1", []byte("v"))
			}
			m.Kill()
		}
	}
	otherBoot := starting(func(m *volume.Manifest) { m.BootID = "another boot" })
	with := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, test := range map[string]struct {
		volume       func(t *testing.T, dir string)
		neverStarted bool
		want         warmfile.Reason // "" for a complete receipt
	}{
		"killed before memcached was started":     {asWritten, false, ""},
		"killed before memcached answered":        {began(false), false, ""},
		"a client was faster":                     {began(true), false, warmfile.ReasonNoEvidence},
		"in another boot of the node":             {otherBoot, false, warmfile.ReasonMissing},
		"there was a warm file":                   {starting(func(m *volume.Manifest) { m.Fresh = false }), false, warmfile.ReasonMissing},
		"nothing that speaks for it":              {with(), false, warmfile.ReasonMissing},
		"never started":                           {with(), true, ""},
		"never started, on a file system":         {with("lost+found", contract.LockFile), true, ""},
		"never started, and other files":          {with("backup"), true, warmfile.ReasonMissing},
		"started since, and a client was faster":  {began(true), true, warmfile.ReasonNoEvidence},
		"started since, in another boot":          {otherBoot, true, warmfile.ReasonMissing},
		"started since, memcached never answered": {began(false), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.volume(t, dir)
			m := drainertest.DrainArgs(t, dir, addresses)
			m.NeverStarted = test.neverStarted
			r := drainertest.Drain(t, m)
			proven := r.Receipt.AddsUp("the-claim") == nil && r.Code == contract.ExitOK
			if proven != (test.want == "") || r.Receipt.Reason != string(test.want) || r.Receipt.Found != 0 {
				t.Errorf("exit code %d, %+v; want reason %q", r.Code, r.Receipt, test.want)
			}
		})
	}
}

func TestTheReceiptsFileIsWrittenInPlace(t *testing.T) {
	t.Parallel()
	dir := drainertest.Leaving(t, "saved", drainertest.Objects(4, 10))
	_, addresses := drainertest.Survivors(t, 1)
	m := drainertest.DrainArgs(t, dir, addresses)
	if err := os.WriteFile(m.Receipt, []byte(strings.Repeat("old ", 5000)), 0o666); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(m.Receipt)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	drainertest.Drain(t, m)
	b := make([]byte, 64<<10)
	n, _ := held.Read(b)
	if _, err := contract.ParseReceipt(string(b[:n])); err != nil || n > contract.MaxReceiptBytes {
		t.Errorf("the file that was there holds %d bytes: %v", n, err)
	}
	m.Receipt = filepath.Join(t.TempDir(), "no", "such", "directory")
	if r := drainertest.RunMain(t, m.Args()...); r.Code != contract.ExitFailed {
		t.Errorf("exit code %d without a place for the receipt", r.Code)
	}
}

// Standard output has only JSON lines, the phases are in order, and the counts only grow.
func TestProgressIsJSONAndOnlyGrows(t *testing.T) {
	t.Parallel()
	dir := drainertest.Leaving(t, "saved", drainertest.Objects(5, 1000))
	_, addresses := drainertest.Survivors(t, 2)
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
	var phases []string
	var last contract.Progress
	for line := range strings.Lines(r.Out) {
		var p contract.Progress
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(phases) == 0 || phases[len(phases)-1] != string(p.Phase) {
			phases = append(phases, string(p.Phase))
		}
		if p.ItemsDone < last.ItemsDone || p.BytesDone < last.BytesDone {
			t.Errorf("%+v after %+v", p, last)
		}
		if p.Phase == last.Phase && p.Seconds <= last.Seconds {
			t.Errorf("%s for %f s after %f s", p.Phase, p.Seconds, last.Seconds)
		}
		last = p
	}
	if got := strings.Join(phases, " "); got != "Connecting Adding Done" {
		t.Errorf("phases %s", got)
	}
	if last.ItemsDone != 1000 || last.ItemsTotal != 1000 || last.BytesDone != last.BytesTotal || last.BytesTotal != 128<<20 {
		t.Errorf("the last line is %+v", last)
	}
}
