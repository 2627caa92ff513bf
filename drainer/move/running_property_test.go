package move

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// Clients have changed from one list of servers to another, or to another way of choosing. While they read
// and write where they look now, every server is moved. Drainers are killed at random moments, connections
// dropped, and all of it is begun again. At no time
//
//   - is a value older than the last acknowledged one,
//   - is a key at neither place,
//   - does a value come back that a client deleted when no other copy existed, or any other than that copy;
//     docs/hazards.md describes that case.
//
// In the end every item is where its client looks and nowhere else, and the receipts add up. With even seeds
// the items are streamed by the members' supervisors, and with every sixth seed these streams break.
func TestNothingIsOutdated(t *testing.T) {
	t.Parallel()
	drainertest.ForEachSeed(t, func(t *testing.T, seed uint64) { newReshuffle(t, seed).run() })
}

// reshuffle is a number of servers whose items belong elsewhere.
type reshuffle struct {
	t             *testing.T
	r             *rand.Rand
	client        string
	servers       []*memcachedtest.Server
	list          []routing.Server // as the drainer gets it
	ring          int              // how many of them clients look at now; the others are leaving
	exports       []string         // addresses of the streams, if there are any
	broken        bool             // the streams break
	before, after routing.Owner
	keys          []*versioned
	stop          atomic.Bool
	undone        atomic.Int64 // deletes
}

// versioned is a key of which one client stores growing versions.
type versioned struct {
	key string
	// acked is the latest version that a server acknowledged; 0 means deleted.
	acked int
	// copied is the version that was in the old place when the key was deleted, and that may come back; 0 for
	// none.
	copied int
	// latest is the latest version that was stored; none is stored twice.
	latest int
	// seen means that its owner had it once, so it must be there.
	seen bool
}

func newReshuffle(t *testing.T, seed uint64) *reshuffle {
	t.Helper()
	s := &reshuffle{t: t, r: rand.New(rand.NewPCG(seed, 3))}
	for i := range 2 + s.r.IntN(3) {
		var server *memcachedtest.Server
		if seed%2 == 0 {
			mapped := startMapped(t, "-f", "4", "-m", "16", "-t", "2")
			server, s.exports = mapped.Server, append(s.exports, exporting(t, mapped))
			if s.broken = seed%6 == 0; s.broken {
				s.exports[i] = drainertest.NewProxy(t, s.exports[i], s.r.Uint64(), 2).Address()
			}
		} else {
			server = memcachedtest.Start(t, "-m", "32", "-t", "2")
		}
		p := drainertest.NewProxy(t, server.Address(), s.r.Uint64(), s.r.IntN(8))
		s.servers = append(s.servers, server)
		s.list = append(s.list, drainertest.MustParse(t, []string{fmt.Sprintf("server-%d:11211=%s", i, p.Address())})...)
	}
	clients := routing.Clients()
	s.client = clients[s.r.IntN(len(clients))]
	s.list, s.ring = s.resolved(s.client, s.list), len(s.list)
	// Before, there were fewer servers, or more, or the applications used another client.
	s.before = s.routed(s.client, s.list[:1+s.r.IntN(len(s.list)-1)])
	switch s.r.IntN(4) {
	case 0, 1:
		s.ring = 1 + s.r.IntN(len(s.list)-1)
		s.before = s.routed(s.client, s.list)
	case 2:
		s.before = s.routed(clients[s.r.IntN(len(clients))], s.list)
	}
	var err error
	if s.after, err = routing.New(s.client, s.list[:s.ring]); err != nil {
		t.Fatalf("%s: %v", s.client, err)
	}
	s.fill()
	return s
}

// routed returns the owner function; some clients hash the addresses of names.
func (s *reshuffle) routed(client string, servers []routing.Server) routing.Owner {
	s.t.Helper()
	owner, err := routing.New(client, s.resolved(client, servers))
	if err != nil {
		s.t.Fatalf("%s: %v", client, err)
	}
	return owner
}

func (s *reshuffle) resolved(client string, servers []routing.Server) []routing.Server {
	s.t.Helper()
	list, err := routing.Resolve(s.t.Context(), client, servers, func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	})
	if err != nil {
		s.t.Fatalf("%s: %v", client, err)
	}
	return list
}

// fill stores version 1 of each key where it was looked for before.
func (s *reshuffle) fill() {
	s.t.Helper()
	parts := make([]map[string]drainertest.Object, len(s.servers))
	for i := range parts {
		parts[i] = map[string]drainertest.Object{}
	}
	for i := range 20 + s.r.IntN(400) {
		v := &versioned{key: fmt.Sprintf("key:%d:%x", i, s.r.Uint32()), acked: 1, latest: 1}
		s.keys = append(s.keys, v)
		parts[s.before.Owner([]byte(v.key))][v.key] = drainertest.Object{Value: v.value(1)}
	}
	for i, part := range parts {
		drainertest.Store(s.t, s.servers[i].Address(), part)
	}
}

// value returns the value of a version; its length varies.
func (v *versioned) value(version int) []byte {
	return fmt.Appendf(nil, "%d %s %s", version, v.key, strings.Repeat("x", version*37%200))
}

// version returns the version that a server has, 0 for none.
func (v *versioned) version(c *memcache.Conn) (int, error) {
	held, err := c.Get([]byte(v.key))
	if err != nil || held == nil {
		return 0, err
	}
	number, rest, _ := strings.Cut(string(held.Data), " ")
	n, err := strconv.Atoi(number)
	if err != nil || !strings.HasPrefix(rest, v.key) || string(held.Data) != string(v.value(n)) {
		return 0, fmt.Errorf("%s holds %q", v.key, held.Data)
	}
	return n, nil
}

func (s *reshuffle) run() {
	s.t.Helper()
	var clients sync.WaitGroup
	const concurrent = 2
	for n := range concurrent {
		var mine []*versioned
		for i := n; i < len(s.keys); i += concurrent {
			mine = append(mine, s.keys[i])
		}
		c := &user{reshuffle: s, r: rand.New(rand.NewPCG(s.r.Uint64(), 4)), keys: mine}
		clients.Go(c.run)
	}
	defer clients.Wait()
	defer s.stop.Store(true)
	for range s.r.IntN(3) {
		s.attempt(time.Duration(s.r.IntN(30)) * time.Millisecond)
	}
	s.complete()
	s.stop.Store(true)
	clients.Wait()
	s.check()
	s.t.Logf("%s: %d deletes were undone", s.client, s.undone.Load())
}

// each moves every server, all at the same time.
func (s *reshuffle) each(ctx context.Context, limit pace.Limit, done func(i int, r contract.Receipt)) {
	var all sync.WaitGroup
	for i := range s.list {
		all.Go(func() {
			m := &Engine{SourceID: "the-claim", Owner: s.after, Servers: s.list[:s.ring], Limit: limit,
				UnreachableTimeout: wait.Long, Log: io.Discard}
			var log drainertest.Buffer
			if s.exports != nil {
				m.Export, m.Log = &Export{Address: s.exports[i], Client: s.client}, &log
			}
			if i < s.ring {
				done(i, m.MoveFrom(ctx, i, s.t.TempDir(), 0))
			} else {
				done(i, m.MoveFromLeaving(ctx, s.list[i], s.t.TempDir(), time.Duration(i%2)*time.Millisecond))
			}
			if text := log.String(); !s.broken && ctx.Err() == nil && strings.Contains(text, "is asked for") {
				s.t.Errorf("server %d is not read from its file: %s", i, text)
			}
		})
	}
	all.Wait()
}

// attempt ends the slow drainers after a while, in the middle of their work: their connections close, as
// those of a killed process do.
func (s *reshuffle) attempt(after time.Duration) {
	ctx, kill := context.WithTimeout(s.t.Context(), after)
	defer kill()
	s.each(ctx, pace.Limit{Items: 500 + s.r.Int64N(20_000)}, func(int, contract.Receipt) {})
}

func (s *reshuffle) complete() {
	s.t.Helper()
	s.each(s.t.Context(), pace.Limit{}, func(i int, r contract.Receipt) {
		if err := r.AddsUp("the-claim"); err != nil {
			s.t.Errorf("server %d: %v: %+v", i, err, r)
		}
	})
}

// check looks for every key on every server.
func (s *reshuffle) check() {
	s.t.Helper()
	for i, server := range s.servers {
		c := server.DialFor(s.t)
		for _, v := range s.keys {
			got, err := v.version(c)
			want := 0
			if s.after.Owner([]byte(v.key)) == i {
				want = v.acked
			}
			if err != nil || got != want && (got != v.copied || s.after.Owner([]byte(v.key)) != i) {
				s.t.Errorf("%s: server %d holds version %d of %s, want %d: %v", s.client, i, got, v.key, want, err)
			}
		}
	}
}

// user is a client of the new list with its own keys.
type user struct {
	*reshuffle
	r    *rand.Rand
	keys []*versioned
}

func (u *user) run() {
	var conns []*memcache.Conn
	for _, s := range u.servers {
		conns = append(conns, s.DialFor(u.t))
	}
	for !u.stop.Load() {
		v := u.keys[u.r.IntN(len(u.keys))]
		now, old := conns[u.after.Owner([]byte(v.key))], conns[u.before.Owner([]byte(v.key))]
		var err error
		switch {
		case u.r.IntN(3) == 0:
			err = u.set(v, now)
		case u.r.IntN(20) == 0:
			err = u.remove(v, now, old)
		default:
			err = u.get(v, now, old)
		}
		if err != nil {
			u.t.Errorf("%s: %v", u.client, err)
			return
		}
	}
}

func (u *user) set(v *versioned, now *memcache.Conn) error {
	next := v.latest + 1
	data := v.value(next)
	answer, err := ask(now, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", v.key, len(data), data))
	if err != nil || answer != "STORED" {
		return fmt.Errorf("set: %q, %w", answer, err)
	}
	v.acked, v.latest, v.copied, v.seen = next, next, 0, true
	return nil
}

// remove deletes a key; a copy in its old place can come back.
func (u *user) remove(v *versioned, now, old *memcache.Conn) error {
	copied := 0
	if old != now {
		var err error
		if copied, err = v.version(old); err != nil {
			return err
		}
	}
	answer, err := ask(now, "delete "+v.key+"\r\n")
	if err != nil || answer != "DELETED" && v.acked > 0 && (copied == 0 || v.seen) {
		return fmt.Errorf("delete: %q, %w", answer, err)
	}
	v.acked, v.copied, v.seen = 0, copied, false
	return nil
}

// get reads where the client looks now; an item that isn't there yet has to be in its old place, or is being
// moved.
func (u *user) get(v *versioned, now, old *memcache.Conn) error {
	got, err := v.version(now)
	if err == nil && got == 0 && !v.seen && v.acked > 0 {
		if got, err = v.version(old); err == nil && got == 0 {
			got, err = v.version(now)
			v.seen = true
		}
	} else if got > 0 {
		v.seen = true
	}
	if got > 0 && got == v.copied {
		v.acked, v.copied = got, 0
		u.undone.Add(1)
	}
	if err == nil && got != v.acked {
		err = fmt.Errorf("version %d of %s is read, %d was acknowledged", got, v.key, v.acked)
	}
	return err
}

func ask(c *memcache.Conn, request string) (string, error) {
	if err := c.Send([]byte(request)); err != nil {
		return "", err
	}
	line, err := c.Line()
	return string(line), err
}
