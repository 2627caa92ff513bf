package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Until then it has moved nothing, and reports that it is prepared. Items that clients store meanwhile are
// moved, too. The same holds if it is told to take leases.
func TestAMoveThatIsPreparedBeginsWhenItIsTold(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"told": "ring 2\n", "told to take leases": "ring 2+leases"} {
		t.Run(name, func(t *testing.T) { begins(t, text) })
	}
}

func begins(t *testing.T, text string) {
	bothWays(t, func(t *testing.T, streamed bool) {
		if streamed == strings.HasSuffix(text, contract.BeginLeases) {
			tier.Second(t, "TestAMoveThatIsPreparedBeginsWhenItIsTold/told/streamed")
		}
		f := newLeavingMember(t, 1000, streamed)
		e := f.engine()
		file := filepath.Join(t.TempDir(), "begin")
		e.Begin = &contract.Begin{File: file, When: "ring 2", Within: wait.Long}
		source := drainertest.MustParse(t, []string{f.member.Address()})[0]
		done := make(chan contract.Receipt, 1)
		go func() { done <- e.MoveFromLeaving(t.Context(), source, t.TempDir(), time.Millisecond) }()
		wait.For(t, "the move to be prepared", func() error {
			if len(f.said(contract.PhasePrepared)) == 0 {
				return errors.New("it is not")
			}
			return nil
		})
		s := starting{Begin: *e.Begin}
		for _, other := range []string{"", "ring 1", "ring 2 3", "ring 22", "ring", "+leases", "ring 1+leases"} {
			write(t, file, other)
			if begin, _ := s.says(); begin {
				t.Errorf("%q tells it to begin", other)
			}
		}
		more := map[string]drainertest.Object{}
		for key := range drainertest.Objects(10, 100) {
			more[key] = drainertest.Object{Value: []byte("stored meanwhile")}
			f.all[key] = more[key]
		}
		drainertest.Store(t, f.member.Address(), more)
		if said := f.said(contract.PhaseAdding); len(said) > 0 || f.servers[0].Items(t)+f.servers[1].Items(t) > 0 {
			t.Fatalf("it has begun: %d items, %q", f.servers[0].Items(t)+f.servers[1].Items(t), said)
		}
		write(t, file, text)
		r := <-done
		f.check(r)
		if r.Found != int64(len(f.all)) || r.Seconds[contract.PhasePrepared] == 0 {
			t.Errorf("%+v", r)
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// A move that is not told to begin ends, and another move may be told to begin.
func TestAMoveThatIsNotToldToBeginEnds(t *testing.T) {
	t.Parallel()
	f := newLeavingMember(t, 100, true)
	a := drainertest.MoveArgs(t, "gomemcache", f.member.Address(), []string{f.list[0].Address(), f.list[1].Address()})
	a.ExportPort = int32(drainertest.MustParse(t, []string{f.export.Address})[0].Port)
	a.Begin = contract.Begin{File: filepath.Join(t.TempDir(), "begin"), When: "2", Within: time.Second}
	r := drainertest.Move(t, a)
	if r.Code != contract.ExitFailed || r.Receipt.Reason != contract.ReasonNotBegun || r.Receipt.Found != 0 || r.Receipt.Complete {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	if n := f.member.Items(t); n != 100 {
		t.Errorf("%d items are left", n)
	}
	a.Deadline = a.Begin.Within
	if r := drainertest.Move(t, a); r.Code != contract.ExitUsage {
		t.Errorf("as long as the deadline: exit code %d", r.Code)
	}
	a.Begin.When, a.Deadline = "", 0
	if r := drainertest.Move(t, a); r.Code != contract.ExitUsage || !strings.Contains(r.Err, contract.FlagBeginWhen) {
		t.Errorf("without a text: exit code %d, %s", r.Code, r.Err)
	}
}

// following is a client with an old list, some of whose requests are for keys of others. The client makes
// requests in pairs: one at the member by the old list, and one for a key that stays there, or at a new
// owner.
type following struct {
	from, to, beside *memcache.Conn
	key, other       string

	late, stop atomic.Bool
	bursts     atomic.Int64
	done       sync.WaitGroup
}

// follow starts such a client: late requests go to from, or else to; others go to beside all the time.
func follow(t *testing.T, from, to, beside *memcache.Conn, key, other string) *following {
	f := &following{from: from, to: to, beside: beside, key: key, other: other}
	makeRequests(t, f)
	return f
}

// makeRequests makes the clients' requests in turn, so that each makes as many, until the first one ends.
func makeRequests(t *testing.T, clients ...*following) {
	for _, f := range clients {
		f.late.Store(true)
	}
	first := clients[0]
	first.done.Go(func() {
		for !first.stop.Load() {
			for _, f := range clients {
				c := f.to
				if f.late.Load() {
					c = f.from
				}
				if err := errors.Join(burst(c, f.key), burst(f.beside, f.other)); err != nil {
					t.Error(err)
					return
				}
				f.bursts.Add(1)
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(first.end)
}

// many is how many requests the movers of tests expect before they judge: of so many bursts that chance decides nothing,
// however long these take. When a client has made as many as judged, its mover has judged it.
const (
	perBurst = 150
	many     = 200 * perBurst
	judged   = 300
)

// staysAt returns a key that the first server keeps.
func staysAt(e *Engine) string {
	key := "stays"
	for i := 0; e.Owner.Owner([]byte(key)) != 0; i++ {
		key = fmt.Sprintf("stays%d", i)
	}
	return key
}

// burst asks for a key so often together that also a slow machine makes enough requests a second.
func burst(c *memcache.Conn, key string) error {
	request, err := memcache.AppendFetch(nil, []byte(key))
	if err == nil {
		err = c.Send(bytes.Repeat(request, perBurst))
	}
	for i := 0; i < perBurst && err == nil; i++ {
		_, err = c.Fetched()
	}
	return err
}

func (f *following) end() {
	f.stop.Store(true)
	f.done.Wait()
}

// A client that is late finds its items where it looks for them until it has followed the list, and the mover says
// that it is late. Then they are where it looks, and the move ends.
func TestItemsStayUntilTheirClientHasFollowed(t *testing.T) {
	for _, who := range []string{"a leaving member", "a member that stays"} {
		t.Run(who, func(t *testing.T) {
			if who == "a leaving member" {
				tier.Second(t, "TestItemsStayUntilTheirClientHasFollowed/a_member_that_stays")
			}
			t.Parallel()
			b, f := newBehind(t, true), newLeavingMember(t, 1000, true)
			leaves := who == "a leaving member"
			e, member, owner, key := b.engine, b.member, b.owner, b.keys[0]
			e.Progress = f.engine().Progress
			if leaves {
				e, member, key = f.engine(), f.member, "late"
				owner = f.servers[f.owner.Owner([]byte(key))].Dial()
			}
			beside, stays := member.Dial(), staysAt(b.engine)
			if leaves {
				beside = f.servers[0].Dial()
			}
			client, movers := follow(t, member.Dial(), owner, beside, key, stays), member.Dial()
			if leaves {
				movers = f.servers[0].Dial()
			}
			supervise(t, member.Dial())
			items := member.Items(t)
			file := filepath.Join(t.TempDir(), "begin")
			log := &drainertest.Buffer{}
			e.Log, e.need, e.Begin = log, many, &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: true}
			done := make(chan contract.Receipt, 1)
			go func() {
				if leaves {
					done <- e.MoveFromLeaving(t.Context(), drainertest.MustParse(t, []string{member.Address()})[0], t.TempDir(), 10*wait.Long)
				} else {
					done <- e.MoveFrom(t.Context(), 0, t.TempDir(), 10*wait.Long)
				}
			}()
			write(t, file, "2")
			wait.For(t, "the mover to say who is late", func() error {
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, p := range f.progress {
					if p.Phase == contract.PhaseSettling && p.Late > 0.5 && strings.Contains(p.Message, "clients still ") && strings.Contains(p.Message, "connections: 127.0.0.1 (") {
						return nil
					}
				}
				return fmt.Errorf("%+v", f.progress)
			})
			// What other movers store meanwhile shows of no client that it has followed.
			if err := storedByMovers(t, movers, stays, client); err != nil {
				t.Fatal(err)
			}
			if n := member.Items(t); n != items {
				t.Errorf("%d of %d items are left while the client is late\n%s", n, items, log)
			}
			client.late.Store(false)
			wait.For(t, "the items to be moved", func() error {
				if n := member.Items(t); n != 0 {
					return fmt.Errorf("%d items are left", n)
				}
				return nil
			})
			if r := <-done; r.Reason != "" || r.Found < items || r.Settled != leaves {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Each of two movers waits for its own member's clients.
func TestAMoverWaitsForItsOwnMembersClients(t *testing.T) {
	tier.Second(t, "TestItemsStayUntilTheirClientHasFollowed/a_member_that_stays")
	t.Parallel()
	members := []*leavingMember{newLeavingMember(t, 1000, true), newLeavingMember(t, 1000, true)}
	owners := members[0]
	members[1].list, members[1].owner = owners.list, owners.owner
	clients, done := make([]*following, 2), make([]chan contract.Receipt, 2)
	for i, f := range members {
		key := fmt.Sprintf("late%d", i)
		owner := owners.servers[owners.owner.Owner([]byte(key))]
		clients[i] = &following{from: f.member.Dial(), to: owner.Dial(), beside: owners.servers[0].Dial(), key: key, other: "other"}
	}
	makeRequests(t, clients...)
	for i, f := range members {
		done[i] = make(chan contract.Receipt, 1)
		e, file := f.engine(), filepath.Join(t.TempDir(), "begin")
		e.need, e.Begin = many, &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: true}
		go func() {
			done[i] <- e.MoveFromLeaving(t.Context(), drainertest.MustParse(t, []string{f.member.Address()})[0], t.TempDir(), 10*wait.Long)
		}()
		write(t, file, "2")
	}
	for _, f := range members {
		wait.For(t, "both movers to wait for their clients", func() error {
			if len(f.said(contract.PhaseSettling)) == 0 {
				return errors.New("one doesn't")
			}
			return nil
		})
	}
	clients[0].late.Store(false)
	if r := <-done[0]; r.Reason != "" || r.Found != 1000 {
		t.Errorf("%+v", r)
	}
	for end := clients[1].bursts.Load() + judged; clients[1].bursts.Load() < end && !t.Failed(); {
		time.Sleep(time.Millisecond)
	}
	if n := members[1].member.Items(t); n != 1000 {
		t.Errorf("%d of 1000 items are left while the client is late", n)
	}
	clients[1].late.Store(false)
	if r := <-done[1]; r.Reason != "" || r.Found != 1000 {
		t.Errorf("%+v", r)
	}
}

// What a client with an old list stores after the first pass stays where it finds it, until as many clients have followed
// again.
func TestLaterPassesWaitForLateClientsToo(t *testing.T) {
	for _, who := range []string{"a leaving member", "a member that stays"} {
		t.Run(who, func(t *testing.T) {
			if who == "a leaving member" {
				tier.Second(t, "TestLaterPassesWaitForLateClientsToo/a_member_that_stays")
			}
			t.Parallel()
			b := newBehind(t, false)
			l := b.engine.runningMember(b.engine.Servers[0], 0, t.TempDir())
			beside := b.member
			if who == "a leaving member" {
				f := newLeavingMember(t, 10, false)
				l = f.engine().runningMember(drainertest.MustParse(t, []string{f.member.Address()})[0], nowhere, t.TempDir())
				l.leaving = &leaving{l: l}
				b.member, b.owner, beside = f.member, f.servers[0].Dial(), f.servers[0]
			}
			client := follow(t, b.member.Dial(), b.owner, beside.Dial(), b.keys[0], staysAt(b.engine))
			l.clients.need, l.patience, l.enter = many, 10*wait.Long, func(contract.Phase) {}
			if err := l.resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.measure(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.beginPatience(time.Now())
			l.clients.passes()
			l.demand.pause()
			var more atomic.Bool
			done := make(chan error, 1)
			go func() {
				var is bool
				var err error
				if l.leaving != nil {
					is, err = l.leaving.settle(t.Context(), some, shortRest)
				} else {
					is, err = l.staying.settle(t.Context(), l, shortRest, some)
				}
				more.Store(is)
				done <- err
			}()
			for end := client.bursts.Load() + judged; client.bursts.Load() < end && !t.Failed(); time.Sleep(time.Millisecond) {
				select {
				case err := <-done:
					t.Fatalf("the next pass begins while the client is late: %t, %v", more.Load(), err)
				default:
				}
			}
			client.late.Store(false)
			if err := <-done; err != nil || !more.Load() {
				t.Errorf("when the client has followed: %t, %v", more.Load(), err)
			}
			client.end()
			l.demand.pause()
			l.closeLinks()
		})
	}
}

// The wait for late clients has an end, also before the first pass. Then all items are moved.
func TestPatienceEndsTheWaitForTheFirstPass(t *testing.T) {
	t.Parallel()
	f := newLeavingMember(t, 100, true)
	client := follow(t, f.member.Dial(), f.servers[0].Dial(), f.servers[0].Dial(), "late", "other")
	e, log := f.engine(), &drainertest.Buffer{}
	file := filepath.Join(t.TempDir(), "begin")
	e.need, e.Log, e.Begin = 100*many, log, &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: true}
	write(t, file, "2")
	r := e.MoveFromLeaving(t.Context(), drainertest.MustParse(t, []string{f.member.Address()})[0], t.TempDir(), time.Second)
	client.end()
	f.check(r)
	if r.Settled || !strings.Contains(log.String(), "the move begins: patience is over, and ") {
		t.Errorf("%+v\n%s", r, log)
	}
}

// An owner that doesn't answer is no measure of how many clients have followed.
func TestAnOwnerThatDoesNotAnswerIsNoMeasure(t *testing.T) {
	t.Parallel()
	f := newLeavingMember(t, 100, false)
	l := f.engine().runningMember(drainertest.MustParse(t, []string{f.member.Address()})[0], nowhere, t.TempDir())
	l.leaving = &leaving{l: l}
	silent := memcachedtest.Between(t, f.servers[0].Address(), func([]byte) bool { return false })
	l.servers = []routing.Server{l.servers[0], drainertest.MustParse(t, []string{silent})[0]}
	if err := l.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := burst(f.member.Dial(), "key"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.clients.measure()
	if l.clients.rate == 0 || l.clients.perOther != 0 {
		t.Errorf("%+v", l.clients)
	}
	l.demand.pause()
	l.closeLinks()
}

// Numbers that are not of one time are taken together until they tell nevertheless, whichever of them is late.
func TestNumbersOfDifferentTimesAreTakenTogether(t *testing.T) {
	for _, who := range []string{"member", "owners"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			const late = 2 * lookEvery
			p := newLateAnswers(t)
			l := p.mover()
			for {
				p.member.Store(0)
				p.owners.Store(0)
				if err := l.resume(t.Context()); err != nil {
					t.Fatal(err)
				}
				if who == "member" {
					p.member.Store(int64(late))
				} else {
					p.owners.Store(int64(late))
				}
				looks := len(l.clients.looks)
				for len(l.clients.looks) == looks {
					if _, err := l.observe(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if len(l.demand.owners) == 0 {
					continue // one has not answered for a second
				}
				if took := l.clients.looks[looks].took; took < 10*late {
					t.Errorf("a look of %s says something, although it took %s to read its numbers", took, late)
				}
				break
			}
			p.ends(l)
		})
	}
}

// Owners that answer late hide no silence: looks that are taken together count for more time than one.
func TestLateAnswersHideNoSilence(t *testing.T) {
	t.Parallel()
	p := newLateAnswers(t)
	p.owners.Store(int64(lookEvery))
	l := p.mover()
	if err := l.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; !l.clients.silent(); n++ {
		if n > 3*int(quietFor/mostSeen) {
			t.Fatalf("no silence after %d looks: %+v", n, l.clients)
		}
		if _, err := l.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
	}
	if n == 0 {
		t.Error("silence without a look")
	}
	for _, look := range l.clients.looks {
		if look.without < look.seen {
			t.Errorf("no request was made in %s, and %s are seen to be without one", look.seen, look.without)
		}
	}

	l.demand.pause()
	if err := l.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !l.clients.silent() {
		t.Errorf("there was no request meanwhile: %+v", l.clients)
	}
	p.ends(l)
}

// Requests are counted before clients are told, also if owners answer late from the first look on.
func TestLateAnswersHideNoRequests(t *testing.T) {
	t.Parallel()
	p := newLateAnswers(t)
	l := p.mover()
	if err := l.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.owners.Store(int64(8 * lookEvery))
	client := follow(t, p.f.member.Dial(), p.f.servers[0].Dial(), p.f.servers[0].Dial(), "late", "other")
	l.clients.need = 100 * many // more than are counted
	if err := l.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.end()
	if l.clients.rate == 0 {
		t.Errorf("no requests: %+v", l.clients)
	}
	p.ends(l)
}

// Numbers that took long to read are no measure to begin with, so they are read again.
func TestNumbersThatAreReadLateAreReadAgain(t *testing.T) {
	t.Parallel()
	p := newLateAnswers(t)
	p.member.Store(int64(2 * lookEvery))
	l := p.mover()
	if err := l.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := p.asked.Load(); n < 2 {
		t.Errorf("the member was asked for its numbers %d times", n)
	}
	p.ends(l)
}

// lateAnswers has a leaving member and its owners behind proxies that answer with the numbers so many nanoseconds late.
type lateAnswers struct {
	f              *leavingMember
	member, owners atomic.Int64
	asked          atomic.Int64 // how often the member was
	source         []routing.Server
}

func newLateAnswers(t *testing.T) *lateAnswers {
	t.Helper()
	p := &lateAnswers{f: newLeavingMember(t, 100, false)}
	late := func(s *memcachedtest.Server, by *atomic.Int64) string {
		return memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
			if bytes.HasPrefix(sent, []byte("stats")) {
				if s == p.f.member {
					p.asked.Add(1)
				}
				time.Sleep(time.Duration(by.Load()))
			}
			return true
		})
	}
	p.source = drainertest.MustParse(t, []string{late(p.f.member, &p.member)})
	var owners []string
	for _, s := range p.f.servers {
		owners = append(owners, late(s, &p.owners))
	}
	p.f.list = drainertest.MustParse(t, owners)
	return p
}

// mover returns one that has not begun.
func (p *lateAnswers) mover() *runningMember {
	p.f.t.Helper()
	l := p.f.engine().runningMember(p.source[0], nowhere, p.f.t.TempDir())
	l.leaving = &leaving{l: l}
	return l
}

// ends closes the mover's connections.
func (p *lateAnswers) ends(l *runningMember) {
	l.demand.pause()
	l.closeLinks()
}

// storedByMovers stores a key as movers store items, far more often than the client makes requests, while that makes so
// many that the mover has looked at some.
func storedByMovers(t *testing.T, c *memcache.Conn, key string, client *following) error {
	const n = 1000
	for end := client.bursts.Load() + judged; client.bursts.Load() < end && !t.Failed(); {
		err := c.Send(bytes.Repeat([]byte("ms "+key+" 1 ME\r\nx\r\n"), n))
		for i := 0; i < n && err == nil; i++ {
			_, err = c.Line()
		}
		if err != nil {
			return err
		}
	}
	if err := c.Send([]byte("md " + key + "\r\n")); err != nil {
		return err
	}
	_, err := c.Line()
	return err
}

// supervise asks for the member's own items, as its supervisor and routers do.
func supervise(t *testing.T, conn *memcache.Conn) {
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	done.Go(func() {
		for pace.Sleep(ctx, 100*time.Millisecond) == nil {
			for _, key := range []string{contract.ListKey, contract.RingNumberKey} {
				if _, err := conn.CAS([]byte(key)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
	})
}

// If a member that stays logs no requests, nothing tells which clients are late, and the move begins when it is told.
func TestAMemberThatLogsNothingIsMovedAtOnce(t *testing.T) {
	tier.Second(t, "TestItemsStayUntilTheirClientHasFollowed/a_member_that_stays")
	t.Parallel()
	b := newBehind(t, true, "-W")
	client := follow(t, b.member.Dial(), b.owner, b.member.Dial(), b.keys[0], b.keys[1])
	log := &drainertest.Buffer{}
	file := filepath.Join(t.TempDir(), "begin")
	b.engine.Log, b.engine.Begin = log, &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: true}
	done := b.move(10 * wait.Long)
	write(t, file, "2")
	wait.For(t, "the items to be moved", func() error {
		if n := b.member.Items(t); n != 0 {
			return fmt.Errorf("%d items are left", n)
		}
		return nil
	})
	client.end()
	if r := <-done; r.Reason != "" || r.Found < behindKeys || !strings.Contains(log.String(), "the member logs no requests") {
		t.Errorf("%+v\n%s", r, log)
	}
}

// A member that logs requests may stop doing so: a connection breaks, or it has too many that watch it. Then nothing tells any
// more which clients are late, and the move goes on as where that was never known.
func TestAMemberThatStopsToLogRequests(t *testing.T) {
	tier.Second(t, "TestALogOfRequestsThatEndsTellsOfNone")
	t.Parallel()
	b, watches := newBehind(t, true), atomic.Int64{}
	between := memcachedtest.Between(t, b.member.Address(), func(sent []byte) bool {
		return !bytes.Contains(sent, []byte("watch fetchers")) || watches.Add(1) == 1
	})
	b.engine.Servers[0] = drainertest.MustParse(t, []string{between})[0]
	client := follow(t, b.member.Dial(), b.owner, b.member.Dial(), b.keys[0], staysAt(b.engine))
	log := &drainertest.Buffer{}
	file := filepath.Join(t.TempDir(), "begin")
	b.engine.Log, b.engine.Begin = log, &contract.Begin{File: file, When: "2", Within: wait.Long, Follow: true}
	var waits atomic.Bool
	b.engine.Progress = func(p contract.Progress) { waits.Store(waits.Load() || p.Phase == contract.PhaseSettling) }
	done := b.move(10 * wait.Long)
	write(t, file, "2")
	wait.For(t, "the move to wait for the client", func() error {
		if !waits.Load() {
			return errors.New("it doesn't")
		}
		return nil
	})
	client.late.Store(false)
	wait.For(t, "the log to be refused", func() error {
		if watches.Load() < 2 {
			return errors.New("the member was not asked for it again")
		}
		return nil
	})
	client.end()
	if r := <-done; r.Reason != "" || r.Found < behindKeys || b.member.Items(t) != 0 || !strings.Contains(log.String(), "the member logs no requests") {
		t.Errorf("%d items are left, %+v\n%s", b.member.Items(t), r, log)
	}
}

func TestALogOfRequestsThatEndsTellsOfNone(t *testing.T) {
	t.Parallel()
	b := newBehind(t, false)
	l := b.engine.runningMember(b.engine.Servers[0], 0, t.TempDir())
	if err := l.resume(t.Context()); err != nil || !l.counts() {
		t.Fatalf("requests are counted: %t, %v", l.counts(), err)
	}
	l.demand.log.conn.Close()
	wait.For(t, "the end of the log to be seen", func() error {
		if _, err := l.observe(t.Context()); err != nil || l.counts() {
			return fmt.Errorf("requests are counted: %t, %w", l.counts(), err)
		}
		return nil
	})
	if requests, err := l.observe(t.Context()); err != nil || requests != 0 {
		t.Errorf("%f requests, %v", requests, err)
	}
}
