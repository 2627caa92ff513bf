package drainer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

func base64Of(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }

// leaving is the volume of a member that has left with objects on it.
func leaving(t *testing.T, how string, all map[string]object) string {
	t.Helper()
	dir := t.TempDir()
	s := serve(t, dir, "-m", "128")
	store(t, s.address(), all)
	if how == "killed" {
		s.settle(len(all))
	}
	s.end(how)
	return dir
}

// TestDrain is the drainer's promise: after it, every object is where its
// client looks, with its value, flags and time; what the survivors held before
// is as it was; the volume is as it was; and the receipt adds up.
func TestDrain(t *testing.T) {
	for _, how := range []string{"saved", "killed"} {
		for _, client := range routing.Clients() {
			t.Run(how+", "+client, func(t *testing.T) {
				t.Parallel()
				all := objects(1, 3000)
				dir := leaving(t, how, all)
				servers, addresses := survivors(t, 3)
				theirs := map[string]object{}
				for key := range all {
					if len(theirs) == 100 {
						break
					}
					theirs[key] = object{value: []byte("newer"), flags: 99}
				}
				for _, s := range servers {
					store(t, s.Address(), theirs)
				}
				before := fingerprint(t, dir)
				m := migrateArgs(t, dir, addresses)
				m.Client = client
				r := migrate(t, m)
				if r.code != 0 {
					t.Fatalf("exit code %d: %s", r.code, r.err)
				}
				for key, o := range theirs {
					all[key] = o
				}
				check(t, client, addresses, all)
				if err := r.receipt.AddsUp("the-claim"); err != nil {
					t.Error(err)
				}
				want := contract.Outcomes{Added: 2900, AlreadyPresent: 100}
				if r.receipt.Outcomes != want || r.receipt.Clean != (how == "saved") || r.receipt.SourceVersion == "" {
					t.Errorf("receipt %+v, want %+v", r.receipt, want)
				}
				again := migrate(t, m)
				if want := (contract.Outcomes{AlreadyPresent: 3000}); again.receipt.Outcomes != want || again.code != 0 {
					t.Errorf("second run: %+v, want %+v", again.receipt.Outcomes, want)
				}
				if fingerprint(t, dir) != before {
					t.Error("the released volume has changed")
				}
			})
		}
	}
}

// TestOutcomes: expired and invalidated items are counted, and don't move.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "-o", "no_lru_crawler")
	server := memcachedtest.Start(t)
	raw := (&memcachedtest.Server{Port: s.port}).RawFor(t)
	for i := range 10 {
		raw.Must("STORED", "set live"+strconv.Itoa(i)+" 0 0 1", []byte("v"))
		raw.Must("STORED", "set short"+strconv.Itoa(i)+" 0 1 1", []byte("v"))
		raw.Must("STORED", "set stale"+strconv.Itoa(i)+" 0 0 1", []byte("v"))
		raw.Must("HD", "md stale"+strconv.Itoa(i)+" I", nil)
		raw.Do("mg vivified"+strconv.Itoa(i)+" s N1000", nil)
	}
	memcachedtest.WaitFor(t, "an item to expire", func() error {
		if got := raw.Do("mg short0 s", nil); got != "EN" {
			return fmt.Errorf("it answers %q", got)
		}
		return nil
	})
	s.end("saved")
	r := migrate(t, migrateArgs(t, dir, []string{server.Address()}))
	want := contract.Outcomes{Added: 10, Expired: 9, Invalidated: 20} // short0 went when it was asked for
	if r.receipt.Outcomes != want || r.code != 0 {
		t.Errorf("%+v, want %+v; %s", r.receipt, want, r.err)
	}
	if n := server.Items(t); n != 10 {
		t.Errorf("the survivor holds %d items, want 10", n)
	}
}

// hooked is a source that calls do before its n-th item.
type hooked struct {
	Source
	n  int
	do func()
}

func (h *hooked) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		n := 0
		for it, err := range h.Source.Items(ctx) {
			if n++; n == h.n {
				h.do()
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// TestSurvivorRestarts: a survivor that dies in the middle and comes back,
// empty, gets the rest, and every item is counted once.
func TestSurvivorRestarts(t *testing.T) {
	t.Parallel()
	const n = 50000
	all := map[string]object{}
	for i := range n {
		all["key"+strconv.Itoa(i)] = object{value: []byte("0123456789")}
	}
	dir := leaving(t, "saved", all)
	servers, addresses := survivors(t, 2)
	source, err := warmfile.Open(dir, warmfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	owner, err := routing.New("gomemcache", mustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	var lines buffer
	m := Migration{SourceID: "the-claim", Owner: owner, Servers: mustParse(t, addresses), Log: &lines,
		UnreachableTimeout: memcachedtest.Patience,
		Source: &hooked{source, n / 2, func() {
			servers[1].Kill()
			time.AfterFunc(300*time.Millisecond, servers[1].Restart)
		}}}
	r := m.Run(t.Context())
	if err := r.AddsUp("the-claim"); err != nil || r.Found != n || r.Added+r.AlreadyPresent != n {
		t.Errorf("%v: %+v", err, r)
	}
	if got := lines.String(); !strings.Contains(got, "waiting for survivor "+addresses[1]) || !strings.Contains(got, "answers again") {
		t.Errorf("people were told %q", got)
	}
	if n := servers[0].Items(t); n != r.Survivors[0].Added {
		t.Errorf("the survivor that lived holds %d items, %d were added", n, r.Survivors[0].Added)
	}
}

// stalled starts a drain in a process of its own that can't end, because one
// of two survivors hangs.
func stalled(t *testing.T) (m contract.Migrate, p *process, hung *memcachedtest.Server, all map[string]object) {
	t.Helper()
	all = map[string]object{}
	for i := range 40000 {
		all["key"+strconv.Itoa(i)] = object{value: make([]byte, 1000)}
	}
	dir := leaving(t, "saved", all)
	servers, addresses := survivors(t, 2)
	m = migrateArgs(t, dir, addresses)
	p = start(t, m.Args()...)
	p.waitFor(`"phase":"Moving"`)
	servers[1].Signal(syscall.SIGSTOP)
	return m, p, servers[1], all
}

// TestDrainerKilled: a drain that is killed and started again ends with every
// item in place and counted once.
func TestDrainerKilled(t *testing.T) {
	t.Parallel()
	m, p, hung, all := stalled(t)
	p.signal(syscall.SIGKILL)
	p.wait()
	if _, err := os.Stat(m.Receipt); err == nil {
		t.Error("a killed drainer left a receipt")
	}
	hung.Signal(syscall.SIGCONT)
	r := migrate(t, m)
	if err := r.receipt.AddsUp("the-claim"); err != nil || r.receipt.Found != int64(len(all)) {
		t.Errorf("%v: %+v", err, r.receipt)
	}
	check(t, m.Client, m.Servers, all)
}

// TestDrainerStopped: SIGTERM ends a drain quickly, with a receipt that says
// that it isn't complete.
func TestDrainerStopped(t *testing.T) {
	t.Parallel()
	m, p, hung, all := stalled(t)
	if strings.Contains(p.out.String(), `"phase":"Done"`) {
		t.Fatal("the drain was over before it could be stopped")
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	r := readReceipt(t, m.Receipt)
	if r.Reason != "Interrupted" || r.AddsUp("the-claim") == nil || r.ExitCode != contract.ExitFailed {
		t.Errorf("receipt %+v", r)
	}
	hung.Signal(syscall.SIGCONT)
	if again := migrate(t, m); again.code != 0 {
		t.Errorf("the next attempt: %s", again.err)
	}
	check(t, m.Client, m.Servers, all)
}

// TestUnreachableSurvivor: exit code 4, and a line that names it.
func TestUnreachableSurvivor(t *testing.T) {
	t.Parallel()
	all := objects(2, 10)
	dir := leaving(t, "saved", all)
	_, addresses := survivors(t, 1)
	nobody := "127.0.0.1:" + strconv.Itoa(memcachedtest.FreePort(t))
	m := migrateArgs(t, dir, append(addresses, nobody))
	m.UnreachableTimeout = time.Second
	r := migrate(t, m)
	r.oneLine(t, nobody, "does not answer for 1s")
	if r.code != contract.ExitUnreachable || r.receipt.Reason != "SurvivorUnreachable" || r.receipt.AddsUp("the-claim") == nil {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
	if !strings.Contains(r.out, "waiting for "+nobody) {
		t.Errorf("progress does not say who is waited for: %s", r.out)
	}
}

// TestRejectedItems: what a survivor can't store is counted, told, and keeps
// the drain from counting as done.
func TestRejectedItems(t *testing.T) {
	t.Parallel()
	all := map[string]object{"small": {value: []byte("v")}, "large": {value: make([]byte, 900<<10)}}
	dir := leaving(t, "saved", all)
	_, addresses := survivors(t, 1, "-I", "512k")
	r := migrate(t, migrateArgs(t, dir, addresses))
	r.oneLine(t, "1 of 2 items were rejected", "item size limit")
	if r.code != contract.ExitRejected || r.receipt.Added != 1 || r.receipt.Rejected != 1 || !r.receipt.Complete || r.receipt.AddsUp("the-claim") == nil {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
}

// TestEvictionsAreReported: a survivor that is too small says so in the receipt.
func TestEvictionsAreReported(t *testing.T) {
	t.Parallel()
	all := map[string]object{}
	for i := range 8000 {
		all["key"+strconv.Itoa(i)] = object{value: make([]byte, 10000)}
	}
	dir := leaving(t, "saved", all)
	_, addresses := survivors(t, 1, "-m", "16")
	r := migrate(t, migrateArgs(t, dir, addresses))
	if r.code != 0 || r.receipt.Survivors[0].Evictions < 1000 {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
}

// TestBadSources: what can't be read is exit code 3 with a reason, never an
// empty cache that was drained.
func TestBadSources(t *testing.T) {
	t.Parallel()
	saved := leaving(t, "saved", objects(3, 500))
	_, addresses := survivors(t, 1)
	tests := map[string]struct {
		change func(dir string) error
		want   warmfile.Reason
	}{
		"garbage": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, contract.WarmFile), []byte(strings.Repeat("garbage!", 128<<20/8)), 0o600)
		}, warmfile.ReasonUnknownLayout},
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
			m, err := warmfile.ReadManifest(dir)
			if err != nil {
				return err
			}
			m.State, m.BootID = warmfile.Running, "another boot"
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
			r := migrate(t, migrateArgs(t, dir, addresses))
			r.oneLine(t, "can't be read")
			if r.code != contract.ExitUnrecoverable || r.receipt.Reason != string(test.want) || r.receipt.Complete || r.receipt.AddsUp("the-claim") == nil {
				t.Errorf("exit code %d, %+v; want reason %s", r.code, r.receipt, test.want)
			}
		})
	}
}

// TestUnusedVolume: a member that left before its memcached first answered leaves
// a volume that is proven empty, by the manifest of its start and by the file; one
// that never started left none, as the operator knows; and without either proof an
// empty volume stays unreadable.
func TestUnusedVolume(t *testing.T) {
	t.Parallel()
	_, addresses := survivors(t, 1)
	starting := func(change func(*warmfile.Manifest)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			m := warmfile.Manifest{State: warmfile.Starting, Fresh: true, BootID: warmfile.BootID(), Arguments: []string{"memcached"}}
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
	asWritten := starting(func(*warmfile.Manifest) {})
	began := func(store bool) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			asWritten(t, dir)
			m := memcachedtest.Start(t, "-e", filepath.Join(dir, contract.WarmFile))
			if store {
				m.RawFor(t).Must("STORED", "set k 0 0 1", []byte("v"))
			}
			m.Kill()
		}
	}
	otherBoot := starting(func(m *warmfile.Manifest) { m.BootID = "another boot" })
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
		"there was a warm file":                   {starting(func(m *warmfile.Manifest) { m.Fresh = false }), false, warmfile.ReasonMissing},
		"nothing that speaks for it":              {with(), false, warmfile.ReasonMissing},
		"never started":                           {with(), true, ""},
		"never started, on a file system":         {with("lost+found", contract.LockFile), true, ""},
		"never started, and somebody's files":     {with("backup"), true, warmfile.ReasonMissing},
		"started since, and a client was faster":  {began(true), true, warmfile.ReasonNoEvidence},
		"started since, in another boot":          {otherBoot, true, warmfile.ReasonMissing},
		"started since, memcached never answered": {began(false), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.volume(t, dir)
			m := migrateArgs(t, dir, addresses)
			m.NeverStarted = test.neverStarted
			r := migrate(t, m)
			proven := r.receipt.AddsUp("the-claim") == nil && r.code == contract.ExitOK
			if proven != (test.want == "") || r.receipt.Reason != string(test.want) || r.receipt.Found != 0 {
				t.Errorf("exit code %d, %+v; want reason %q", r.code, r.receipt, test.want)
			}
		})
	}
}

// TestReceiptFile: the file that the kubelet made is written in place.
func TestReceiptFile(t *testing.T) {
	t.Parallel()
	dir := leaving(t, "saved", objects(4, 10))
	_, addresses := survivors(t, 1)
	m := migrateArgs(t, dir, addresses)
	if err := os.WriteFile(m.Receipt, []byte(strings.Repeat("old ", 5000)), 0o666); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(m.Receipt)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	migrate(t, m)
	b := make([]byte, 64<<10)
	n, _ := held.Read(b)
	if _, err := contract.ParseReceipt(string(b[:n])); err != nil || n > contract.MaxReceiptBytes {
		t.Errorf("the file that was there holds %d bytes: %v", n, err)
	}
	m.Receipt = filepath.Join(t.TempDir(), "no", "such", "directory")
	if r := runMain(t, m.Args()...); r.code != contract.ExitFailed {
		t.Errorf("exit code %d without a place for the receipt", r.code)
	}
}

// TestProgressLines: only JSON on standard output, phases in their order, and
// counts that only grow.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	dir := leaving(t, "saved", objects(5, 1000))
	_, addresses := survivors(t, 2)
	r := migrate(t, migrateArgs(t, dir, addresses))
	var phases []string
	var last contract.Progress
	for line := range strings.Lines(r.out) {
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
	if got := strings.Join(phases, " "); got != "Connecting Moving Done" {
		t.Errorf("phases %s", got)
	}
	if last.ItemsDone != 1000 || last.ItemsTotal != 1000 || last.BytesDone != last.BytesTotal || last.BytesTotal != 128<<20 {
		t.Errorf("the last line is %+v", last)
	}
}
