package move

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// leavingMember is a leaving member, and the servers of the new ring.
type leavingMember struct {
	t       *testing.T
	mapped  *memcachedtest.Mapped
	member  *memcachedtest.Server
	export  *Export
	servers []*memcachedtest.Server
	list    []routing.Server
	owner   routing.Owner
	all     map[string]drainertest.Object

	mu       sync.Mutex
	progress []contract.Progress
}

// newLeavingMember stores n objects at the member. Its items are streamed, or else listed.
func newLeavingMember(t *testing.T, n int, streamed bool, args ...string) *leavingMember {
	t.Helper()
	mapped := startMapped(t, "-f", "4", "-m", "64", "-I", "2m")
	f := &leavingMember{t: t, mapped: mapped, member: mapped.Server, all: drainertest.Objects(9, n)}
	drainertest.Store(t, f.member.Address(), f.all)
	if streamed {
		f.export = &Export{Address: exporting(t, mapped), Client: "gomemcache"}
	}
	var addresses []string
	for range 2 {
		f.servers = append(f.servers, memcachedtest.Start(t, args...))
		addresses = append(addresses, f.servers[len(f.servers)-1].Address())
	}
	f.list = drainertest.MustParse(t, addresses)
	var err error
	if f.owner, err = routing.New("gomemcache", f.list); err != nil {
		t.Fatal(err)
	}
	return f
}

// engine returns an engine that has not begun.
func (f *leavingMember) engine() *Engine {
	return &Engine{SourceID: "the-claim", Owner: f.owner, Servers: f.list, Export: f.export,
		UnreachableTimeout: wait.Long, Log: io.Discard, Progress: func(p contract.Progress) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.progress = append(f.progress, p)
		}}
}

func (f *leavingMember) leave(patience time.Duration) contract.Receipt {
	source := drainertest.MustParse(f.t, []string{f.member.Address()})[0]
	return f.engine().MoveFromLeaving(f.t.Context(), source, f.t.TempDir(), patience)
}

// said returns the messages of the phase.
func (f *leavingMember) said(phase contract.Phase) (messages []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.progress {
		if p.Phase == phase {
			messages = append(messages, p.Message)
		}
	}
	return messages
}

// check checks that every object is where clients look, and nothing at the member.
func (f *leavingMember) check(r contract.Receipt) {
	f.t.Helper()
	if err := r.AddsUp("the-claim"); err != nil {
		f.t.Errorf("%v: %+v", err, r)
	}
	var addresses []string
	for _, s := range f.list {
		addresses = append(addresses, s.Address())
	}
	drainertest.Check(f.t, "gomemcache", addresses, f.all)
	if left := f.member.Items(f.t); left != 0 {
		f.t.Errorf("the member has %d items", left)
	}
}

// lateClient calls the member until stop is called: it stores that many keys of its own, repeatedly, and
// reads.
func (f *leavingMember) lateClient(keys int) (stop func()) {
	var stopped atomic.Bool
	var running sync.WaitGroup
	conn := f.member.Dial()
	running.Go(func() {
		for i := 0; !stopped.Load(); i++ {
			key, value := fmt.Sprintf("late:%d", i%keys), fmt.Sprintf("value %d", i)
			if answer, err := ask(conn, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value)); err != nil || answer != "STORED" {
				f.t.Errorf("%s: %q, %v", key, answer, err)
				return
			}
			f.all[key] = drainertest.Object{Value: []byte(value)}
			if _, err := conn.Get([]byte(key)); err != nil {
				f.t.Errorf("%s: %v", key, err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return sync.OnceFunc(func() {
		stopped.Store(true)
		running.Wait()
	})
}

func bothWays(t *testing.T, test func(t *testing.T, streamed bool)) {
	t.Helper()
	t.Parallel()
	for name, streamed := range map[string]bool{"streamed": true, "listed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, streamed)
		})
	}
}

// All of the member's items are where clients look. The member waits until no client has called it for a
// while.
func TestAMemberThatNoClientCallsLeaves(t *testing.T) {
	tier.Second(t, "TestAMemberLeavesWhenItsLastClientHasGone")
	bothWays(t, func(t *testing.T, streamed bool) {
		f := newLeavingMember(t, 3000, streamed)
		r := f.leave(wait.Long)
		f.check(r)
		if r.Found != 3000 || !r.Settled || r.Seconds[contract.PhaseSettling] < quietFor.Seconds() {
			t.Errorf("%+v", r)
		}
	})
}

// The last items that clients with an old list store there are where the other clients look, whatever was
// moved before, and the status names those clients.
func TestAMemberLeavesWhenItsLastClientHasGone(t *testing.T) {
	bothWays(t, func(t *testing.T, streamed bool) {
		if streamed {
			tier.Second(t, "TestAMemberLeavesWhenItsLastClientHasGone/listed")
		}
		f := newLeavingMember(t, 1000, streamed)
		stop := f.lateClient(100)
		defer stop()
		done := make(chan contract.Receipt, 1)
		go func() { done <- f.leave(wait.Long) }()
		wait.For(t, "the clients to be named", func() error {
			for _, message := range f.said(contract.PhaseSettling) {
				if strings.Contains(message, "; connections: 127.0.0.1 (") && len(message) <= contract.MaxCallers {
					return nil
				}
			}
			return fmt.Errorf("%q", f.said(contract.PhaseSettling))
		})
		stop()
		select {
		case r := <-done:
			f.check(r)
			if !r.Settled || r.Found < int64(len(f.all)) {
				t.Errorf("%d objects: %+v", len(f.all), r)
			}
		case <-wait.Over():
			t.Fatal("it still waits for the client")
		}
	})
}

// A client that never stops is waited for until patience is over. The receipt adds up.
func TestAClientThatNeverStopsIsWaitedForSoLong(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{0, time.Millisecond, 3 * time.Second} {
		t.Run(patience.String(), func(t *testing.T) {
			if patience != 3*time.Second {
				tier.Second(t, "TestAClientThatNeverStopsIsWaitedForSoLong/3s")
			}
			t.Parallel()
			f := newLeavingMember(t, 1000, true)
			stop := f.lateClient(1 << 30)
			defer stop()
			r := f.leave(patience)
			if err := r.AddsUp("the-claim"); err != nil || r.Settled || r.Found < 1000 {
				t.Errorf("%v: %+v", err, r)
			}
			// Nothing is lost: the rest is moved from here.
			stop()
			again := f.leave(0)
			f.check(again)
			if again.Found+r.Found != int64(len(f.all)) {
				t.Errorf("%d objects, %d and %d were found", len(f.all), r.Found, again.Found)
			}
		})
	}
}

// settles has, for each command, whether a member settles while a client sends nothing else.
var settles = map[string]bool{"get nothing": false, "mg nothing": false, "gat 10 nothing": false, "touch nothing 1": false,
	"delete nothing": false, "md nothing": false, "incr nothing 1": false, "decr nothing 1": false, "ma nothing": false, "flush_all": false,
	"version": true, "mn": true, "stats": true, "me nothing": true}

// Reads count as calls, too. Statistics don't, because the supervisor and monitoring ask for them.
func TestReadsCountAsCallsAndStatisticsDoNot(t *testing.T) {
	p := makePair(t, 0, "")
	p.l.watch = p.l.link(p.l.member)
	defer p.l.watch.close()
	look := func() counters {
		now, err := p.l.counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	client := p.member.Dial()
	for command, settles := range settles {
		before := look()
		if command == "stats" {
			if _, err := client.Stats(""); err != nil {
				t.Fatal(err)
			}
		} else if _, err := ask(client, command+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if counts := look().commands != before.commands; counts == settles {
			t.Errorf("%s counts as a call: %t", command, counts)
		}
	}
	// The supervisor of a leaving member stores the list.
	p.l.leaving = &leaving{l: p.l}
	p.l.demand.now = look()
	for range 3 {
		before := look()
		p.member.Raw().Must("STORED", "set "+contract.ListKey+" 0 0 1", []byte("x"))
		if now := look(); now.commands != before.commands {
			t.Errorf("%d commands, %d before the list was stored", now.commands, before.commands)
		}
	}
}

// A client that only reads is waited for, too. A client that only asks for statistics, as the supervisor and
// monitoring do, is not.
func TestAClientWhoOnlyReads(t *testing.T) {
	for command, settles := range settles {
		t.Run(command, func(t *testing.T) {
			tier.Second(t, "TestReadsCountAsCallsAndStatisticsDoNot")
			t.Parallel()
			f := newLeavingMember(t, 10, true)
			ctx, cancel := context.WithCancel(t.Context())
			var client sync.WaitGroup
			conn := f.member.Dial()
			defer client.Wait()
			defer cancel()
			client.Go(func() {
				for pace.Sleep(ctx, 100*time.Millisecond) == nil {
					if command == "stats" {
						_, _ = conn.Stats("")
					} else {
						_, _ = ask(conn, command+"\r\n")
					}
				}
			})
			patience := 8 * time.Second
			if settles {
				patience = wait.Long
			}
			if r := f.leave(patience); r.Settled != settles || r.Reason != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A client that calls now and then is also waited for, until patience is over.
func TestAClientWhoCallsEveryOtherSecond(t *testing.T) {
	tier.Second(t, "TestSilenceIsAsShortAsTheRateAllows")
	t.Parallel()
	f := newLeavingMember(t, 10, true)
	ctx, cancel := context.WithCancel(t.Context())
	var client sync.WaitGroup
	conn := f.member.Dial()
	defer client.Wait()
	defer cancel()
	client.Go(func() {
		for pace.Sleep(ctx, 2*time.Second) == nil {
			_, _ = ask(conn, "mg nothing\r\n")
		}
	})
	if r := f.leave(9 * time.Second); r.Settled || r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// settleAfter moves the items of a leaving member that no client has called for a minute when the mover comes.
// settleAfter returns how long the mover has seen no client since. during is called when a pass begins.
func settleAfter(t *testing.T, during func(f *leavingMember)) (seen time.Duration) {
	t.Helper()
	f := newLeavingMember(t, 100, false)
	silence := func() *export.Silence {
		stats, err := f.member.Dial().Stats("")
		if err != nil {
			t.Error(err)
		}
		n, err := memcache.ClientCommands(stats)
		if err != nil {
			t.Error(err)
		}
		return &export.Silence{Commands: n, Seconds: 60}
	}
	address := memcachedtest.Between(t, exportingAfter(t, f.mapped, silence), func(sent []byte) bool {
		if bytes.Contains(sent, []byte(export.Pass)) {
			during(f)
		}
		return true
	})
	f.export = &Export{Address: address, Client: "gomemcache"}
	e := f.engine()
	l := e.runningMember(drainertest.MustParse(t, []string{f.member.Address()})[0], nowhere, t.TempDir())
	l.leaving, l.patience = &leaving{l: l, report: e.report}, wait.Long
	e.Source = l
	r := e.Run(t.Context())
	f.check(r)
	if !r.Settled {
		t.Errorf("%+v", r)
	}
	for i := range l.clients.looks {
		if seen += l.clients.looks[i].seen; l.clients.looks[i].unseen {
			seen = 0
		}
	}
	return seen
}

// A member that no client called before the mover came, nor while its items were moved, is not waited for.
func TestTheSilenceBeforeTheMoverCounts(t *testing.T) {
	t.Parallel()
	if seen := settleAfter(t, func(*leavingMember) {}); seen >= quietFor {
		t.Errorf("the mover has waited until it saw no client for %s", seen)
	}
}

// A client may have called during a pass. The mover waits for that client.
func TestTheSilenceBeforeAPassEndsWithIt(t *testing.T) {
	t.Parallel()
	var once sync.Once
	seen := settleAfter(t, func(f *leavingMember) {
		once.Do(func() {
			if _, err := ask(f.member.Dial(), "get nothing\r\n"); err != nil {
				t.Error(err)
			}
		})
	})
	if seen < quietFor {
		t.Errorf("the mover has left when it saw no client for %s, although one had called while items were moved", seen)
	}
}

// laterSecond waits until the clock has advanced by more than so many whole seconds.
func laterSecond(t *testing.T, more int64) {
	t.Helper()
	end := time.Now().Unix() + more
	wait.For(t, "a later second", func() error {
		if now := time.Now().Unix(); now <= end {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
}

// Another attempt may find it again.
func TestALeavingMemberEndsMeanwhile(t *testing.T) {
	tier.Second(t, "TestASurvivorThatRestartsGetsTheRest")
	t.Parallel()
	for name, then := range map[string]struct {
		do     func(*memcachedtest.Server)
		within time.Duration // for its answer
		reason string
	}{"for good": {(*memcachedtest.Server).Kill, 5 * time.Second, reasonSource},
		"and is back": {func(s *memcachedtest.Server) {
			s.Kill()
			laterSecond(t, 2) // its start is known in whole seconds
			s.Restart()
		}, wait.Long, reasonRestarted}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLeavingMember(t, 100, true)
			e := f.engine()
			e.UnreachableTimeout = then.within
			source := drainertest.MustParse(t, []string{f.member.Address()})[0]
			done := make(chan contract.Receipt, 1)
			go func() { done <- e.MoveFromLeaving(t.Context(), source, t.TempDir(), wait.Long) }()
			wait.For(t, "the member to settle", func() error {
				if len(f.said(contract.PhaseSettling)) == 0 {
					return errors.New("it doesn't yet")
				}
				return nil
			})
			then.do(f.member)
			r := <-done
			if r.Reason != then.reason || slices.Contains(contract.NoRetry, int32(r.ExitCode)) || r.Complete {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The item stays there, and the receipt says so.
func TestALeavingMemberKeepsWhatIsRefused(t *testing.T) {
	tier.Second(t, "TestAnItemThatItsOwnerRefusesStays")
	bothWays(t, func(t *testing.T, streamed bool) {
		f := newLeavingMember(t, 0, streamed, "-m", "2", "-M")
		large := map[string]drainertest.Object{}
		for i := range 100 {
			large["large:"+strconv.Itoa(i)] = drainertest.Object{Value: make([]byte, 100_000)}
		}
		drainertest.Store(t, f.member.Address(), large)
		r := f.leave(wait.Long)
		if r.ExitCode != contract.ExitRejected || r.Found != 100 || r.Added+r.Rejected != 100 || r.Rejected == 0 || r.Settled {
			t.Errorf("%+v", r)
		}
		if left := f.member.Items(t); left != r.Rejected {
			t.Errorf("%d items are left, want %d", left, r.Rejected)
		}
	})
}

// Under another name the member would lose each of its items: an add finds the item there, and then the move
// deletes it.
func TestALeavingMemberIsNoServer(t *testing.T) {
	f := newLeavingMember(t, 1000, true)
	port := strconv.Itoa(f.member.Port)
	for name, address := range map[string]string{
		"another name":      net.JoinHostPort("localhost", port),
		"behind a balancer": memcachedtest.Between(t, f.member.Address(), func([]byte) bool { return true }),
	} {
		t.Run(name, func(t *testing.T) {
			args := drainertest.MoveArgs(t, "gomemcache", f.member.Address(), []string{f.list[0].Address(), address})
			r := drainertest.Move(t, args)
			if r.Code != contract.ExitUsage || r.Receipt.Reason != reasonSourceIsServer || !strings.Contains(r.Receipt.Message, address) {
				t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
			}
			if n := f.member.Items(t); n != int64(len(f.all)) {
				t.Errorf("%d items are left", n)
			}
		})
	}
}

// There is at most a line a second, and one at the beginning of each phase.
func TestProgressOfALeavingMember(t *testing.T) {
	t.Parallel()
	f := newLeavingMember(t, 100, false)
	a := drainertest.MoveArgs(t, "gomemcache", f.member.Address(), []string{f.list[0].Address(), f.list[1].Address()})
	a.Patience, a.Deadline = wait.Long, 2*wait.Long
	r := drainertest.Move(t, a)
	if err := r.Receipt.AddsUp("the-claim"); err != nil || !r.Receipt.Settled {
		t.Fatalf("%v: %+v\n%s", err, r.Receipt, r.Err)
	}
	lines, seconds := strings.Split(strings.TrimSpace(r.Out), "\n"), 0.0
	for _, s := range r.Receipt.Seconds {
		seconds += s
	}
	if len(lines) > int(seconds)+6 || !strings.Contains(r.Out, `"phase":"Settling"`) {
		t.Errorf("%d lines in %.1f s:\n%s", len(lines), seconds, r.Out)
	}
	checkPasses(t, lines)
	var last contract.Progress
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Phase != contract.PhaseDone || last.ItemsDone != 100 {
		t.Errorf("%s: %v", lines[len(lines)-1], err)
	}
	a.Patience = a.Deadline
	if r := drainertest.Move(t, a); r.Code != contract.ExitUsage {
		t.Errorf("patience as long as the deadline: exit code %d", r.Code)
	}
}

// checkPasses checks that the share of a pass that is done never falls, and that there is one.
func checkPasses(t *testing.T, lines []string) {
	t.Helper()
	var before contract.Progress
	for _, line := range lines {
		var p contract.Progress
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Phase == contract.PhaseDone {
			continue
		}
		if p.PassDone > p.PassTotal || p.Pass < before.Pass || p.Pass == before.Pass && p.PassDone*before.PassTotal < before.PassDone*p.PassTotal {
			t.Errorf("pass %d with %d of %d items, after pass %d with %d of %d", p.Pass, p.PassDone, p.PassTotal, before.Pass, before.PassDone, before.PassTotal)
		}
		before = p
	}
	if before.Pass == 0 || before.PassDone == 0 {
		t.Errorf("there is no pass: %q", lines)
	}
}

// A later pass takes nothing back that an earlier one has done.
func TestALaterPassIsCountedByItself(t *testing.T) {
	done := int64(0)
	l := &runningMember{done: func() int64 { return done }}
	if p := l.listed(0); p != (pass{}) {
		t.Errorf("before the first pass: %+v", p)
	}
	l.expect(1000)
	done = 1010 // a stream has more than it estimated
	if p := l.listed(done); p != (pass{1, 0, 1010}) {
		t.Errorf("the first pass: %+v", p)
	}
	l.expect(50)
	if p := l.listed(1020); p != (pass{2, 1010, 50}) {
		t.Errorf("the second pass: %+v", p)
	}
}

// Nothing is moved.
func TestALeavingMemberWithoutCAS(t *testing.T) {
	member, owner := memcachedtest.Start(t, "-C"), memcachedtest.Start(t)
	member.Raw().Must("STORED", "set key 0 0 1", []byte("v"))
	r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", member.Address(), []string{owner.Address()}))
	if r.Receipt.Reason != reasonNoCAS || member.Items(t) != 1 || owner.Items(t) != 0 {
		t.Errorf("%+v", r.Receipt)
	}
}

// agedLeavingMember returns a leaving member with each items of that size, for each of eight ages.
func agedLeavingMember(t *testing.T, each, size int, streamed bool, args ...string) *leavingMember {
	t.Helper()
	f := newLeavingMember(t, 0, streamed, args...)
	for i := range each {
		for minutes := 10; minutes <= 80; minutes += 10 {
			f.all[drainertest.AgedKey(minutes, i)] = drainertest.Object{Value: make([]byte, size)}
		}
	}
	drainertest.Store(t, f.member.Address(), f.all) // items of one age are all over the file
	drainertest.Age(t, f.mapped)
	if streamed {
		f.export.Address = exporting(t, f.mapped)
	}
	return f
}

// asked is an Owner that records the ages of the keys that it is asked for, in order.
type asked struct {
	t     *testing.T
	of    routing.Owner
	seen  map[string]bool
	order []int
}

func (a *asked) Owner(key []byte) int {
	if !a.seen[string(key)] {
		a.seen[string(key)] = true
		a.order = append(a.order, drainertest.MinutesOf(a.t, key))
	}
	return a.of.Owner(key)
}

// Clients look for them first. The connections of their owners get them in that order.
func TestTheHottestItemsOfALeavingMemberMoveFirst(t *testing.T) {
	t.Parallel()
	const each = 250
	f := agedLeavingMember(t, each, 200, true)
	order := &asked{t: t, of: f.owner, seen: map[string]bool{}}
	f.owner = order
	f.check(f.leave(0))
	if len(order.order) != 8*each {
		t.Fatalf("%d items were moved", len(order.order))
	}
	coldest := 0
	for i, minutes := range order.order {
		// Two ages may be in one band, whose items come in any order.
		if coldest = max(coldest, minutes); minutes < coldest-10 {
			t.Fatalf("item %d was used %d minutes ago, and one before it %d minutes ago", i, minutes, coldest)
		}
	}
}

// Each item is given to its owner and counted, once more if the owner evicted it before it could be deleted
// at the member. If the items come by age, those that were used last are left in the end. The owners have a
// single LRU. With several, which a thread of memcached maintains at its own pace, the evicted items would
// depend on how fast the others come.
func TestOwnersThatEvictWhileALeavingMembersItemsCome(t *testing.T) {
	tier.Second(t, "TestTheHottestItemsOfALeavingMemberMoveFirst")
	bothWays(t, func(t *testing.T, streamed bool) {
		const each = 1000
		f := agedLeavingMember(t, each, 4000, streamed, "-m", "8", "-f", "2", "-o", "no_lru_maintainer")
		r := f.leave(wait.Long)
		if err := r.AddsUp("the-claim"); err != nil || r.Found < 8*each || r.Added != r.Found || !r.Settled || f.member.Items(t) != 0 {
			t.Errorf("%v: %d items are left; %+v", err, f.member.Items(t), r)
		}
		evicted, there := int64(0), map[int]int{}
		for i, server := range f.servers {
			evicted += r.Survivors[i].Evictions
			conn := server.Dial()
			for key := range f.all {
				if f.owner.Owner([]byte(key)) != i {
					continue
				}
				if v, err := conn.Get([]byte(key)); err != nil {
					t.Fatal(err)
				} else if v != nil {
					there[drainertest.MinutesOf(t, []byte(key))]++
				}
			}
		}
		t.Logf("%d were evicted; those that are there, by their age: %v", evicted, there)
		if evicted == 0 {
			t.Error("no owner evicted anything: this shows nothing")
		}
		if hot, cold := there[10]+there[20], there[50]+there[60]+there[70]+there[80]; streamed && (hot < each*3/2 || cold > each/2) {
			t.Errorf("%d of the %d that were used last are there, and %d of the older half", hot, 2*each, cold)
		}
	})
}
