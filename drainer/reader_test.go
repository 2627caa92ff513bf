package drainer

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/restart"
)

// withReader is m with another reader, and scratch space for it.
func withReader(t *testing.T, m contract.Migrate, reader string) contract.Migrate {
	t.Helper()
	m.Reader, m.Scratch = reader, t.TempDir()
	t.Cleanup(func() {
		if left, _ := os.ReadDir(m.Scratch); len(left) > 0 {
			t.Errorf("left in the scratch space: %v", left)
		}
	})
	return m
}

// TestDrainByRestart: the same promise as TestDrain, through a memcached that is
// started on a copy.
func TestDrainByRestart(t *testing.T) {
	t.Parallel()
	all := objects(40, 2000)
	dir := leaving(t, "saved", all)
	_, addresses := survivors(t, 2)
	before := fingerprint(t, dir)
	m := withReader(t, migrateArgs(t, dir, addresses), contract.ReaderRestart)
	r := migrate(t, m)
	if err := r.receipt.AddsUp("the-claim"); err != nil || r.receipt.Added != 2000 || r.receipt.Reader != "Restart" || !r.receipt.Clean {
		t.Errorf("%v: %+v; %s", err, r.receipt, r.err)
	}
	check(t, m.Client, addresses, all)
	if fingerprint(t, dir) != before {
		t.Error("the released volume has changed")
	}
}

// TestRestartNeedsASave: a member that crashed is not for the restart reader.
func TestRestartNeedsASave(t *testing.T) {
	t.Parallel()
	dir := leaving(t, "killed", objects(41, 100))
	_, addresses := survivors(t, 1)
	r := migrate(t, withReader(t, migrateArgs(t, dir, addresses), contract.ReaderRestart))
	r.oneLine(t, "only a file that it has saved")
	if r.code != contract.ExitUnrecoverable || r.receipt.Complete {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
}

// TestUnknownLayout: a file with something in it that the direct reader doesn't
// know, but memcached does. WarmFile refuses it, Auto asks memcached.
func TestUnknownLayout(t *testing.T) {
	t.Parallel()
	all := objects(42, 1000)
	dir := leaving(t, "saved", all)
	var some string
	for some = range all {
		if !strings.ContainsAny(some, "\x00") {
			break
		}
	}
	setUnknownFlag(t, filepath.Join(dir, contract.WarmFile), some)
	_, addresses := survivors(t, 2)
	m := migrateArgs(t, dir, addresses)
	for _, refuse := range []contract.Migrate{withReader(t, m, contract.ReaderWarmFile), m} {
		r := migrate(t, refuse) // the second one has no scratch space
		if r.code != contract.ExitUnrecoverable || r.receipt.Reason != "UnknownLayout" || r.receipt.AddsUp("the-claim") == nil {
			t.Errorf("exit code %d, %+v", r.code, r.receipt)
		}
	}
	r := migrate(t, withReader(t, m, contract.ReaderAuto))
	if err := r.receipt.AddsUp("the-claim"); err != nil || r.receipt.Found != 1000 || r.receipt.Reader != "Restart" {
		t.Errorf("%v: %+v; %s", err, r.receipt, r.err)
	}
	check(t, m.Client, addresses, all)
}

// setUnknownFlag sets, in the item of the key, a flag that means nothing to
// memcached.
func setUnknownFlag(t *testing.T, path, key string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const header, cas, flags, keyLength = 48, 8, 38, 41
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte(key))
		if i < 0 {
			t.Fatalf("%q is not in the file", key)
		}
		at += i + 1
		slot := at - 1 - header - cas
		if slot >= 0 && int(data[slot+keyLength]) == len(key) && data[slot+flags]&1 != 0 {
			data[slot+flags+1] |= 0x20
			break
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSkipExpiringWithin: what expires so soon stays behind, counted.
func TestSkipExpiringWithin(t *testing.T) {
	t.Parallel()
	all := map[string]object{}
	for i := range 30 {
		all["key"+strconv.Itoa(i)] = object{value: []byte("v"), ttl: []int64{0, 3000, 9000}[i%3]}
	}
	dir := leaving(t, "saved", all)
	servers, addresses := survivors(t, 1)
	m := migrateArgs(t, dir, addresses)
	m.SkipExpiringWithin = 2 * time.Hour
	r := migrate(t, m)
	if want := (contract.Outcomes{Added: 20, Expired: 10}); r.receipt.Outcomes != want || r.receipt.AddsUp("the-claim") != nil {
		t.Errorf("%+v, want %+v; %s", r.receipt, want, r.err)
	}
	if n := servers[0].Items(t); n != 20 {
		t.Errorf("the survivor holds %d items", n)
	}
}

// TestRateLimit: a drain takes at least the time that its limit asks for, and
// what it may send by then is sent, not held back.
func TestRateLimit(t *testing.T) {
	all := map[string]object{}
	for i := range 60 {
		all["key"+strconv.Itoa(i)] = object{value: make([]byte, 1000)}
	}
	for name, limit := range map[string]func(m *contract.Migrate){
		"items": func(m *contract.Migrate) { m.RateLimitItems = 60 },
		"bytes": func(m *contract.Migrate) { m.RateLimitBytes = 60 * 1004 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := leaving(t, "saved", all)
			_, addresses := survivors(t, 2)
			m := migrateArgs(t, dir, addresses)
			limit(&m)
			r := migrate(t, m)
			if r.receipt.Added != 60 || r.receipt.AddsUp("the-claim") != nil {
				t.Errorf("%+v; %s", r.receipt, r.err)
			}
			if took := r.receipt.Seconds[contract.PhaseMoving]; took < 0.8 {
				t.Errorf("60 items at 60 a second in %.2f s", took)
			}
			check(t, m.Client, addresses, all)
		})
	}
}

// TestPace: in no second does more go than the limit and a burst.
func TestPace(t *testing.T) {
	for _, limit := range []Limit{{Items: 1000}, {Bytes: 100000}, {Items: 1000, Bytes: 100000}, {Items: 7}} {
		p, r := newPace(limit), rand.New(rand.NewPCG(1, 2))
		now := time.Unix(1000, 0)
		type sent struct {
			at   time.Time
			size int
		}
		var all []sent
		for range 3000 {
			size := 1 + r.IntN(300)
			now = now.Add(p.next(now, size))
			all = append(all, sent{now, size})
			if r.IntN(500) == 0 {
				now = now.Add(3 * time.Second) // idle: not made up for
			}
		}
		for from, items, bytes, to := 0, 0, 0, 0; from < len(all); from++ {
			for ; to < len(all) && all[to].at.Sub(all[from].at) < time.Second; to++ {
				items, bytes = items+1, bytes+all[to].size
			}
			burst := 1 + paceBurst.Seconds()
			if limit.Items > 0 && float64(items) > float64(limit.Items)*burst+2 || limit.Bytes > 0 && float64(bytes) > float64(limit.Bytes)*burst+600 {
				t.Fatalf("%+v: %d items and %d bytes in a second", limit, items, bytes)
			}
			items, bytes = items-1, bytes-all[from].size
		}
		if limit.Items == 1000 && limit.Bytes == 0 && now.Sub(time.Unix(1000, 0)) > 30*time.Second {
			t.Errorf("%+v: 3000 items took %v", limit, now.Sub(time.Unix(1000, 0)))
		}
	}
	if wait := newPace(Limit{}).next(time.Now(), 1<<30); wait != 0 {
		t.Errorf("without a limit: %v", wait)
	}
}

// TestScratchTooSmall is told as something that a retry can mend: the volume is
// sound.
func TestScratchTooSmall(t *testing.T) {
	r := newReceipt("")
	failReceipt(&r, &restart.RoomError{Directory: "/scratch", Need: 9 << 20, Free: 7 << 20})
	if r.ExitCode != contract.ExitFailed || r.Reason != "ScratchTooSmall" || !strings.Contains(r.Message, "7 MiB are free") {
		t.Errorf("%+v", r)
	}
}
