package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/test/tier"
)

// A file with a flag that the reader doesn't know is refused, even with the options under which memcached
// itself once read it.
func TestAFileWithSomethingUnknownIsRefused(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(42, 1000)
	dir := t.TempDir()
	member := drainertest.Serve(t, dir, "-m", "64") // it is copied
	drainertest.Store(t, member.Address(), all)
	member.End("saved")
	var some string
	for some = range all {
		if !strings.ContainsAny(some, "\x00") {
			break
		}
	}
	setUnknownFlag(t, filepath.Join(dir, contract.WarmFile), some)
	_, addresses := drainertest.Survivors(t, 1)
	m := drainertest.DrainArgs(t, dir, addresses)
	r := drainertest.RunMain(t, m.Args()...)
	receipt := drainertest.ReadReceipt(t, m.Receipt)
	if r.Code != contract.ExitUnrecoverable || receipt.Reason != "UnknownLayout" || receipt.AddsUp("the-claim") == nil {
		t.Errorf("exit code %d, %+v", r.Code, receipt)
	}
}

// setUnknownFlag sets a flag that memcached doesn't have in the item of the key.
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

// Items that expire soon are skipped and counted.
func TestSkipExpiringWithin(t *testing.T) {
	t.Parallel()
	all := map[string]drainertest.Object{}
	for i := range 30 {
		all["key"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("v"), TTL: []int64{0, 3000, 9000}[i%3]}
	}
	dir := drainertest.Leaving(t, "saved", all)
	servers, addresses := drainertest.Survivors(t, 1)
	m := drainertest.DrainArgs(t, dir, addresses)
	m.SkipExpiringWithin = 2 * time.Hour
	r := drainertest.Drain(t, m)
	if want := (contract.Outcomes{Added: 20, Expired: 10}); r.Receipt.Outcomes != want || r.Receipt.AddsUp("the-claim") != nil {
		t.Errorf("%+v, want %+v; %s", r.Receipt, want, r.Err)
	}
	if n := servers[0].Items(t); n != 20 {
		t.Errorf("the survivor holds %d items", n)
	}
}

// A drain takes at least the time that its limit asks for. Items that it may send by then are not held back.
func TestADrainKeepsToItsRateLimit(t *testing.T) {
	t.Parallel()
	all := map[string]drainertest.Object{}
	for i := range 60 {
		all["key"+strconv.Itoa(i)] = drainertest.Object{Value: make([]byte, 1000)}
	}
	for name, limit := range map[string]func(m *contract.Drain){
		"items": func(m *contract.Drain) { m.RateLimitItems = 60 },
		"bytes": func(m *contract.Drain) { m.RateLimitBytes = 60 * 1004 },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "items" {
				tier.Second(t, "TestADrainKeepsToItsRateLimit/items")
			}
			t.Parallel()
			dir := drainertest.Leaving(t, "saved", all)
			_, addresses := drainertest.Survivors(t, 2)
			m := drainertest.DrainArgs(t, dir, addresses)
			limit(&m)
			r := drainertest.Drain(t, m)
			if r.Receipt.Added != 60 || r.Receipt.AddsUp("the-claim") != nil {
				t.Errorf("%+v; %s", r.Receipt, r.Err)
			}
			if took := r.Receipt.Seconds[contract.PhaseAdding]; took < 0.8 {
				t.Errorf("60 items at 60 a second in %.2f s", took)
			}
			drainertest.Check(t, m.Client, addresses, all)
		})
	}
}
