package move

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// The servers of a copy may come from an endpoint for discovery, as ElastiCache has it; older ones have an item.
func TestACopyAsksAnEndpointForItsSources(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(9, 200)
	_, from := drainertest.Survivors(t, 2)
	drainertest.StoreByOwner(t, "gomemcache", from, all)
	var nodes []string
	for _, a := range from {
		host, port, _ := strings.Cut(a, ":")
		nodes = append(nodes, fmt.Sprintf("%s|%s|%s", host, host, port))
	}
	list := "12\n" + strings.Join(nodes, " ") + "\n"
	for name, question := range map[string]string{"discovery": "config get cluster", "older": "get " + contract.ListKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "older" {
				tier.Second(t, "TestACopyAsksAnEndpointForItsSources/discovery")
			}
			endpoint := memcachedtest.Fake(t, func(request string) string {
				if request != question {
					return "ERROR\r\n"
				}
				if name == "older" {
					return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", contract.ListKey, len(list), list)
				}
				return fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(list), list)
			})
			_, to := drainertest.Survivors(t, 1, roomy...)
			c := copyArgs(t, "gomemcache", nil, to)
			c.From, c.FromClient = []string{contract.FromDiscovery + endpoint.Address()}, "gomemcache"
			mustCopy(t, c)
			drainertest.Check(t, "gomemcache", to, all)
		})
	}
}

// A source may have TLS and logins of its own.
func TestACopyFromASecuredSource(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyAsksAnEndpointForItsSources/discovery")
	secured := memcachedtest.NewSecured(t)
	secured.Login("user:password\n")
	from := memcachedtest.StartBy(t, secured.Connection())
	all := drainertest.Objects(9, 200)
	drainertest.StoreBy(t, memcache.Dialer{Connection: secured.Connection()}, from.Address(), all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
	c.FromConnection = secured.Connection()
	mustCopy(t, c)
	drainertest.Check(t, "gomemcache", to, all)
}

// Volumes of members are copied as a drain reads them, and stay as they are.
func TestACopyFromVolumes(t *testing.T) {
	t.Parallel()
	all, want := []map[string]drainertest.Object{drainertest.Objects(9, 300), drainertest.Objects(10, 300)}, map[string]drainertest.Object{}
	for i := range 60 {
		all[0][fmt.Sprintf("large:%d", i)] = drainertest.Object{Value: make([]byte, 100_000)}
	}
	maps.Copy(want, all[1])
	maps.Copy(want, all[0]) // what both have is the first one's
	var dirs []string
	for _, objects := range all {
		dir := t.TempDir()
		s := drainertest.Serve(t, dir, "-m", "64")
		drainertest.Store(t, s.Address(), objects)
		s.End("saved")
		dirs = append(dirs, dir)
	}
	before := []string{drainertest.Fingerprint(t, dirs[0]), drainertest.Fingerprint(t, dirs[1])}
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", nil, to)
	c.From = []string{contract.FromVolumes + strings.Join(dirs, ",")}
	if r := mustCopy(t, c); r.Receipt.Reader != contract.ReaderWarmFile || r.Receipt.Passes != 1 {
		t.Errorf("%+v", r.Receipt)
	}
	drainertest.Check(t, "gomemcache", to, want)
	for i, dir := range dirs {
		if drainertest.Fingerprint(t, dir) != before[i] {
			t.Errorf("the volume %d has changed", i)
		}
	}
	_, small := drainertest.Survivors(t, 1, "-m", "4")
	c.Servers = small
	if r := runCopy(t, c); r.Code != contract.ExitUsage || r.Receipt.Reason != contract.ReasonTargetTooSmall {
		t.Errorf("to a server that is too small: exit code %d, %+v", r.Code, r.Receipt)
	}
}

// volumeOf returns the volume of a member that has stored the objects and has ended.
func volumeOf(t *testing.T, all map[string]drainertest.Object, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	s := drainertest.Serve(t, dir, args...)
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	return dir
}

// large are n objects of so many bytes each.
func large(name string, n, bytes int) map[string]drainertest.Object {
	all := map[string]drainertest.Object{}
	for i := range n {
		all[fmt.Sprintf("%s:%d", name, i)] = drainertest.Object{Value: make([]byte, bytes)}
	}
	return all
}

// Volumes that are copied one after the other are counted before the first one is: each of them fits, and all of them
// don't.
func TestACopyFromVolumesIsCountedBeforeItStarts(t *testing.T) {
	t.Parallel()
	servers, to := drainertest.Survivors(t, 1, "-m", "12")
	count := func(name string, besides ...int64) drainertest.Result {
		c := copyArgs(t, "gomemcache", nil, to)
		c.From = []string{contract.FromVolumes + volumeOf(t, large(name, 60, 100_000), "-m", "64")}
		c.Count, c.Besides = true, besides
		return runCopy(t, c)
	}
	first := count("a")
	if err := first.Receipt.Counted("the-claim", 1); err != nil || first.Receipt.Demand[0] != 6 || first.Receipt.Passes != 0 {
		t.Fatalf("%v: %+v\n%s", err, first.Receipt, first.Err)
	}
	second := count("b", first.Receipt.Demand...)
	if second.Code != contract.ExitUsage || second.Receipt.Reason != contract.ReasonTargetTooSmall {
		t.Errorf("two that don't fit: exit code %d, %+v", second.Code, second.Receipt)
	}
	second.OneLine(t, "would get 13 MiB", "12 MiB for all")
	if n := servers[0].Items(t); n != 0 {
		t.Errorf("%d items were stored", n)
	}
}

// What clients have stored at the servers takes room, and what an earlier run has copied doesn't.
func TestACopyKnowsWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	ours := large("ours", 80, 100_000)
	for name, from := range map[string]func(t *testing.T) string{
		"a volume": func(t *testing.T) string { return contract.FromVolumes + volumeOf(t, ours, "-m", "64") },
		"a running memcached": func(t *testing.T) string {
			s := memcachedtest.Start(t)
			drainertest.Store(t, s.Address(), ours)
			return contract.FromMemcached + s.Address()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopySaysWhatItCannotDoBeforeItStarts/-X")
			_, to := drainertest.Survivors(t, 1, "-m", "16")
			c := copyArgs(t, "gomemcache", nil, to)
			c.From = []string{from(t)}
			mustCopy(t, c)
			if r := mustCopy(t, c); r.Receipt.Added != 0 {
				t.Errorf("a second run has added items: %+v", r.Receipt)
			}
			_, c.Servers = drainertest.Survivors(t, 1, "-m", "16")
			theirs := large("theirs", 90, 100_000)
			drainertest.Store(t, c.Servers[0], theirs)
			if r := runCopy(t, c); r.Receipt.Reason != contract.ReasonTargetTooSmall || r.Receipt.Added != 0 {
				t.Errorf("%+v", r.Receipt)
			}
			drainertest.Check(t, "gomemcache", c.Servers, theirs)
		})
	}
}

// A copy from a volume that is killed at random goes on where it was: what a client has deleted or stored meanwhile
// stays so, and most of the rest is copied. When the copy is complete, another one of the same name copies nothing, as if
// it had been killed before it had written its receipt. One of another name begins anew.
func TestACopyFromAVolumeGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	const items, kills = 6000, 3
	all := large("item", items, 10_000)
	dir := volumeOf(t, all, "-m", "128")
	servers, to := drainertest.Survivors(t, 2, "-m", "200")
	c := copyArgs(t, "gomemcache", nil, to)
	c.From, c.Resume, c.RateLimitItems = []string{contract.FromVolumes + dir}, "monday", 2500
	owner, err := routing.New("gomemcache", drainertest.MustParse(t, to))
	if err != nil {
		t.Fatal(err)
	}
	// changed has what the client has made of the keys that it has found: "" deleted.
	changed, done := map[string]string{}, make(chan struct{})
	var created atomic.Int64 // by the client, which leaves most keys alone, however late the copy begins
	var client sync.WaitGroup
	client.Go(func() {
		raw := []*memcachedtest.Raw{servers[0].Raw(), servers[1].Raw()}
		random := rand.New(rand.NewPCG(1, 3))
		for len(changed) < items/4 {
			select {
			case <-done:
				return
			default:
			}
			key := fmt.Sprintf("item:%d", random.IntN(items))
			r := raw[owner.Owner([]byte(key))]
			if _, known := changed[key]; known {
				continue
			}
			switch random.IntN(2) {
			case 0:
				if r.Do("delete "+key, nil) == "DELETED" {
					changed[key] = ""
				}
			default:
				if r.Do("add "+key+" 0 0 6", []byte("client")) == "STORED" {
					created.Add(1)
				} else {
					r.Must("STORED", "set "+key+" 0 0 6", []byte("client"))
				}
				changed[key] = "client"
			}
			time.Sleep(time.Millisecond)
		}
	})
	random := rand.New(rand.NewPCG(1, 4))
	copied := func() int64 { return servers[0].Items(t) + servers[1].Items(t) - created.Load() }
	for range kills {
		before := copied()
		p := drainertest.Start(t, c.Args()...)
		more := int64(200 + random.IntN(800))
		wait.For(t, "more items", func() error {
			if n := copied(); n < before+more {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		p.Signal(syscall.SIGKILL)
		p.Wait()
	}
	r := mustCopy(t, c)
	if r.Receipt.Earlier < 600 {
		t.Errorf("it has begun at the beginning: %+v", r.Receipt)
	}
	close(done)
	client.Wait()
	missing := 0
	conns := []*memcache.Conn{servers[0].Dial(), servers[1].Dial()}
	for key := range all {
		v, err := conns[owner.Owner([]byte(key))].Get([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		want, known := changed[key]
		switch {
		case !known && v == nil:
			missing++
		case known && (v != nil) != (want != "") || known && v != nil && string(v.Data) != want:
			t.Errorf("%s is not as the client has left it (%q): %t", key, want, v != nil)
		}
	}
	if missing > items/2 || int64(missing) > r.Receipt.LeftOut || r.Receipt.Found != items {
		t.Errorf("%d of %d items were not copied: %+v", missing, items, r.Receipt)
	}
	c.RateLimitItems = 0
	if r := mustCopy(t, c); r.Receipt.Earlier != items || r.Receipt.Added != 0 {
		t.Errorf("after the end: %+v", r.Receipt)
	}
	c.Resume = "tuesday"
	if r := mustCopy(t, c); r.Receipt.Earlier != 0 || r.Receipt.Added < int64(missing) {
		t.Errorf("by another name, %d were missing: %+v", missing, r.Receipt)
	}
}

// A copy from a volume that is told to end leaves out only what it had handed over, and counts it. A copy of as much as
// fits has a place as well, if all fits.
func TestACopyFromAVolumeThatIsToldToEndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	for name, asMuchAsFits := range map[string]bool{"all": false, "as much as fits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopyFromAVolumeGoesOnWhereItWas")
			const items, ends = 4000, 3
			all := large("item", items, 5_000)
			servers, to := drainertest.Survivors(t, 1, "-m", "200")
			c := copyArgs(t, "gomemcache", nil, to)
			c.From, c.Resume, c.AsMuchAsFits = []string{contract.FromVolumes + volumeOf(t, all, "-m", "64")}, "monday", asMuchAsFits
			c.RateLimitItems = 1000
			for range ends {
				before := servers[0].Items(t)
				p := drainertest.Start(t, c.Args()...)
				wait.For(t, "more items", func() error {
					if n := servers[0].Items(t); n < before+300 {
						return fmt.Errorf("%d", n)
					}
					return nil
				})
				p.Signal(syscall.SIGTERM)
				p.Wait()
			}
			c.RateLimitItems = 0
			r := mustCopy(t, c)
			missing, conn := int64(0), servers[0].Dial()
			for key := range all {
				v, err := conn.Get([]byte(key))
				if err != nil {
					t.Fatal(err)
				}
				if v == nil {
					missing++
				}
			}
			if missing > r.Receipt.LeftOut || r.Receipt.Found != items || r.Receipt.Earlier < ends*300 {
				t.Errorf("%d are missing: %+v", missing, r.Receipt)
			}
			t.Logf("%d are missing, and %d were left out", missing, r.Receipt.LeftOut)
		})
	}
}

// A member of ours streams its items, and is listed in later passes.
func TestACopyFromAMembersStream(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyFromVolumes")
	dir, port := t.TempDir(), memcachedtest.FreePort(t)
	args := drainertest.MemberArgs(contract.Connection{}, dir, port, "-m", "64")
	args.ExportPort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	all := drainertest.Objects(9, 300)
	drainertest.Store(t, s.Address(), all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", []string{s.Address()}, to)
	c.FromExportPort = args.ExportPort
	if r := mustCopy(t, c); r.Receipt.Reader != contract.ReaderStream || r.Receipt.Passes != 2 {
		t.Errorf("%+v\n%s", r.Receipt, r.Err)
	}
	drainertest.Check(t, "gomemcache", to, all)
}

// Servers without CAS are copied from and to, and an item that is too large for the servers is counted, and left out.
func TestACopyBetweenOtherSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source, target []string
		cantTell       string
		large          int
		tooLarge       int64
	}{
		"source without CAS": {source: []string{"-C"}, cantTell: contract.CantTellChanges},
		"target without CAS": {target: []string{"-C"}, cantTell: contract.CantTellCopies},
		"large items":        {source: []string{"-I", "4m", "-m", "100"}, target: []string{"-I", "4m"}, cantTell: contract.CantTellCopies, large: 2 << 20},
		"too large items":    {source: []string{"-I", "4m", "-m", "100"}, cantTell: contract.CantTellCopies, large: 2 << 20, tooLarge: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopyFromVolumes")
			all := drainertest.Objects(9, 200)
			if test.large > 0 {
				all["large"] = drainertest.Object{Value: make([]byte, test.large)}
			}
			from := memcachedtest.Start(t, test.source...)
			drainertest.Store(t, from.Address(), all)
			_, to := drainertest.Survivors(t, 1, append(test.target, roomy...)...)
			c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
			c.Passes = 1
			r := mustCopy(t, c)
			if test.tooLarge > 0 {
				delete(all, "large")
			}
			if says := strings.Contains(r.Err, "can't mark copies"); says != slices.Contains(r.Receipt.CantTell, contract.CantTellCopies) {
				t.Errorf("it says so: %t, %+v", says, r.Receipt)
			}
			if !strings.Contains(strings.Join(r.Receipt.CantTell, " "), test.cantTell) || r.Receipt.TooLarge != test.tooLarge || r.Receipt.Rejected != test.tooLarge {
				t.Errorf("%+v", r.Receipt)
			}
			drainertest.Check(t, "gomemcache", to, all)
		})
	}
}

// Client flags of 64 bits, which few memcacheds are built for, are copied to such ones. Others are left without the item, and
// the receipt says so.
func TestACopyKeepsClientFlagsOf64Bits(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	const flags = uint64(1)<<63 | 7
	from := fakeSource(t, now, "2", "200", func(request string) string {
		switch {
		case strings.HasPrefix(request, "lru_crawler"):
			return fmt.Sprintf("OK\r\nkey=small exp=-1 la=%[1]d cas=5 fetch=no cls=1 size=60 flags=7\nkey=large exp=-1 la=%[1]d cas=6 fetch=no cls=1 size=60 flags=%[2]d\nEND\r\n", now, flags)
		case strings.HasPrefix(request, "mg small v"):
			return "VA 1 f7 t-1 c5 l1 ksmall\r\n1\r\n"
		case strings.HasPrefix(request, "mg large v"):
			return fmt.Sprintf("VA 1 f%d t-1 c6 l1 klarge\r\n2\r\n", flags)
		case strings.HasPrefix(request, "mg small"):
			return "HD c5\r\n"
		case strings.HasPrefix(request, "mg large"):
			return "HD c6\r\n"
		}
		return "ERROR\r\n"
	})
	for name, start := range map[string]func(testing.TB, ...string) *memcachedtest.Server{"32 bits": memcachedtest.Start, "64 bits": memcachedtest.StartLarge} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopyFromVolumes")
			to := start(t, roomy...)
			c := copyArgs(t, "gomemcache", []string{from.Address()}, []string{to.Address()})
			c.Passes = 1
			r := mustCopy(t, c)
			conn := to.Dial()
			small, err := conn.Get([]byte("small"))
			large, err2 := conn.Get([]byte("large"))
			if err != nil || err2 != nil || small == nil || small.Flags != 7 {
				t.Fatalf("%+v, %v %v", small, err, err2)
			}
			if name == "64 bits" {
				if large == nil || large.Flags != flags || r.Receipt.Rejected != 0 {
					t.Errorf("%+v: %+v", large, r.Receipt)
				}
				return
			}
			if large != nil || r.Receipt.Rejected != 1 || !strings.Contains(r.Receipt.Message, "--enable-large-client-flags") {
				t.Errorf("%+v: %+v", large, r.Receipt)
			}
		})
	}
}

// A copy adds no faster than it is told.
func TestACopyKeepsItsLimit(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyFromVolumes")
	all := drainertest.Objects(9, 300)
	_, from := drainertest.Survivors(t, 2)
	drainertest.StoreByOwner(t, "gomemcache", from, all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", from, to)
	c.Passes, c.RateLimitItems = 1, 200
	if r := mustCopy(t, c); r.Receipt.Seconds[contract.PhaseAdding] < 1 {
		t.Errorf("%+v", r.Receipt)
	}
	drainertest.Check(t, "gomemcache", to, all)
}
