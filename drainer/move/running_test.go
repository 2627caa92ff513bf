package move

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// This is move's promise, for each client: when one more server joins and each of the others has been moved,
// every object is where its client looks, and nowhere else. Items that clients had stored there meanwhile
// stay, the receipts add up, and a second run finds nothing.
func TestAMovePutsEveryItemWhereItsClientLooks(t *testing.T) {
	t.Parallel()
	tests := append(routing.Clients(), "gomemcache, under leases")
	for _, name := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _, leases := strings.Cut(name, ", under leases")
			if !leases && client != "libmemcached-ketama-weighted" {
				tier.Second(t, "TestAMovePutsEveryItemWhereItsClientLooks/libmemcached-ketama-weighted")
			}
			all := drainertest.Objects(7, 1000)
			servers, addresses := drainertest.Survivors(t, 3)
			drainertest.StoreByOwner(t, client, addresses[:2], all)
			theirs := map[string]drainertest.Object{}
			for key := range all {
				if len(theirs) == 100 {
					break
				}
				theirs[key] = drainertest.Object{Value: []byte("newer"), Flags: 99}
			}
			drainertest.StoreByOwner(t, client, addresses, theirs)
			for key, o := range theirs {
				all[key] = o
			}
			misplaced := -int64(len(all))
			for _, s := range servers {
				misplaced += s.Items(t)
			}
			found := int64(0)
			for _, source := range addresses {
				args := drainertest.MoveArgs(t, client, source, addresses)
				args.Leases = leases
				r := drainertest.Move(t, args)
				if err := r.Receipt.AddsUp("the-claim"); err != nil || r.Receipt.Reader != contract.ReaderLive || r.Receipt.SourceVersion == "" {
					t.Fatalf("%v: %+v\n%s", err, r.Receipt, r.Err)
				}
				if n := r.Receipt.AlreadyPresent; n > 0 {
					misplaced -= n // counted above
				}
				found += r.Receipt.Found
			}
			drainertest.Check(t, client, addresses, all)
			left := int64(0)
			for i, source := range addresses {
				left += servers[i].Items(t)
				if r := drainertest.Move(t, drainertest.MoveArgs(t, client, source, addresses)); r.Receipt.Found != 0 || r.Code != 0 {
					t.Errorf("a second run finds %d: %s", r.Receipt.Found, r.Err)
				}
			}
			if left != int64(len(all)) || found == 0 || misplaced != 0 {
				t.Errorf("%d items on all servers, want %d; %d were found, %d copies too many had been", left, len(all), found, misplaced)
			}
		})
	}
}

// A full cache is the usual reason to scale up. Every item that belongs elsewhere is handed over, and
// counted.
func TestMoveOfFullMembers(t *testing.T) {
	tier.Second(t, "TestAddsAreClassicWhereMemoryIsShort")
	t.Parallel()
	for name, full := range map[string]int{"the member": 0, "the owner": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const few, many = 1000, 70_000
			memory, n := []string{"256", "256"}, []int{few, few}
			memory[full], n[full] = "64", many
			servers := []*memcachedtest.Server{memcachedtest.Start(t, "-m", memory[0]), memcachedtest.Start(t, "-m", memory[1])}
			addresses := []string{servers[0].Address(), servers[1].Address()}
			for i, s := range servers {
				fill(t, s, strconv.Itoa(i)+":", n[i])
			}
			conn, err := memcache.Dial(t.Context(), addresses[full])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if limits, err := conn.Limits(); err != nil || limits.Room > 0 {
				t.Fatalf("the server is not full: %+v, %v", limits, err)
			}
			before, theirs := servers[0].Items(t), servers[1].Items(t)
			r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses))
			if err := r.Receipt.AddsUp("the-claim"); err != nil || r.Receipt.Found < before/3 {
				t.Fatalf("%v: %+v\n%s", err, r.Receipt, r.Err)
			}
			if left := servers[0].Items(t); left+r.Receipt.Found != before {
				t.Errorf("the member held %d items, %d were found, and it holds %d", before, r.Receipt.Found, left)
			}
			if has := servers[1].Items(t); full == 0 && has != theirs+r.Receipt.Found {
				t.Errorf("the owner held %d items, %d were found, and it holds %d", theirs, r.Receipt.Found, has)
			}
		})
	}
}

// fill stores so many items, of a size that wastes no memory.
func fill(t *testing.T, s *memcachedtest.Server, prefix string, n int) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := bufio.NewWriter(conn)
	value := strings.Repeat("v", 1111)
	for i := range n {
		fmt.Fprintf(w, "set %s%d 0 0 %d noreply\r\n%s\r\n", prefix, i, len(value), value)
	}
	fmt.Fprint(w, "version\r\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// A memcached that has often restarted warm is seconds behind, and reports more remaining time of an item
// than there is.
func TestMoveByTheMembersClock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	member, owner := memcachedtest.Start(t, memcachedtest.FewPages("-e", filepath.Join(dir, contract.WarmFile))...), memcachedtest.Start(t)
	addresses := []string{member.Address(), owner.Address()}
	routes, err := routing.New("gomemcache", drainertest.MustParse(t, addresses))
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
	laterSecond(t, 0) // it only restarts warm in a later second
	member.Restart()
	if clock := memcachedtest.Clock(t, member.Dial()); time.Now().Unix()-clock < behind-1 { // it may save a second that has not begun
		t.Fatalf("the member is not behind: it shows %d", clock)
	}
	if r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses)); r.Code != 0 || r.Receipt.Added != int64(len(want)) {
		t.Fatalf("%+v\n%s", r.Receipt, r.Err)
	}
	c := owner.Dial()
	for key, at := range want {
		if got := memcachedtest.ExpireAt(t, c, key); got != at {
			t.Errorf("%s expires at %d, %d s too late", key, got, got-at)
		}
	}
}

// pair is a member with items that another server owns.
type pair struct {
	t             *testing.T
	member, owner *memcachedtest.Server
	l             *runningMember
	keys          []string
}

// makePair makes n keys of the owner's and stores value at the member.
func makePair(t *testing.T, n int, value string) *pair {
	t.Helper()
	servers, _ := drainertest.Survivors(t, 2)
	return pairOf(t, servers, "key:", n, value)
}

// pairOf is makePair with other keys, for servers that have been used before.
func pairOf(t *testing.T, servers []*memcachedtest.Server, prefix string, n int, value string) *pair {
	t.Helper()
	addresses := []string{servers[0].Address(), servers[1].Address()}
	owner, err := routing.New("gomemcache", drainertest.MustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, member: servers[0], owner: servers[1]}
	all := map[string]drainertest.Object{}
	for i := 0; len(all) < n; i++ {
		if key := prefix + strconv.Itoa(i); owner.Owner([]byte(key)) == 1 {
			all[key] = drainertest.Object{Value: []byte(value)}
			p.keys = append(p.keys, key)
		}
	}
	drainertest.Store(t, p.member.Address(), all)
	p.l = &runningMember{
		member: drainertest.MustParse(t, addresses)[0], servers: drainertest.MustParse(t, addresses), owner: owner,
		scratch: t.TempDir(), longest: longestList, timeout: wait.Long, rest: time.Millisecond,
		waiting: func(string, string) {}, done: func() int64 { return 0 }, earlier: earlier{seed: maphash.MakeSeed()},
	}
	p.l.soon = func(*item.Item) bool { return false }
	t.Cleanup(p.l.closeLinks)
	return p
}

// fetched reads the keys from the member, as a drainer does before it adds them.
func (p *pair) fetched() *portion {
	p.t.Helper()
	p.l.connect(p.t.Context())
	p.l.once.Begin(int64(len(p.keys)))
	read := &portion{began: time.Now()}
	for it, err := range p.l.asked(p.t.Context(), func(yield func(*Entry, error) bool) {
		for _, key := range p.keys {
			if !yield(&Entry{Key: []byte(key)}, nil) {
				return
			}
		}
	}) {
		if err != nil {
			p.t.Fatal(err)
		}
		one := misplaced{Item: *it, sum: p.l.sum(it.Value, it.Flags)}
		one.Key, one.Value = bytes.Clone(it.Key), bytes.Clone(it.Value)
		read.items = append(read.items, one)
	}
	return read
}

// holds fails the test if a server doesn't have value under the key; "" is nothing.
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

// Changes between the read and the delete decide which value the owner has in the end, and which one stays at
// the member.
func TestChangedWhileItMoved(t *testing.T) {
	t.Parallel()
	servers, _ := drainertest.Survivors(t, 2)
	for name, test := range map[string]struct {
		// member and owner change the key after it was read and added.
		member, owner func(*memcachedtest.Raw, string)
		// atMember and atOwner are the values that are left.
		atMember, atOwner string
	}{
		"nothing":          {nil, nil, "", "1"},
		"newer at member":  {set("2"), nil, "", "2"},
		"newer at owner":   {nil, set("2"), "", "2"},
		"newer at both":    {set("2"), set("3"), "", "3"},
		"gone at member":   {remove, nil, "", ""},
		"gone at owner":    {nil, remove, "", ""},
		"newer, then gone": {set("2"), remove, "2", ""},
		"stale at member":  {func(r *memcachedtest.Raw, key string) { r.Must("HD", "md "+key+" I", nil) }, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairOf(t, servers, strings.ReplaceAll(name, " ", "-"), 3, "1")
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
			if err := p.l.own.delete(t.Context(), read); err != nil {
				t.Fatal(err)
			}
			for _, key := range p.keys {
				p.holds(p.member, key, test.atMember)
				p.holds(p.owner, key, test.atOwner)
			}
		})
	}
}

// A client with an old list stores a key at the member that was moved before. That replaces the copy, and
// nothing else.
func TestStoredAgainAfterItMoved(t *testing.T) {
	t.Parallel()
	servers, _ := drainertest.Survivors(t, 2)
	for name, test := range map[string]struct {
		// member and owner change the key before the second pass, meanwhile changes it at the member during
		// that pass.
		member, owner, meanwhile func(*memcachedtest.Raw, string)
		atOwner                  string
	}{
		"nothing else":          {set("2"), nil, nil, "2"},
		"the same":              {set("1"), nil, nil, "1"},
		"newer at the owner":    {set("2"), set("3"), nil, "3"},
		"gone at the owner":     {set("2"), remove, nil, "2"},
		"deleted while it goes": {set("2"), nil, remove, ""},
		"stored while it goes":  {set("2"), nil, set("4"), "4"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairOf(t, servers, strings.ReplaceAll(name, " ", "-"), 3, "1")
			member, owner := p.member.Raw(), p.owner.Raw()
			pass := func(meanwhile func(*memcachedtest.Raw, string)) {
				read := p.fetched()
				for i, key := range p.keys {
					owner.Do("add "+key+" 0 0 1", read.items[i].Value)
					if meanwhile != nil {
						meanwhile(member, key)
					}
				}
				if err := p.l.own.delete(t.Context(), read); err != nil {
					t.Fatal(err)
				}
			}
			pass(nil)
			for range 2 { // the replaced copy is then a copy, too
				for _, key := range p.keys {
					test.member(member, key)
					if test.owner != nil {
						test.owner(owner, key)
					}
				}
				pass(test.meanwhile)
			}
			for _, key := range p.keys {
				p.holds(p.member, key, "")
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

// After a start, a member counts its CAS values from the beginning, so another value may have the CAS of the
// value that was read.
func TestMemberRestartsWhileItsItemsMove(t *testing.T) {
	t.Parallel()
	p := makePair(t, 1, "1")
	read := p.fetched()
	p.owner.Raw().Must("STORED", "add "+p.keys[0]+" 0 0 1", []byte("1"))
	p.member.Kill()
	p.member.Restart()
	p.member.Raw().Must("HD c1", "ms "+p.keys[0]+" 1 c", []byte("2"))
	p.l.disconnect() // an earlier portion's delete would do so, and connect again
	p.l.connect(t.Context())
	if err := p.l.own.delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	p.holds(p.member, p.keys[0], "")
	p.holds(p.owner, p.keys[0], "2")
}

// After a crash the member may restore items after a listing found nothing, so the run fails, and has to
// begin again.
func TestMemberRestartsBetweenListings(t *testing.T) {
	t.Parallel()
	p := makePair(t, 1, "1")
	m := &Engine{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: wait.Long, Log: io.Discard}
	p.l.settle = func() (int64, error) {
		p.l.started -= 10 // as if it had begun before
		return m.settle()
	}
	r := m.Run(t.Context())
	if r.ExitCode != contract.ExitFailed || r.Complete || r.Reason != reasonRestarted {
		t.Errorf("%+v", r)
	}
	if r := (&Engine{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: wait.Long, Log: io.Discard}).Run(t.Context()); r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// Items that the owner can't store stay at the member, and are reported.
func TestRefusedItemsStay(t *testing.T) {
	t.Parallel()
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t, "-I", "512k")
	addresses := []string{member.Address(), owner.Address()}
	all := map[string]drainertest.Object{}
	for i := range 20 {
		all["small"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("v")}
		all["large"+strconv.Itoa(i)] = drainertest.Object{Value: make([]byte, 600_000)}
	}
	drainertest.Store(t, member.Address(), all)
	a := drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses)
	r := drainertest.Move(t, a)
	if r.Code != contract.ExitRejected || r.Receipt.Added == 0 || r.Receipt.Rejected == 0 {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	if sum := r.Receipt.Added + r.Receipt.Rejected; sum != r.Receipt.Found {
		t.Errorf("%d found, %d accounted for", r.Receipt.Found, sum)
	}
	if got := member.Items(t) + owner.Items(t); got != 40 {
		t.Errorf("%d items are left, want all 40", got)
	}
	if got := owner.Items(t); got != r.Receipt.Added {
		t.Errorf("the owner has %d items, the receipt says %d", got, r.Receipt.Added)
	}
}

// If clients keep storing items at other servers than the owner, the move reports that at last, and does not
// go on forever.
func TestClientsThatGoOnStoring(t *testing.T) {
	t.Parallel()
	p := makePair(t, 100, "1")
	raw := p.member.Raw()
	m := &Engine{Source: p.l, Owner: p.l.owner, Servers: p.l.servers, UnreachableTimeout: wait.Long, Log: io.Discard}
	n := 0
	p.l.settle = func() (int64, error) {
		// The key must not be one that is being moved: the next listing finds it.
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

// A signal ends it with a receipt, no item is lost, and the next run moves the rest.
func TestMoveIsInterrupted(t *testing.T) {
	t.Parallel()
	p := makePair(t, 3000, "value")
	a := drainertest.MoveArgs(t, "gomemcache", p.member.Address(), []string{p.member.Address(), p.owner.Address()})
	a.RateLimitItems = 10
	d := drainertest.Start(t, a.Args()...)
	wait.For(t, "items at the owner", func() error {
		if p.owner.Items(t) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	d.Signal(syscall.SIGTERM)
	if code := d.Wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if r := drainertest.ReadReceipt(t, a.Receipt); r.Reason != reasonInterrupted || r.Complete {
		t.Errorf("%+v", r)
	}
	if n := p.member.Items(t); n == 0 {
		t.Error("nothing was left to do: the signal came too late")
	}
	a.RateLimitItems = 0
	r := drainertest.Move(t, a)
	if err := r.Receipt.AddsUp("the-claim"); err != nil {
		t.Error(err)
	}
	if at, left := p.owner.Items(t), p.member.Items(t); at != 3000 || left != 0 {
		t.Errorf("%d at the owner and %d at the member, want 3000 and none", at, left)
	}
}

// The source must not be one of the servers with another address. The test also checks the message about a
// source that doesn't answer.
func TestMoveNeedsItsSource(t *testing.T) {
	t.Parallel()
	_, addresses := drainertest.Survivors(t, 2)
	unreachable := "127.0.0.1:" + strconv.Itoa(memcachedtest.FreePort(t))
	a := drainertest.MoveArgs(t, "gomemcache", "cache-1="+unreachable, []string{"cache-0=" + addresses[0], "cache-1=" + addresses[1]})
	r := drainertest.Move(t, a)
	r.OneLine(t, "has the name of the server at "+addresses[1])
	if r.Code != contract.ExitUsage {
		t.Errorf("exit code %d", r.Code)
	}
	l := &runningMember{member: drainertest.MustParse(t, []string{unreachable})[0], timeout: 100 * time.Millisecond, waiting: func(string, string) {}, scratch: t.TempDir()}
	for _, err := range l.Items(t.Context()) {
		failed := Failed("", err)
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

// The receipt, the log and the progress say that it is the source.
func TestASilentSourceIsNoSurvivor(t *testing.T) {
	t.Parallel()
	servers, addresses := drainertest.Survivors(t, 2)
	servers[0].Signal(syscall.SIGSTOP)
	for i, want := range []struct{ reason, role string }{{reasonSource, "source"}, {reasonUnreachable, "survivor"}} {
		a := drainertest.MoveArgs(t, "gomemcache", addresses[i], addresses)
		var r drainertest.Result
		wait.AtSomeSpeed(t, 3*time.Second, func(rest time.Duration) error {
			a.UnreachableTimeout = rest
			if r = drainertest.Move(t, a); strings.Contains(r.Err, "waiting for survivor "+addresses[1]) {
				return errors.New(r.Err)
			}
			return nil
		})
		if r.Code != contract.ExitUnreachable || r.Receipt.Reason != want.reason {
			t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
		}
		if says := want.role + " " + addresses[0]; !strings.HasPrefix(r.Receipt.Message, says) || !strings.Contains(r.Err, "waiting for "+says) {
			t.Errorf("%q, %s", r.Receipt.Message, r.Err)
		}
		if got := strings.Contains(r.Out, `"sourceSilent":true`); got != (want.role == "source") {
			t.Errorf("progress: %s", r.Out)
		}
	}
}

// The member's items that a lost server owns are deleted, and no server gets them. All other items go where
// clients look. The move doesn't wait for the lost server, and a second run finds nothing.
func TestMoveWithoutALostServer(t *testing.T) {
	tier.Second(t, "TestMemberThatIsLostWhileItemsMoveToItCanBeLetGo")
	t.Parallel()
	const client = "libmemcached-ketama"
	all := drainertest.Objects(7, 1000)
	servers, addresses := drainertest.Survivors(t, 3)
	drainertest.StoreByOwner(t, client, addresses[:2], all)
	owner, err := routing.New(client, drainertest.MustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	discarded := int64(0)
	for key := range all {
		if owner.Owner([]byte(key)) == 2 {
			delete(all, key)
			discarded++
		}
	}
	servers[2].Kill()
	found := int64(0)
	for n := range 2 {
		for _, source := range addresses[:2] {
			a := drainertest.MoveArgs(t, client, source, addresses)
			a.Discard = addresses[2:]
			r := drainertest.Move(t, a)
			if err := r.Receipt.AddsUp("the-claim"); err != nil {
				t.Fatalf("%v: %+v\n%s", err, r.Receipt, r.Err)
			}
			if n == 1 && r.Receipt.Found != 0 {
				t.Errorf("a second run finds %d", r.Receipt.Found)
			}
			found += r.Receipt.Invalidated
		}
	}
	if found != discarded || discarded == 0 {
		t.Errorf("%d were discarded, want %d", found, discarded)
	}
	if n := servers[0].Items(t) + servers[1].Items(t); n != int64(len(all)) {
		t.Errorf("%d items are left, want %d", n, len(all))
	}
	for name, discard := range map[string]string{"the source": addresses[0], "a stranger": "127.0.0.1:1"} {
		a := drainertest.MoveArgs(t, client, addresses[0], addresses)
		a.Discard = []string{discard}
		if r := drainertest.Move(t, a); r.Code != contract.ExitUsage {
			t.Errorf("%s: exit code %d", name, r.Code)
		}
	}
}

// Its items keep, at their owner, the remaining time by the member's clock.
func TestMoveOfAMemberWhoseNodesClockWasWrong(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			if ahead < 0 {
				tier.Second(t, "TestMoveOfAMemberWhoseNodesClockWasWrong/1h0m0s")
			}
			t.Parallel()
			source := drainertest.ServeWith(t, memcachedtest.ClockAhead(t, ahead), t.TempDir(), memcachedtest.FreePort(t), "-m", "64")
			owner := memcachedtest.Start(t)
			addresses := []string{source.Address(), owner.Address()}
			all := map[string]drainertest.Object{}
			for i := range 200 {
				all["key:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("value"), TTL: []int64{600, 20000}[i%2]}
			}
			drainertest.Store(t, source.Address(), all)
			if r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses)); r.Code != 0 || r.Receipt.Added == 0 {
				t.Fatalf("%+v\n%s", r.Receipt, r.Err)
			}
			drainertest.Check(t, "gomemcache", addresses, all)
		})
	}
}

// Keys that don't fit into one list are moved with the next.
func TestAListOfKeysIsBounded(t *testing.T) {
	const items = 5000
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	addresses := []string{member.Address(), owner.Address()}
	list := drainertest.MustParse(t, addresses)
	c := member.Dial()
	for i := range items {
		if err := c.Send(fmt.Appendf(nil, "set key:%d 0 0 1 noreply\r\nv\r\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ping(); err != nil {
		t.Fatal(err)
	}
	all := itAll{1}
	e := Engine{SourceID: "move/uid/1-a", Owner: all, Servers: list, UnreachableTimeout: wait.Long, Log: io.Discard}
	source := e.runningMember(list[0], 0, t.TempDir())
	e.Source = source
	source.longest = 20 << 10 // about a thousand keys
	first, err := source.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if !first.Cut() || first.Len() < items/10 || first.Len() > items/2 {
		t.Errorf("the first list has %d keys; it was cut: %t", first.Len(), first.Cut())
	}
	r := e.Run(t.Context())
	if r.Found != items || r.Added != items || r.Reason != "" || owner.Items(t) != items || member.Items(t) != 0 {
		t.Errorf("%+v, the owner has %d, the member %d", r, owner.Items(t), member.Items(t))
	}
	if most := source.expected.Load(); most < items {
		t.Errorf("%d were listed", most)
	}
}

// itAll is an owner function in which one server owns everything.
type itAll struct{ server int }

func (e itAll) Owner([]byte) int { return e.server }

// The member comes back while its items are moved. The new memcached has deleted none of them, so the owner's
// copies stay.
func TestAMemberThatComesBackEmpty(t *testing.T) {
	p := makePair(t, 3, "1")
	p.l.started = time.Now().Add(-time.Hour).Unix() // when its process began
	read := p.fetched()
	for _, key := range p.keys {
		p.owner.Raw().Must("STORED", "add "+key+" 0 0 1", []byte("1"))
	}
	p.member.Kill()
	p.member.Restart()
	p.l.disconnect() // as an earlier portion would
	p.l.connect(t.Context())
	if err := p.l.own.delete(t.Context(), read); !errors.Is(err, errRestarted) {
		t.Errorf("got %v", err)
	}
	for _, key := range p.keys {
		p.holds(p.owner, key, "1")
	}
}
