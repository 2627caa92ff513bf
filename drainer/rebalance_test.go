package drainer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/crawl"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

func rebalanceArgs(t *testing.T, client, source string, servers []string) contract.Rebalance {
	t.Helper()
	a := contract.Rebalance{Source: source, Move: moveArgs(t, servers)}
	a.Client = client
	return a
}

func rebalance(t *testing.T, a contract.Rebalance) result {
	t.Helper()
	r := runMain(t, a.Args()...)
	r.receipt = readReceipt(t, a.Receipt)
	if r.receipt.ExitCode != r.code {
		t.Errorf("exit code %d, the receipt says %d", r.code, r.receipt.ExitCode)
	}
	return r
}

// storeByOwner stores each object where the client looks for it.
func storeByOwner(t *testing.T, client string, servers []string, all map[string]object) {
	t.Helper()
	owner, err := routing.New(client, mustParse(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]map[string]object, len(servers))
	for key, o := range all {
		i := owner.Owner([]byte(key))
		if parts[i] == nil {
			parts[i] = map[string]object{}
		}
		parts[i][key] = o
	}
	for i, part := range parts {
		store(t, servers[i], part)
	}
}

// TestRebalance is placement's promise, for each client: when one more server
// joins and each of the others has been looked through, every object is where its
// client looks, and nowhere else; what clients had stored there meanwhile stays;
// the receipts add up; and a second run finds nothing.
func TestRebalance(t *testing.T) {
	for _, client := range routing.Clients() {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			all := objects(7, 3000)
			servers, addresses := survivors(t, 3)
			storeByOwner(t, client, addresses[:2], all)
			theirs := map[string]object{}
			for key := range all {
				if len(theirs) == 100 {
					break
				}
				theirs[key] = object{value: []byte("newer"), flags: 99}
			}
			storeByOwner(t, client, addresses, theirs)
			for key, o := range theirs {
				all[key] = o
			}
			misplaced := -int64(len(all))
			for _, s := range servers {
				misplaced += s.Items(t)
			}
			found := int64(0)
			for _, source := range addresses {
				r := rebalance(t, rebalanceArgs(t, client, source, addresses))
				if err := r.receipt.AddsUp("the-claim"); err != nil || r.receipt.Reader != contract.ReaderLive || r.receipt.SourceVersion == "" {
					t.Fatalf("%v: %+v\n%s", err, r.receipt, r.err)
				}
				if n := r.receipt.AlreadyPresent; n > 0 {
					misplaced -= n // counted above
				}
				found += r.receipt.Found
			}
			check(t, client, addresses, all)
			left := int64(0)
			for i, source := range addresses {
				left += servers[i].Items(t)
				if r := rebalance(t, rebalanceArgs(t, client, source, addresses)); r.receipt.Found != 0 || r.code != 0 {
					t.Errorf("a second run finds %d: %s", r.receipt.Found, r.err)
				}
			}
			if left != int64(len(all)) || found == 0 || misplaced != 0 {
				t.Errorf("%d items on all servers, want %d; %d were found, %d copies too many had been", left, len(all), found, misplaced)
			}
		})
	}
}

// TestRebalanceByTheMembersClock: a memcached that has restarted warm often is
// seconds behind, and what it says is left of an item's time is more than there is.
func TestRebalanceByTheMembersClock(t *testing.T) {
	dir := t.TempDir()
	member, owner := memcachedtest.Start(t, "-e", filepath.Join(dir, contract.WarmFile)), memcachedtest.Start(t)
	addresses := []string{member.Address(), owner.Address()}
	routes, err := routing.New("gomemcache", mustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for i := 0; len(want) < 100; i++ {
		key := "key:" + strconv.Itoa(i)
		if routes.Owner([]byte(key)) == 1 {
			want[key] = time.Now().Unix() + 1000 + int64(i)
			member.Raw().Must("STORED", fmt.Sprintf("set %s 0 %d 5", key, want[key]), []byte("value"))
		}
	}
	member.Save()
	const behind = 10
	path := filepath.Join(dir, contract.MetaFile)
	meta, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta = regexp.MustCompile(`(?m)^Kcurrent_time .*$`).ReplaceAllFunc(meta, func(line []byte) []byte {
		seconds, err := strconv.Atoi(strings.Fields(string(line))[1])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, "Kcurrent_time %d", seconds-behind)
	})
	if err := os.WriteFile(path, meta, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // it restarts warm in a later second only
	member.Restart()
	if clock := memcachedtest.Clock(t, member.Dial()); time.Now().Unix()-clock < behind {
		t.Fatalf("the member is not behind: it shows %d", clock)
	}
	if r := rebalance(t, rebalanceArgs(t, "gomemcache", addresses[0], addresses)); r.code != 0 || r.receipt.Added != int64(len(want)) {
		t.Fatalf("%+v\n%s", r.receipt, r.err)
	}
	c := owner.Dial()
	for key, at := range want {
		if got := memcachedtest.ExpireAt(t, c, key); got != at {
			t.Errorf("%s expires at %d, %d s too late", key, got, got-at)
		}
	}
}

// pair is a member with what another server owns.
type pair struct {
	t             *testing.T
	member, owner *memcachedtest.Server
	l             *live
	keys          []string
}

// makePair makes n keys of the owner's and stores value at the member.
func makePair(t *testing.T, n int, value string) *pair {
	t.Helper()
	servers, addresses := survivors(t, 2)
	owner, err := routing.New("gomemcache", mustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, member: servers[0], owner: servers[1]}
	all := map[string]object{}
	for i := 0; len(all) < n; i++ {
		if key := "key:" + strconv.Itoa(i); owner.Owner([]byte(key)) == 1 {
			all[key] = object{value: []byte(value)}
			p.keys = append(p.keys, key)
		}
	}
	store(t, p.member.Address(), all)
	p.l = &live{
		member: mustParse(t, addresses)[0], servers: mustParse(t, addresses), owner: owner,
		scratch: t.TempDir(), timeout: memcachedtest.Patience, rest: time.Millisecond,
		waiting: func(string, string) {}, seed: maphash.MakeSeed(),
	}
	t.Cleanup(p.l.disconnect)
	return p
}

// fetched reads the keys from the member, as a drainer does before it adds them.
func (p *pair) fetched() *portion {
	p.t.Helper()
	p.l.connect(p.t.Context())
	var entries []crawl.Entry
	for _, key := range p.keys {
		entries = append(entries, crawl.Entry{Key: []byte(key)})
	}
	read, err := p.l.fetch(p.t.Context(), entries)
	if err != nil {
		p.t.Fatal(err)
	}
	return read
}

// holds fails where a server doesn't hold value under the key; "" is nothing.
func (p *pair) holds(s *memcachedtest.Server, key, value string) {
	p.t.Helper()
	v, err := s.Dial().Get([]byte(key))
	if err != nil {
		p.t.Fatal(err)
	}
	got := ""
	if v != nil {
		got = string(v.Data)
	}
	if got != value {
		p.t.Errorf("%s: %s has %q, want %q", key, s.Address(), got, value)
	}
}

// TestChangedWhileItMoved: what happened between the read and the delete decides
// what the owner has in the end, and what stays at the member.
func TestChangedWhileItMoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// member and owner do something to the key after it was read and added.
		member, owner func(*memcachedtest.Raw, string)
		// what is left.
		atMember, atOwner string
	}{
		"nothing":          {nil, nil, "", "1"},
		"newer at member":  {set("2"), nil, "", "2"},
		"newer at owner":   {nil, set("2"), "", "2"},
		"newer at both":    {set("2"), set("3"), "", "3"},
		"gone at member":   {remove, nil, "", "1"},
		"gone at owner":    {nil, remove, "", ""},
		"newer, then gone": {set("2"), remove, "2", ""},
		"stale at member":  {func(r *memcachedtest.Raw, key string) { r.Must("HD", "md "+key+" I", nil) }, nil, "", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := makePair(t, 3, "1")
			read := p.fetched()
			member, owner := p.member.Raw(), p.owner.Raw()
			for _, key := range p.keys {
				owner.Must("STORED", "add "+key+" 0 0 1", []byte("1"))
				if test.member != nil {
					test.member(member, key)
				}
				if test.owner != nil {
					test.owner(owner, key)
				}
			}
			if err := p.l.delete(t.Context(), read); err != nil {
				t.Fatal(err)
			}
			for _, key := range p.keys {
				p.holds(p.member, key, test.atMember)
				p.holds(p.owner, key, test.atOwner)
			}
		})
	}
}

func set(value string) func(*memcachedtest.Raw, string) {
	return func(r *memcachedtest.Raw, key string) {
		r.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), []byte(value))
	}
}

func remove(r *memcachedtest.Raw, key string) { r.Must("DELETED", "delete "+key, nil) }

// TestMemberRestartsWhileItsItemsMove: a member counts its CAS anew after a start;
// what has the number of what was read may be another value.
func TestMemberRestartsWhileItsItemsMove(t *testing.T) {
	t.Parallel()
	p := makePair(t, 1, "1")
	read := p.fetched()
	p.owner.Raw().Must("STORED", "add "+p.keys[0]+" 0 0 1", []byte("1"))
	p.member.Kill()
	p.member.Restart()
	p.member.Raw().Must("HD c1", "ms "+p.keys[0]+" 1 c", []byte("2"))
	p.l.disconnect() // as an earlier portion's delete would, and connect again
	p.l.connect(t.Context())
	if err := p.l.delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	p.holds(p.member, p.keys[0], "")
	p.holds(p.owner, p.keys[0], "2")
}

// TestMemberRestartsBetweenListings: what it is putting back after a crash may come
// after a listing found nothing, so the run fails, to be begun anew.
func TestMemberRestartsBetweenListings(t *testing.T) {
	t.Parallel()
	p := makePair(t, 1, "1")
	m := &Migration{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: memcachedtest.Patience, Log: io.Discard}
	p.l.settle = func() (int64, error) {
		p.l.started -= 10 // it began before
		return m.settle()
	}
	r := m.Run(t.Context())
	if r.ExitCode != contract.ExitFailed || r.Complete || r.Reason != reasonRestarted {
		t.Errorf("%+v", r)
	}
	if r := (&Migration{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: memcachedtest.Patience, Log: io.Discard}).Run(t.Context()); r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// TestRefusedItemsStay: what the owner can't store stays at the member, and is told.
func TestRefusedItemsStay(t *testing.T) {
	t.Parallel()
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t, "-I", "512k")
	addresses := []string{member.Address(), owner.Address()}
	all := map[string]object{}
	for i := range 20 {
		all["small"+strconv.Itoa(i)] = object{value: []byte("v")}
		all["large"+strconv.Itoa(i)] = object{value: make([]byte, 600_000)}
	}
	store(t, member.Address(), all)
	a := rebalanceArgs(t, "gomemcache", addresses[0], addresses)
	r := rebalance(t, a)
	if r.code != contract.ExitRejected || r.receipt.Added == 0 || r.receipt.Rejected == 0 {
		t.Errorf("exit code %d, %+v", r.code, r.receipt)
	}
	if sum := r.receipt.Added + r.receipt.Rejected; sum != r.receipt.Found {
		t.Errorf("%d found, %d accounted for", r.receipt.Found, sum)
	}
	if got := member.Items(t) + owner.Items(t); got != 40 {
		t.Errorf("%d items are left, want all 40", got)
	}
	if got := owner.Items(t); got != r.receipt.Added {
		t.Errorf("the owner has %d items, the receipt says %d", got, r.receipt.Added)
	}
}

// TestClientsThatGoOnStoring: that somebody stores at other servers than the owner
// is told at last, not worked against for good.
func TestClientsThatGoOnStoring(t *testing.T) {
	t.Parallel()
	p := makePair(t, 100, "1")
	raw := p.member.Raw()
	m := &Migration{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: memcachedtest.Patience, Log: io.Discard}
	n := 0
	p.l.settle = func() (int64, error) {
		// Never one that is on its way: the next listing finds it.
		for n++; p.l.owner.Owner([]byte("again:"+strconv.Itoa(n))) == p.l.self; {
			n++
		}
		set("again")(raw, "again:"+strconv.Itoa(n))
		return m.settle()
	}
	r := m.Run(t.Context())
	if r.Reason != reasonStillStored || r.ExitCode != contract.ExitFailed || r.Complete || !strings.Contains(r.Message, "another list of servers") {
		t.Errorf("%+v", r)
	}
}

// TestRebalanceIsInterrupted: a signal ends it with a receipt, no item is lost, and
// the next run moves the rest.
func TestRebalanceIsInterrupted(t *testing.T) {
	t.Parallel()
	p := makePair(t, 3000, "value")
	a := rebalanceArgs(t, "gomemcache", p.member.Address(), []string{p.member.Address(), p.owner.Address()})
	a.RateLimitItems = 1000
	d := start(t, a.Args()...)
	memcachedtest.WaitFor(t, "items at the owner", func() error {
		if p.owner.Items(t) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if r := readReceipt(t, a.Receipt); r.Reason != reasonInterrupted || r.Complete {
		t.Errorf("%+v", r)
	}
	if n := p.member.Items(t); n == 0 {
		t.Error("nothing was left to do: the signal came too late")
	}
	a.RateLimitItems = 0
	r := rebalance(t, a)
	if err := r.receipt.AddsUp("the-claim"); err != nil {
		t.Error(err)
	}
	if at, left := p.owner.Items(t), p.member.Items(t); at != 3000 || left != 0 {
		t.Errorf("%d at the owner and %d at the member, want 3000 and none", at, left)
	}
}

// TestRebalanceNeedsItsSource: which servers it doesn't know, and how it says that
// one doesn't answer.
func TestRebalanceNeedsItsSource(t *testing.T) {
	t.Parallel()
	_, addresses := survivors(t, 2)
	nobody := "127.0.0.1:" + strconv.Itoa(memcachedtest.FreePort(t))
	a := rebalanceArgs(t, "gomemcache", nobody, addresses)
	r := rebalance(t, a)
	r.oneLine(t, "none of the servers")
	if r.code != contract.ExitUsage {
		t.Errorf("exit code %d", r.code)
	}
	l := &live{member: mustParse(t, []string{nobody})[0], timeout: 100 * time.Millisecond, waiting: func(string, string) {}, scratch: t.TempDir()}
	for _, err := range l.Items(t.Context()) {
		failed := failedReceipt("", err)
		if failed.Reason != reasonSource || failed.ExitCode != contract.ExitUnreachable || !errors.Is(err, memcache.ErrUnreachable) {
			t.Errorf("%+v", failed)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range l.Items(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
