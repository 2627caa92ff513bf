package move

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// roomy are arguments of a memcached that takes meta adds: so much memory is free.
var roomy = []string{"-m", "200"}

func copyArgs(t *testing.T, client string, from, to []string) contract.Copy {
	t.Helper()
	c := contract.Copy{From: []string{contract.FromMemcached + strings.Join(from, ",")}, Transfer: drainertest.TransferArgs(t, to)}
	c.Client, c.Scratch = client, t.TempDir()
	return c
}

func runCopy(t *testing.T, c contract.Copy) drainertest.Result {
	t.Helper()
	r := drainertest.RunMain(t, c.Args()...)
	r.Receipt = drainertest.ReadReceipt(t, c.Receipt)
	return r
}

func mustCopy(t *testing.T, c contract.Copy) drainertest.Result {
	t.Helper()
	r := runCopy(t, c)
	if err := r.Receipt.Copied(c.SourceID); err != nil || r.Code != 0 {
		t.Fatalf("%v: exit code %d, %+v\n%s", err, r.Code, r.Receipt, r.Err)
	}
	return r
}

// This is copy's promise: whatever clients the two clusters have, every item of the source is where the new
// clients look, a client's own value there stays, and the source is unchanged. A later run copies changed
// items, but none that a client has changed at the new cluster.
func TestACopyBringsEveryItemToWhereItsClientLooks(t *testing.T) {
	t.Parallel()
	for _, client := range routing.Clients() {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			theirOwn := "gomemcache"
			if client != "libmemcached-ketama-weighted" {
				tier.Second(t, "TestACopyBringsEveryItemToWhereItsClientLooks/libmemcached-ketama-weighted")
				theirOwn = client
			}
			all := drainertest.Objects(7, 1000)
			_, from := drainertest.Survivors(t, 3)
			drainertest.StoreByOwner(t, theirOwn, from, all)
			theirs := map[string]drainertest.Object{}
			for key := range all {
				if len(theirs) == 100 {
					break
				}
				theirs[key] = drainertest.Object{Value: []byte("newer"), Flags: 99}
			}
			_, to := drainertest.Survivors(t, 2, roomy...)
			drainertest.StoreByOwner(t, client, to, theirs)
			c := copyArgs(t, client, from, to)
			c.FromClient = theirOwn
			r := mustCopy(t, c)
			if r.Receipt.Added != int64(len(all)-len(theirs)) || r.Receipt.Passes != 2 || !r.Receipt.Settled || r.Receipt.Reader != contract.ReaderLive {
				t.Errorf("%+v\n%s", r.Receipt, r.Err)
			}
			drainertest.Check(t, theirOwn, from, all)
			want := maps.Clone(all)
			maps.Copy(want, theirs)
			drainertest.Check(t, client, to, want)
			if r = mustCopy(t, c); r.Receipt.Added != 0 {
				t.Errorf("a second run has added items: %+v", r.Receipt)
			}
			drainertest.Check(t, client, to, want)
		})
	}
}

// A later pass replaces items that have changed at the source, and deletes items that are gone there, but
// touches no item that a client has stored at the new cluster. The server has the default memory, which is little.
func TestALaterPassOfACopyFollowsTheSource(t *testing.T) {
	t.Parallel()
	from, to := memcachedtest.Start(t), memcachedtest.StartNewerSuite(t, "-m", "64")
	stop := filepath.Join(t.TempDir(), "stop")
	old, young := from.Raw(), to.Raw()
	set := func(r *memcachedtest.Raw, key, value string) {
		r.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), []byte(value))
	}
	for _, key := range []string{"same", "changed", "gone", "theirs", "deleted", "again"} {
		set(old, key, "1")
	}
	set(young, "other", "1") // takes memory
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	c.Until = contract.Until{File: stop, When: "now"}
	p := drainertest.Start(t, c.Args()...)
	p.WaitFor(`"warm":true`)
	set(old, "changed", "2")
	old.Must("DELETED", "delete gone", nil)
	set(young, "theirs", "client")
	young.Must("DELETED", "delete deleted", nil)
	set(old, "new", "3")
	young.Must("DELETED", "delete again", nil) // as if it had expired
	set(old, "again", "4")
	if err := os.WriteFile(stop, []byte("now\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.Err.String())
	}
	for key, want := range map[string]string{"same": "1", "changed": "2", "gone": "", "theirs": "client", "deleted": "", "new": "3", "again": "4"} {
		value := ""
		if v, err := to.Dial().Get([]byte(key)); err != nil {
			t.Fatal(err)
		} else if v != nil {
			value = string(v.Data)
		}
		if value != want {
			t.Errorf("%s is %q, want %q", key, value, want)
		}
	}
	r := drainertest.ReadReceipt(t, c.Receipt)
	// What was deleted in the last pass takes nothing from what that pass has added.
	if err := r.Copied(c.SourceID); err != nil || r.Replaced != 1 || r.Deleted != 1 || r.Added != 9 || r.LastAdded != 3 || !r.Settled || len(r.CantTell) != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// A source that has restarted empty takes nothing back: its clients have deleted nothing.
func TestACopyKeepsWhatASourceHasLost(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	all := drainertest.Objects(5, 200)
	from, to := memcachedtest.Start(t), memcachedtest.StartNewerSuite(t, roomy...)
	drainertest.Store(t, from.Address(), all)
	key := slices.Min(slices.Collect(maps.Keys(all)))
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	mustCopy(t, c)
	conn, first := from.Dial(), 0
	wait.For(t, "a start that is clearly later", func() error {
		stats, err := conn.Stats("")
		n, _ := strconv.Atoi(stats["uptime"])
		if first == 0 {
			first = n
		}
		if err == nil && n < first+3 {
			err = fmt.Errorf("%d s", n)
		}
		return err
	})
	from.Kill()
	from.Restart()
	changed := all[key]
	changed.Value = []byte("changed since")
	all[key] = changed
	drainertest.Store(t, from.Address(), map[string]drainertest.Object{key: changed})
	if r := mustCopy(t, c); r.Receipt.Deleted != 0 || r.Receipt.Replaced != 1 {
		t.Errorf("%+v", r.Receipt)
	}
	drainertest.Check(t, "gomemcache", []string{to.Address()}, all)
}

// Copies of an earlier version don't stay, also if there is no room for the present one, or if it is too large.
func TestACopyKeepsNoOldValueForWantOfRoom(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	old := large("item", 300, 100_000)
	from, to := memcachedtest.Start(t, "-m", "100", "-I", "4m"), memcachedtest.StartNewerSuite(t, "-m", "16")
	drainertest.Store(t, from.Address(), old)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	c.AsMuchAsFits = true
	first := mustCopy(t, c).Receipt
	copied := map[string]bool{}
	for key := range old {
		if v, err := to.Dial().Get([]byte(key)); err != nil {
			t.Fatal(err)
		} else if copied[key] = v != nil; copied[key] {
			old[key] = drainertest.Object{Value: bytes.Repeat([]byte("n"), 100_000+2_000_000*(len(key)%2))} // some are too large
		}
	}
	drainertest.Store(t, from.Address(), old)
	second := mustCopy(t, c).Receipt
	replaced, gone := 0, 0
	for key, was := range copied {
		switch v, err := to.Dial().Get([]byte(key)); {
		case err != nil:
			t.Fatal(err)
		case !was:
		case v == nil:
			gone++
		case !bytes.Equal(v.Data, old[key].Value):
			t.Fatalf("%s has an old value: %+v", key, second)
		default:
			replaced++
		}
	}
	if first.LeftOut == 0 || gone == 0 || replaced == 0 {
		t.Errorf("%d replaced, %d gone: %+v, %+v", replaced, gone, first, second)
	}
}

// Large items that change in each pass take no more room than once.
func TestACopyOfAsMuchAsFitsReplacesLargeItemsAgainAndAgain(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	const items, passes = 100, 8
	from, to := memcachedtest.Start(t, "-m", "200"), memcachedtest.StartNewerSuite(t, "-m", "64")
	small := drainertest.Objects(7, 1000) // of usual size
	drainertest.Store(t, from.Address(), small)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	c.AsMuchAsFits = true
	all := large("item", items, 100_000)
	drainertest.Store(t, from.Address(), all)
	p := drainertest.Start(t, append(c.Args(), "--"+contract.FlagUntilStopped)...)
	for pass := range passes {
		value := bytes.Repeat([]byte{'a' + byte(pass)}, 100_000)
		for key := range all {
			all[key] = drainertest.Object{Value: value}
		}
		drainertest.Store(t, from.Address(), all)
		conn := to.Dial()
		wait.For(t, "the present values", func() error {
			for key := range all {
				v, err := conn.Get([]byte(key))
				if err != nil {
					return err
				}
				if v == nil || !bytes.Equal(v.Data, value) {
					return fmt.Errorf("pass %d: %s is old or gone", pass, key)
				}
			}
			return nil
		})
	}
	p.Signal(syscall.SIGTERM)
	p.Wait()
}

// A drainer has a deadline, and a source may take longer. Then the next one must not ask for everything again, or the copy
// never ends.
func TestACopyThatIsBegunAgainAsksForTheRestOnly(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	from, to := memcachedtest.Start(t), memcachedtest.Start(t, roomy...)
	old := from.Raw()
	value := make([]byte, 2000)
	store := func(begin, end int) {
		for n := begin; n < end; n++ {
			old.Must("STORED", fmt.Sprintf("set key%d 0 0 %d", n, len(value)), value)
		}
	}
	store(0, 1500)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	c.Passes = 1
	mustCopy(t, c)
	store(1500, 1510)
	asked := func() int {
		stats, err := from.Dial().Stats("")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(stats["cmd_get"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := asked()
	r := mustCopy(t, c)
	if n := asked() - before; n > 100 || r.Receipt.Added != 10 {
		t.Errorf("the source was asked %d times: %+v", n, r.Receipt)
	}
}

// Items that a router has marked as changed by a client are not copied, although they are gone at their
// server.
func TestACopyLeavesOutWhatRoutersHaveMarked(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	from, to := memcachedtest.Start(t), memcachedtest.Start(t, roomy...)
	for _, key := range []string{"copied", "deleted"} {
		from.Raw().Must("STORED", "set "+key+" 0 0 5", []byte("value"))
	}
	to.Raw().Must("STORED", "set "+contract.OutdatedKey([]byte("deleted"))+" 0 0 1", []byte("1"))
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	c.Marks = true
	mustCopy(t, c)
	for key, want := range map[string]bool{"copied": true, "deleted": false} {
		if v, err := to.Dial().Get([]byte(key)); err != nil || (v != nil) != want {
			t.Errorf("%s is there: %t, %v", key, v != nil, err)
		}
	}
	to.Raw().Must("DELETED", "delete copied", nil)
	to.Raw().Must("STORED", "set "+contract.OutdatedAll+" 0 0 1", []byte("1"))
	if r := mustCopy(t, c); r.Receipt.Added != 0 {
		t.Errorf("after a flush: %+v", r.Receipt)
	}
}

// A run that was killed may have copied what a client has deleted, and not have looked for its mark. The next run does.
func TestACopyLooksForMarksThatAnEarlierRunHasNotSeen(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	from, to := memcachedtest.Start(t), memcachedtest.StartNewerSuite(t, roomy...)
	drainertest.Store(t, from.Address(), large("item", 200, 10_000))
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
	mustCopy(t, c) // without marks: as if it was killed before it has looked
	to.Raw().Must("STORED", "set "+contract.OutdatedKey([]byte("item:7"))+" 0 0 1", []byte("1"))
	c.Marks = true
	r := mustCopy(t, c)
	for key, want := range map[string]bool{"item:6": true, "item:7": false} {
		if v, err := to.Dial().Get([]byte(key)); err != nil || (v != nil) != want {
			t.Errorf("%s is there: %t, %v: %+v", key, v != nil, err, r.Receipt)
		}
	}
}

// What was copied does not stay if its server can't be asked for a mark.
func TestACopyTakesBackWhatItCannotLookUpMarksOf(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestALaterPassOfACopyFollowsTheSource")
	from, to := memcachedtest.Start(t), memcachedtest.StartNewerSuite(t, roomy...)
	from.Raw().Must("STORED", "set one 0 0 3", []byte("old"))
	var added atomic.Bool
	between := memcachedtest.Between(t, to.Address(), func(sent []byte) bool {
		if strings.Contains(string(sent), "ms one ") {
			added.Store(true)
		}
		return !strings.Contains(string(sent), contract.OutdatedPrefix)
	})
	c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{between})
	c.Marks, c.UnreachableTimeout = true, 2*time.Second
	r := runCopy(t, c)
	if v, err := to.Dial().Get([]byte("one")); err != nil || v != nil || r.Receipt.Complete || !added.Load() {
		t.Errorf("it is still there: %+v, %v: %+v", v, err, r.Receipt)
	}
}

// both is a client that writes to the old cluster first, and then to the new one.
type both struct {
	t          *testing.T
	old, young clientOf
}

// clientOf has a connection to each server of a cluster; nil to one that is away.
type clientOf struct {
	t       *testing.T
	servers []string
	owner   routing.Owner
	conns   []*memcache.Conn
}

func newClient(t *testing.T, servers []string) clientOf {
	t.Helper()
	owner, err := routing.New("gomemcache", drainertest.MustParse(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	return clientOf{t, servers, owner, make([]*memcache.Conn, len(servers))}
}

// at is the connection to the owner of the key.
func (c *clientOf) at(key string) (*memcache.Conn, error) {
	i := c.owner.Owner([]byte(key))
	if c.conns[i] == nil {
		conn, err := memcache.Dial(c.t.Context(), c.servers[i])
		if err != nil {
			return nil, err
		}
		c.t.Cleanup(func() { conn.Close() })
		c.conns[i] = conn
	}
	return c.conns[i], nil
}

// ask sends a request about the key. A server that is away is asked over another connection the next time.
func (c *clientOf) ask(key, request string) error {
	conn, err := c.at(key)
	if err == nil {
		err = conn.Send([]byte(request))
	}
	if err == nil {
		_, err = conn.Line()
	}
	if err != nil {
		c.conns[c.owner.Owner([]byte(key))] = nil
	}
	return err
}

// write sets the key to a version, or deletes it if that is 0. The old cluster may be away.
func (b *both) write(key string, version int64) {
	request := fmt.Sprintf("delete %s\r\n", key)
	if version > 0 {
		request = fmt.Sprintf("set %s 0 0 %d\r\n%d\r\n", key, len(fmt.Sprint(version)), version)
	}
	_ = b.old.ask(key, request)
	if err := b.young.ask(key, request); err != nil {
		b.t.Error(err)
	}
}

// get is the version that the new cluster has; 0 for none.
func (b *both) get(key string) (version int64) {
	conn, err := b.young.at(key)
	if err != nil {
		b.t.Error(err)
		return 0
	}
	v, err := conn.Get([]byte(key))
	if err == nil && v != nil {
		version, err = strconv.ParseInt(string(v.Data), 10, 64)
	}
	if err != nil {
		b.t.Error(err)
	}
	return version
}

// While clients write to the source first, and then to the new cluster, no value there is older than the last one
// that was stored in it, and nothing comes back that was deleted: neither when the copy is killed at random and begun
// again, nor when a server of the source dies in the middle, and comes back empty.
func TestACopyUnderLoadBringsNoOldValueBack(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"it is killed": false, "its source dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if dies {
				tier.Second(t, "TestACopyUnderLoadBringsNoOldValueBack/it is killed")
			}
			copyUnderLoad(t, dies)
		})
	}
}

func copyUnderLoad(t *testing.T, dies bool) {
	const keys, clients, rounds = 3000, 3, 4
	servers, from := drainertest.Survivors(t, 3)
	to := []string{memcachedtest.StartNewerSuite(t, roomy...).Address(), memcachedtest.StartNewerSuite(t, "-m", "32").Address()}
	// written is one more than the version that a client has stored last, in both; 1 deleted, 0 the first one.
	var written [keys]atomic.Int64
	key := func(k int) string { return fmt.Sprintf("key:%d", k) }
	client := func() *both { return &both{t, newClient(t, from), newClient(t, to)} }
	first := client()
	for k := range keys {
		if err := first.old.ask(key(k), fmt.Sprintf("set %s 0 0 1\r\n1\r\n", key(k))); err != nil {
			t.Fatal(err)
		}
	}
	var load sync.WaitGroup
	done := make(chan struct{})
	for n := range clients {
		c := client()
		load.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for version := int64(2); ; version++ {
				select {
				case <-done:
					return
				default:
				}
				k, now := random.IntN(keys/clients)*clients+n, version // its own keys
				if random.IntN(5) == 0 {
					now = 0
				}
				c.write(key(k), now)
				written[k].Store(now + 1)
				if now == 0 || random.IntN(3) > 0 {
					continue // a copy of what is deleted may be seen until the source was asked again
				}
				// Nothing older is seen than what this client has stored.
				if got := c.get(key(k)); got != 0 && got != now {
					t.Errorf("%s is %d after %d was stored", key(k), got, now)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 1))
	for round := range rounds {
		c := copyArgs(t, "gomemcache", from, to)
		c.RateLimitItems = 20000
		if dies {
			c.UnreachableTimeout = 2 * time.Second
		}
		p := drainertest.Start(t, c.Args()...)
		if round == rounds-1 {
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, p.Err.String())
			}
			break
		}
		p.WaitFor(`"phase":"Adding"`)
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		if !dies {
			p.Signal(syscall.SIGKILL)
			p.Wait()
			continue
		}
		servers[round].Kill()
		p.Wait()
		servers[round].Restart()
	}
	close(done)
	load.Wait()
	missing := 0
	last := client()
	for k := range keys {
		now, got := written[k].Load()-1, last.get(key(k))
		switch {
		case now < 0 && got == 0, now > 0 && got == 0:
			missing++
		case now >= 0 && got != now, now < 0 && got > 1:
			t.Errorf("%s is %d in the end, after %d was stored", key(k), got, now)
		}
	}
	if missing > keys/10 && !dies {
		t.Errorf("%d of %d items were not copied", missing, keys)
	}
}

// An item that was copied, and not compared with its source again because the source has died, does not stay: a client
// may have deleted it at both meanwhile.
func TestACopyTakesBackWhatItsSourceCannotConfirm(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyUnderLoadBringsNoOldValueBack/it is killed")
	for name, start := range map[string]func() *memcachedtest.Server{
		"with marks":                      func() *memcachedtest.Server { return memcachedtest.StartNewerSuite(t, roomy...) },
		"with marks, by little memory":    func() *memcachedtest.Server { return memcachedtest.StartNewerSuite(t, "-m", "32") },
		"without marks":                   func() *memcachedtest.Server { return memcachedtest.Start(t, roomy...) },
		"without marks, by little memory": func() *memcachedtest.Server { return memcachedtest.StartNewerSuite(t, "-M", "-m", "32") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now().Unix()
			from := fakeSource(t, now, "2", "200", func(request string) string {
				switch {
				case strings.HasPrefix(request, "lru_crawler"):
					return fmt.Sprintf("key=one exp=-1 la=%[1]d cas=5 fetch=no cls=1 size=60\nkey=two exp=-1 la=%[1]d cas=6 fetch=no cls=1 size=60\nEND\r\n", now)
				case strings.HasPrefix(request, "mg one v"):
					return "VA 3 f0 t-1 c5 l1 kone\r\nold\r\n"
				case strings.HasPrefix(request, "mg two v"):
					return "VA 3 f0 t-1 c6 l1 ktwo\r\nold\r\n"
				}
				return "" // it has died when it is asked again
			})
			to := start()
			to.Raw().Must("STORED", "set two 0 0 6", []byte("client"))
			c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
			c.UnreachableTimeout = 2 * time.Second
			if r := runCopy(t, c); r.Receipt.Reason != reasonSource {
				t.Errorf("%+v", r.Receipt)
			}
			for key, want := range map[string]string{"one": "", "two": "client"} {
				value := ""
				v, err := to.Dial().Get([]byte(key))
				if v != nil {
					value = string(v.Data)
				}
				if err != nil || value != want {
					t.Errorf("%s is %q, %v", key, value, err)
				}
			}
		})
	}
}

// All that was on its way is taken back, by connections that stay until then (go test -race).
func TestACopyTakesBackAllThatItsSourceCannotConfirm(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyUnderLoadBringsNoOldValueBack/it is killed")
	const items = 10_000 // more than one batch for each connection
	now := time.Now().Unix()
	var list strings.Builder
	for i := range items {
		fmt.Fprintf(&list, "key=key%d exp=-1 la=%d cas=5 fetch=no cls=1 size=60\n", i, now)
	}
	list.WriteString("END\r\n")
	from := fakeSource(t, now, strconv.Itoa(items), strconv.Itoa(60*items), func(request string) string {
		words := strings.Fields(request)
		switch {
		case strings.HasPrefix(request, "lru_crawler"):
			return list.String()
		case len(words) > 2 && words[0] == "mg" && words[2] == "v":
			return "VA 3 f0 t-1 c5 l1 k" + words[1] + "\r\nold\r\n"
		}
		return "" // it has died when it is asked again
	})
	for name, to := range map[string]*memcachedtest.Server{"with marks": memcachedtest.StartNewerSuite(t, roomy...), "without marks": memcachedtest.Start(t)} {
		c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
		c.UnreachableTimeout = 2 * time.Second
		if r := runCopy(t, c); r.Receipt.Reason != reasonSource || to.Items(t) != 0 {
			t.Errorf("%s, %d items are still there: %+v\n%s", name, to.Items(t), r.Receipt, r.Err)
		}
	}
}

// Up to 1.6.13 only a listing tells an item's time to live. A value that was stored since then may have another one.
func TestACopyTakesNoTimeToLiveOfAnEarlierValue(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyBringsEveryItemToWhereItsClientLooks/libmemcached-ketama-weighted")
	now := time.Now().Unix()
	from := fakeVersion(t, "1.5.16", now, "2", "200", func(request string) string {
		switch request {
		case "lru_crawler metadump all":
			return fmt.Sprintf("key=same exp=-1 la=%[1]d cas=5 fetch=no cls=1 size=63\nkey=since exp=-1 la=%[1]d cas=6 fetch=no cls=1 size=63\nEND\r\n", now)
		case "gets same":
			return "VALUE same 0 3 5\r\nabc\r\nEND\r\n"
		case "gets since":
			return "VALUE since 0 3 7\r\nnew\r\nEND\r\n"
		}
		return "ERROR\r\n"
	})
	servers, to := drainertest.Survivors(t, 1, roomy...)
	r := mustCopy(t, copyArgs(t, "gomemcache", []string{from.Address()}, to))
	if v, err := servers[0].Dial().Get([]byte("since")); err != nil || v != nil || r.Receipt.Added != 1 {
		t.Errorf("%v, %v: %+v", v, err, r.Receipt)
	}
}

// Each source that can't be copied has a reason, before anything is stored.
func TestACopySaysWhatItCannotDoBeforeItStarts(t *testing.T) {
	t.Parallel()
	big := drainertest.Objects(3, 300)
	for key, o := range big {
		o.Value = make([]byte, 100_000)
		big[key] = o
	}
	for name, test := range map[string]struct {
		source []string // arguments; nil: a server that answers otherwise
		answer string
		target []string
		items  map[string]drainertest.Object
		reason string
		words  []string
	}{
		"-X":               {source: []string{"-X"}, reason: contract.ReasonListingRefused, words: []string{"warmFrom.onMiss"}},
		"without crawler":  {source: []string{"-o", "no_lru_crawler"}, reason: contract.ReasonListingRefused},
		"target too small": {source: []string{"-m", "100"}, target: []string{"-m", "8"}, items: big, reason: contract.ReasonTargetTooSmall, words: []string{"MiB"}},
		"too old":          {answer: "VERSION 1.4.30\r\n", reason: contract.ReasonSourceTooOld, words: []string{contract.OldestSource}},
		"no cluster":       {answer: "ERROR\r\n", reason: contract.ReasonNoSource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "-X" {
				tier.Second(t, "TestACopySaysWhatItCannotDoBeforeItStarts/-X")
			}
			servers, to := drainertest.Survivors(t, 1, test.target...)
			var c contract.Copy
			if test.source != nil {
				from := memcachedtest.Start(t, test.source...)
				drainertest.Store(t, from.Address(), test.items)
				c = copyArgs(t, "gomemcache", []string{from.Address()}, to)
			} else {
				c = copyArgs(t, "gomemcache", []string{memcachedtest.Fake(t, func(request string) string {
					if strings.HasPrefix(request, "stats") {
						return oldStats
					}
					return test.answer
				}).Address()}, to)
				if test.reason == contract.ReasonNoSource {
					c.From[0] = strings.Replace(c.From[0], contract.FromMemcached, contract.FromDiscovery, 1)
				}
			}
			r := runCopy(t, c)
			if r.Code != contract.ExitUsage || r.Receipt.Reason != test.reason || r.Receipt.Added != 0 {
				t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
			}
			r.OneLine(t, test.words...)
			if n := servers[0].Items(t); n != 0 {
				t.Errorf("%d items were stored", n)
			}
		})
	}
}

// A copy from a source that is too large adds as many items as fit: the most recently used ones.
func TestACopyToASmallerClusterBringsWhatFits(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopySaysWhatItCannotDoBeforeItStarts/-X")
	big := drainertest.Objects(3, 300)
	for key, o := range big {
		o.Value = make([]byte, 100_000)
		big[key] = o
	}
	from := memcachedtest.Start(t, "-m", "100")
	drainertest.Store(t, from.Address(), big)
	_, to := drainertest.Survivors(t, 1, "-m", "16")
	c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
	c.AsMuchAsFits = true
	r := mustCopy(t, c)
	if r.Receipt.Added < 100 || r.Receipt.LeftOut < 100 || r.Receipt.Survivors[0].Evictions != 0 {
		t.Errorf("%+v", r.Receipt)
	}
}

// A source that ends in the middle is named, and the next run goes on.
func TestACopyFromASourceThatDiesEnds(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyUnderLoadBringsNoOldValueBack/it is killed")
	all := drainertest.Objects(5, 3000)
	from := memcachedtest.Start(t)
	drainertest.Store(t, from.Address(), all)
	servers, to := drainertest.Survivors(t, 1, roomy...)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
	c.UnreachableTimeout, c.RateLimitItems = 5*time.Second, 1000
	p := drainertest.Start(t, c.Args()...)
	wait.For(t, "items", func() error {
		if n := servers[0].Items(t); n < 100 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	from.Kill()
	if code := p.Wait(); code != contract.ExitUnreachable {
		t.Errorf("exit code %d: %s", code, p.Err.String())
	}
	if r := drainertest.ReadReceipt(t, c.Receipt); r.Reason != reasonSource || r.Complete {
		t.Errorf("%+v", r)
	}
	from.Restart()
	drainertest.Store(t, from.Address(), all)
	c.RateLimitItems = 0
	mustCopy(t, c)
	drainertest.Check(t, "gomemcache", to, all)
}

// Versions from Debian's suites, as source and as target.
func TestACopyFromOtherVersions(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"bullseye", "trixie", "unstable"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopyBringsEveryItemToWhereItsClientLooks/libmemcached-ketama-weighted")
			from := memcachedtest.StartSuite(t, suite)
			raw, want := from.Raw(), map[string]string{}
			for i := range 500 {
				key, value := fmt.Sprintf("k%%%d", i), strings.Repeat("v", i)
				raw.Must("STORED", fmt.Sprintf("set %s %d 1000 %d", key, i, len(value)), []byte(value))
				want[key] = value
			}
			servers, to := drainertest.Survivors(t, 1, roomy...)
			r := mustCopy(t, copyArgs(t, "gomemcache", []string{from.Address()}, to))
			if r.Receipt.Added != int64(len(want)) {
				t.Errorf("%+v", r.Receipt)
			}
			conn := servers[0].Dial()
			for key, value := range want {
				v, err := conn.Get([]byte(key))
				if err != nil {
					t.Fatal(err)
				}
				if v == nil || string(v.Data) != value || v.TTL < 900 || v.TTL > 1000 || v.Flags != uint64(len(value)) {
					t.Fatalf("%s: %+v", key, v)
				}
			}
		})
	}
}

// The answers of old memcacheds, as in their crawler.c: up to 1.5.3 a listing has no end, and may lose its last lines;
// testdata/listings has recorded ones.
func TestACopyReadsTheListsOfOldVersions(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyBringsEveryItemToWhereItsClientLooks/libmemcached-ketama-weighted")
	now := time.Now().Unix()
	line := func(key string, expireAt int64, rest string) string {
		return fmt.Sprintf("key=%s exp=%d la=%d cas=5 fetch=no%s\n", key, expireAt, now-60, rest)
	}
	lines := func(rest string) string {
		return line("a%20b", -1, rest) + line("one", -1, rest) + line("two", now+500, rest)
	}
	for version, list := range map[string]string{
		"1.4.31": lines(""),
		"1.5.3":  lines("") + "key=three exp=-1 la=17",
		"1.5.4":  lines(" cls=1 size=63") + "END\r\n",
		"1.6.8":  lines(" cls=1 size=63") + "END\r\n",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var locks atomic.Int64
			from := fakeVersion(t, version, now, "3", "200", func(request string) string {
				switch request {
				case "lru_crawler metadump hash":
					locks.Add(1)
				case "lru_crawler metadump all":
					return list
				case "gets one":
					return "VALUE one 12 3 5\r\nabc\r\nEND\r\n"
				case "gets two":
					return "VALUE two 4294967295 4 5\r\nab\r\n\r\nEND\r\n"
				}
				return "ERROR\r\n"
			})
			servers, to := drainertest.Survivors(t, 1, roomy...)
			c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
			c.UnreachableTimeout = wait.Long
			r := mustCopy(t, c)
			if got := strings.Join(r.Receipt.CantTell, ","); r.Receipt.Added != 2 || !strings.Contains(got, contract.CantTellAll) || !strings.Contains(got, contract.CantTellBinaryKeys) || r.Receipt.NoTextForm != 1 {
				t.Errorf("%+v", r.Receipt)
			}
			if n := locks.Load(); n > 0 {
				t.Errorf("it was asked %d times for a listing that unlocks its crawler", n)
			}
			conn := servers[0].Dial()
			one, err := conn.Get([]byte("one"))
			two, err2 := conn.Get([]byte("two"))
			if err != nil || err2 != nil || one == nil || two == nil || one.Flags != 12 || one.TTL != -1 || string(two.Data) != "ab\r\n" || two.Flags != 1<<32-1 || two.TTL < 400 || two.TTL > 500 {
				t.Errorf("%+v %+v %v %v", one, two, err, err2)
			}
		})
	}
}

// What was used last is asked for first, whatever the order of the list: it is warm when the rest is not.
func TestACopyBringsTheMostRecentlyUsedFirst(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	var list strings.Builder
	const each = 5
	for i := range each {
		for name, age := range map[string]int64{"hour": 3600, "now": 1, "day": 24 * 3600} {
			fmt.Fprintf(&list, "key=%s:%d exp=-1 la=%d cas=%d fetch=no cls=1 size=64\n", name, i, now-age, i+1)
		}
	}
	list.WriteString("END\r\n")
	var mu sync.Mutex
	var asked []string
	from := fakeSource(t, now, strconv.Itoa(3*each), "1000", func(request string) string {
		if strings.HasPrefix(request, "lru_crawler") {
			return list.String()
		}
		mu.Lock()
		defer mu.Unlock()
		key, _, _ := strings.Cut(strings.TrimPrefix(request, "mg "), ":")
		asked = append(asked, key)
		return "EN\r\n"
	})
	_, to := drainertest.Survivors(t, 1, roomy...)
	mustCopy(t, copyArgs(t, "gomemcache", []string{from.Address()}, to))
	mu.Lock()
	defer mu.Unlock()
	want := slices.Concat(slices.Repeat([]string{"now"}, each), slices.Repeat([]string{"hour"}, each), slices.Repeat([]string{"day"}, each))
	if !slices.Equal(asked[:min(len(asked), len(want))], want) {
		t.Errorf("asked for %v, want %v first", asked, want)
	}
}

// A cache of 1.4.31 that has nothing sends no line at all.
func TestACopyOfAnOldVersionThatIsEmptyEnds(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyBringsEveryItemToWhereItsClientLooks/libmemcached-ketama-weighted")
	from := memcachedtest.Fake(t, func(request string) string {
		switch request {
		case "version":
			return "VERSION 1.4.31\r\n"
		case "stats":
			return oldStats
		}
		return ""
	})
	_, to := drainertest.Survivors(t, 1, roomy...)
	if r := mustCopy(t, copyArgs(t, "gomemcache", []string{from.Address()}, to)); r.Receipt.Found != 0 {
		t.Errorf("%+v", r.Receipt)
	}
}

// A source that lies ends the copy, or is left out, and takes neither memory nor time without bound.
func TestACopyIsBoundedWhateverItsSourceSends(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list, value string
		endless     bool
		exit        int
	}{
		"a list without end":      {list: "key=x exp=-1 la=1 cas=1 fetch=no cls=1 size=1\n", endless: true, exit: contract.ExitFailed},
		"own keys without end":    {list: "key=AmazonElastiCache%3Acluster exp=-1 la=1 cas=1 fetch=no cls=1 size=1\n", endless: true, exit: contract.ExitFailed},
		"a line without end":      {list: strings.Repeat("k", 1<<20), exit: contract.ExitFailed},
		"a value of 2 GiB":        {list: "key=x exp=-1 la=1 cas=1 fetch=no cls=1 size=1\nEND\r\n", value: "VA 2147483647 f0 t-1 c1\r\n", exit: contract.ExitUnreachable},
		"sizes that lie":          {list: "key=x exp=-1 la=9223372036854775807 cas=18446744073709551615 fetch=no cls=1 size=9223372036854775807\nEND\r\n", value: "EN\r\n", exit: contract.ExitOK},
		"a number below 0":        {list: "key=x exp=-1 la=-9223372036854775808 cas=1 fetch=no cls=1 size=-5\nEND\r\n", value: "EN\r\n", exit: contract.ExitOK},
		"an answer that is wrong": {list: "key=x exp=-1 la=1 cas=1 fetch=no cls=1 size=1\nEND\r\n", value: "HD\r\n", exit: contract.ExitFailed},
		"a value for another key": {list: "key=x exp=-1 la=1 cas=1 fetch=no cls=1 size=1\nEND\r\n", value: "VA 1 f0 t9223372036854775807 l99999999999 c1\r\nx\r\n", exit: contract.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "a list without end" {
				tier.Second(t, "TestACopyIsBoundedWhateverItsSourceSends/a list without end")
			}
			now := time.Now().Unix()
			from := fakeSource(t, now, "-3", "99999999999999999999", func(request string) string {
				switch {
				case strings.HasPrefix(request, "lru_crawler"):
					if test.endless {
						return memcachedtest.Endless + test.list
					}
					return test.list
				case strings.Contains(request, " c u"):
					return "HD c1\r\n"
				}
				return test.value
			})
			_, to := drainertest.Survivors(t, 1, roomy...)
			c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
			c.AsMuchAsFits = true // it may say that it has any number of bytes
			if test.exit == contract.ExitUnreachable {
				c.UnreachableTimeout = 2 * time.Second
			}
			r := runCopy(t, c)
			if r.Code != test.exit {
				t.Errorf("exit code %d, want %d: %+v", r.Code, test.exit, r.Receipt)
			}
		})
	}
}

const oldStats = "STAT pid 1\r\nSTAT uptime 1000\r\nSTAT time 1700000000\r\nSTAT curr_items 0\r\nSTAT bytes 0\r\nEND\r\n"

// TestACopyIsOfOneSource, however many sources there are: asked by the wrong one, it would count as gone, and be deleted.
func TestACopyIsOfOneSource(t *testing.T) {
	const sources = 512
	c := &copying{}
	for i := range sources {
		c.sources = append(c.sources, &copySource{server: routing.Server{Host: fmt.Sprintf("cache-%d", i), Port: 11211}, started: 1000})
	}
	c.identify()
	for _, s := range c.sources {
		mark := s.mark(7)
		if got := c.sourceOf(mark); got != s || s.markedBefore(mark) {
			t.Errorf("a copy of %s is of %+v", s.server, got)
		}
	}
	before := c.sources[7].mark(7)
	for _, s := range c.sources {
		s.started += 100
	}
	c.identify()
	for i, s := range c.sources {
		if c.sourceOf(before) != nil || s.markedBefore(before) != (i == 7) {
			t.Errorf("a copy of an earlier process of source 7 is one of source %d", i)
		}
	}
}

// fakeSource answers like a memcached that has run for 1000 s at now, in Unix seconds, and says that it has so many items
// and bytes. Everything else is answered by answer.
func fakeSource(t *testing.T, now int64, items, bytes string, answer func(request string) string) *memcachedtest.Server {
	t.Helper()
	return fakeVersion(t, "1.6.38", now, items, bytes, answer)
}

// fakeVersion is a fakeSource of another version.
func fakeVersion(t *testing.T, version string, now int64, items, bytes string, answer func(request string) string) *memcachedtest.Server {
	t.Helper()
	return memcachedtest.Fake(t, func(request string) string {
		switch request {
		case "version":
			return "VERSION " + version + "\r\n"
		case "stats":
			return fmt.Sprintf("STAT pid 1\r\nSTAT uptime 1000\r\nSTAT time %d\r\nSTAT curr_items %s\r\nSTAT bytes %s\r\nEND\r\n", now, items, bytes)
		}
		return answer(request)
	})
}
