package cli_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// A random population, saved or left behind by a crash, is drained to random survivors. Meanwhile connections
// are dropped, attempts are killed at a random moment, survivors restart and items expire. When an attempt
// has succeeded, every live item is on its owner with its value, flags and time, unless the owner had its
// own, and the receipt adds up.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	drainertest.ForEachSeed(t, func(t *testing.T, seed uint64) { newTrial(t, seed).run() })
}

// trial is one population and its drain.
type trial struct {
	t       *testing.T
	r       *rand.Rand
	dir     string
	found   int64             // items in the file
	source  map[string]stored // what the source had
	theirs  map[string]stored // what the survivors had before
	servers []*memcachedtest.Server
	proxies []*drainertest.Proxy
	named   []string // the servers as the drainer's arguments name them
	owner   routing.Owner
	m       contract.Drain
}

// stored is an object with its time of expiry in Unix seconds, 0 never.
type stored struct {
	drainertest.Object
	expireAt int64
}

func newTrial(t *testing.T, seed uint64) *trial {
	t.Helper()
	tr := &trial{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(),
		source: map[string]stored{}, theirs: map[string]stored{}}
	tr.makeSurvivors()
	tr.makeSource()
	tr.m = drainertest.DrainArgs(t, tr.dir, tr.named)
	clients := routing.Clients()
	tr.m.Client = clients[tr.r.IntN(len(clients))]
	// Some clients hash the addresses that the servers' names resolve to; so does the drainer.
	list, err := routing.Resolve(t.Context(), tr.m.Client, drainertest.MustParse(t, tr.named), func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	})
	if err == nil {
		tr.owner, err = routing.New(tr.m.Client, list)
	}
	if err != nil {
		t.Fatalf("%s: %v", tr.m.Client, err)
	}
	for key := range tr.source {
		if tr.r.IntN(10) == 0 {
			tr.theirs[key] = stored{Object: drainertest.Object{Value: []byte("newer"), Flags: 9}}
		}
	}
	for i := range tr.servers {
		tr.storeTheirs(i)
	}
	return tr
}

func (tr *trial) makeSurvivors() {
	for i := range 1 + tr.r.IntN(3) {
		s := memcachedtest.Start(tr.t, "-m", "32", "-t", "2")
		p := drainertest.NewProxy(tr.t, s.Address(), tr.r.Uint64(), tr.r.IntN(6))
		tr.servers, tr.proxies = append(tr.servers, s), append(tr.proxies, p)
		tr.named = append(tr.named, fmt.Sprintf("server-%d:11211=%s", i, p.Address()))
	}
}

// makeSource fills a memcached and ends it, by a save or by a kill. In some trials the volume then looks as a
// member of mode Saved leaves it.
func (tr *trial) makeSource() {
	tr.t.Helper()
	args := []string{"-m", "16", "-f", "2", "-t", "2", "-o", "no_lru_crawler", "-e", filepath.Join(tr.dir, contract.WarmFile)}
	s := memcachedtest.Start(tr.t, args...)
	all := map[string]drainertest.Object{}
	for i := range tr.r.IntN(400) {
		o := drainertest.Object{Value: make([]byte, tr.r.IntN(300)), TTL: []int64{0, 0, 1, 3, 2000, 90000}[tr.r.IntN(6)]}
		if tr.r.IntN(50) == 0 {
			o.Value = make([]byte, tr.r.IntN(60000))
		}
		for j := range o.Value {
			o.Value[j] = byte(tr.r.Uint32())
		}
		if tr.r.IntN(2) == 0 {
			o.Flags = uint64(tr.r.Uint32())
		}
		key := fmt.Sprintf("key:%d:%x", i, tr.r.Uint64())
		if tr.r.IntN(10) == 0 {
			key = fmt.Sprintf("key \x00\n%d", i)
		}
		all[key] = o
	}
	drainertest.Store(tr.t, s.Address(), all)
	tr.source = tr.asHeld(s, all)
	if tr.r.IntN(2) == 0 {
		s.Save()
	} else {
		image := &warmfile.Image{}
		if err := image.Ask(s.Dial(), s.PID(), filepath.Join(tr.dir, contract.WarmFile), args); err != nil {
			tr.t.Fatal(err)
		}
		manifest := volume.Manifest{State: volume.Running, Image: image, BootID: volume.BootID()}
		b, err := manifest.Marshal()
		if err == nil {
			err = os.WriteFile(filepath.Join(tr.dir, contract.Manifest), b, 0o600)
		}
		if err != nil {
			tr.t.Fatal(err)
		}
		s.Kill()
	}
	if tr.r.IntN(3) == 0 {
		tr.dir = drainertest.Packed(tr.t, tr.dir)
	}
	tr.count()
}

// asHeld asks the server for the time when each object expires.
func (tr *trial) asHeld(s *memcachedtest.Server, all map[string]drainertest.Object) map[string]stored {
	tr.t.Helper()
	held, c := map[string]stored{}, s.Dial()
	for key, o := range all {
		v, err := c.Get([]byte(key))
		if err != nil {
			tr.t.Fatal(err)
		}
		switch {
		case v == nil && o.TTL > 0 && o.TTL < 10: // it has expired already
		case v == nil:
			tr.t.Fatalf("the source does not hold %q", key)
		default:
			at := memcachedtest.ExpireAt(tr.t, c, key)
			if o.TTL == 0 || at != 0 { // otherwise it expired between the two requests
				held[key] = stored{o, at}
			}
		}
	}
	return held
}

func (tr *trial) count() {
	tr.t.Helper()
	r, err := volume.Open(tr.dir, volume.Options{})
	if err != nil {
		tr.t.Fatal(err)
	}
	defer r.Close()
	if tr.found, err = r.Count(tr.t.Context()); err != nil {
		tr.t.Fatal(err)
	}
}

// storeTheirs stores a survivor's items of before the drain.
func (tr *trial) storeTheirs(i int) {
	tr.t.Helper()
	mine := map[string]drainertest.Object{}
	for key, o := range tr.theirs {
		if tr.owner.Owner([]byte(key)) == i {
			mine[key] = o.Object
		}
	}
	drainertest.Store(tr.t, tr.servers[i].Address(), mine)
}

// run makes attempts that fail, then one that must succeed.
func (tr *trial) run() {
	tr.t.Helper()
	for range tr.r.IntN(3) {
		tr.attemptAndKill()
	}
	if tr.r.IntN(4) == 0 && len(tr.source) > 0 {
		time.Sleep(time.Duration(tr.r.IntN(1500)) * time.Millisecond) // so that items expire meanwhile
	}
	r := tr.last()
	if err := r.AddsUp(tr.m.SourceID); err != nil {
		tr.t.Fatalf("%v: %+v", err, r)
	}
	added, present := int64(0), int64(0)
	for _, s := range r.Survivors {
		added, present = added+s.Added, present+s.Present
	}
	if r.Found != tr.found || added != r.Added || present != r.AlreadyPresent {
		tr.t.Errorf("%d items are in the file, the receipt says %+v", tr.found, r)
	}
	tr.check()
}

// attemptAndKill runs the drainer slowly and kills it at a random moment. Meanwhile a survivor may restart,
// and its clients' items are stored again.
func (tr *trial) attemptAndKill() {
	tr.t.Helper()
	m := tr.m
	m.RateLimitItems = 500 + tr.r.Int64N(5000)
	p := drainertest.Start(tr.t, m.Args()...)
	if tr.r.IntN(3) > 0 {
		p.WaitFor(`"phase":"Adding"`)
	}
	time.Sleep(time.Duration(tr.r.IntN(60)) * time.Millisecond) // to a random moment
	if tr.r.IntN(3) == 0 {
		i := tr.r.IntN(len(tr.servers))
		tr.servers[i].Kill()
		time.Sleep(time.Duration(tr.r.IntN(100)) * time.Millisecond)
		tr.servers[i].Restart()
		tr.storeTheirs(i)
		time.Sleep(time.Duration(tr.r.IntN(60)) * time.Millisecond)
	}
	_ = p.Cmd.Process.Kill()
	p.Wait()
}

// last runs the attempt that must succeed, in a process of its own or in this one.
func (tr *trial) last() *contract.Receipt {
	tr.t.Helper()
	_ = os.Remove(tr.m.Receipt)
	r := drainertest.Drain(tr.t, tr.m)
	if r.Code != 0 {
		tr.t.Errorf("exit code %d: %s", r.Code, r.Err)
	}
	return r.Receipt
}

// check compares the survivors' items with the source's.
func (tr *trial) check() {
	tr.t.Helper()
	var conns []*memcache.Conn
	for _, s := range tr.servers {
		conns = append(conns, s.DialFor(tr.t))
	}
	problems := 0
	for key, o := range tr.source {
		own, newer := tr.theirs[key]
		if newer {
			o = own
		}
		c := conns[tr.owner.Owner([]byte(key))]
		before := memcachedtest.Clock(tr.t, c)
		v, err := c.Get([]byte(key))
		if err != nil {
			tr.t.Fatal(err)
		}
		after := memcachedtest.Clock(tr.t, c)
		if problem := o.differs(v, before, after); problem != "" {
			if problems++; problems <= 5 {
				tr.t.Errorf("%q: %s", key, problem)
			}
		}
	}
	if problems > 0 {
		tr.t.Errorf("%s: %d of %d items are not as they should be", tr.m.Client, problems, len(tr.source))
	}
}

// differs tells how a value differs from the object, if the server had it between two readings of the
// server's clock.
func (o *stored) differs(v *memcache.Value, before, after int64) string {
	const second = 1
	switch {
	case v == nil && o.expireAt != 0 && o.expireAt <= after+second:
		return ""
	case v == nil:
		return fmt.Sprintf("is missing, expires at %d, now is %d", o.expireAt, after)
	case string(v.Data) != string(o.Value) || v.Flags != o.Flags:
		return fmt.Sprintf("%d bytes with flags %d, want %d with %d", len(v.Data), v.Flags, len(o.Value), o.Flags)
	case (o.expireAt == 0) != (v.TTL < 0):
		return fmt.Sprintf("%d s left, expires at %d", v.TTL, o.expireAt)
	case o.expireAt != 0 && (v.TTL+before > o.expireAt+second || v.TTL+after < o.expireAt-second):
		return fmt.Sprintf("%d s left between %d and %d, expires at %d", v.TTL, before, after, o.expireAt)
	}
	return ""
}
