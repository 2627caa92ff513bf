package router_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

const (
	refused = "SERVER_ERROR the ring changes, and this router has not been told how\r\n"
	// waits is the time between two tables if the operator has waited in vain, in seconds.
	waits = int64(contract.RingWaits/time.Second) + 5
	// A router that is behind has three periods to notice it, which also allows for a busy machine.
	leftBehind, lookPeriod = 500 * time.Millisecond, time.Second
)

// fenced returns a router that is offered tables.
func fenced(t testing.TB, table *router.Table) *running {
	t.Helper()
	return launch(t, router.Config{ReadErrors: true, Table: table, Fence: true, LeftBehind: leftBehind, LookPeriod: lookPeriod})
}

// tables returns the tables of a ring change, each as late after the one before as if a router had not
// followed.
func tables(from, to router.Ring) (all []*router.Table) {
	for i := range int64(6) {
		t := &router.Table{Number: 1000 + i*waits, Key: "secret", State: ringchange.State(i % 5), Old: from, New: to}
		switch i {
		case 0:
			t.Old, t.New = router.Ring{}, from
		case 5:
			t.Old = router.Ring{}
		}
		if i > 0 {
			t.Before = t.Number - waits
		}
		all = append(all, t)
	}
	return all
}

// take offers a table until the router takes it.
func (r *running) take(t testing.TB, table *router.Table) {
	t.Helper()
	wait.For(t, fmt.Sprintf("table %d in state %v", table.Number, table.State), func() error {
		switch taken, err := r.Offer(table); {
		case err != nil:
			return err
		case !taken:
			_, why := r.Acknowledged()
			return fmt.Errorf("it is not taken: %q", why)
		}
		return nil
	})
	wait.For(t, "its acknowledgement", func() error { return acknowledged(r, table.Number) })
}

// A router that can't connect to a new member goes on to Prepare before the others may be in Settle:
// otherwise it would store items where no router looks.
func TestARouterWithoutTheNewMemberIsNotLeftInStable(t *testing.T) {
	tier.Second(t, "TestARouterThatWaitedWithoutTheNewMemberDoesNotGoOnInStable")
	t.Parallel()
	all := members(t, 2)
	from, to := ring(t, all[0]), ring(t, all...)
	to.Servers = slices.Clone(to.Servers)
	to.Servers[1].Port = uint16(memcachedtest.FreePort(t))
	told := tables(from, to)
	r := fenced(t, told[0])
	wait.For(t, "ready", r.Ready)
	if err := r.follow(told[1]); err != nil {
		t.Fatal(err)
	}
	moves := slices.IndexFunc(owned(to, 20), func(key string) bool { return to.Owner.Owner([]byte(key)) == 1 })
	key, c := owned(to, 20)[moves], dial(t, r.address)
	wait.For(t, "an error for a key that moves", func() error {
		if number, why := r.Acknowledged(); number == told[1].Number {
			t.Fatalf("table %d is acknowledged, %q", number, why)
		}
		if got := c.ask("set " + key + " 0 0 1\r\nx\r\n"); !strings.HasPrefix(got, "SERVER_ERROR") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// The same holds if it is given the table when the others have had it for long: they may soon be in Settle.
func TestALateRouterWithoutTheNewMemberDoesNotGoOnInStable(t *testing.T) {
	tier.Second(t, "TestARouterThatWaitedWithoutTheNewMemberDoesNotGoOnInStable")
	t.Parallel()
	all := members(t, 2)
	from, to := ring(t, all[0]), ring(t, all...)
	told := tables(from, to)
	ahead, late := fenced(t, told[0]), fenced(t, told[0])
	ahead.take(t, told[1])
	wait.For(t, "the other router to be left behind", func() error { return leftBehindIs(late) })
	unreachable := *told[1]
	unreachable.New.Servers = slices.Clone(to.Servers)
	unreachable.New.Servers[1].Port = uint16(memcachedtest.FreePort(t))
	if err := late.follow(&unreachable); err != nil {
		t.Fatal(err)
	}
	keys := owned(to, 20)
	moves := keys[slices.IndexFunc(keys, func(key string) bool { return to.Owner.Owner([]byte(key)) == 1 })]
	c := dial(t, late.address)
	for range 1000 {
		if got := c.ask("set " + moves + " 0 0 1\r\nx\r\n"); !strings.HasPrefix(got, "SERVER_ERROR") {
			t.Fatalf("%q", got)
		}
	}
}

// The same holds if it was the first to read the table, and had to wait with it: the other router may be in
// Settle as soon as its own wait is over.
func TestARouterThatWaitedWithoutTheNewMemberDoesNotGoOnInStable(t *testing.T) {
	t.Parallel()
	const leftBehind, lookPeriod = 5 * time.Second, time.Second // its own time for the table is a part of it
	var (
		to           router.Ring
		told         []*router.Table
		ahead, waits *running
		unreachable  router.Table
		offered      time.Time
	)
	// A router that has just started doesn't take a table that may not have been acknowledged. It does after a while, which
	// a slow start may last.
	wait.For(t, "two routers that have just started", func() error {
		all := members(t, 2)
		to = ring(t, all...)
		told = tables(ring(t, all[0]), to)
		config := router.Config{ReadErrors: true, Table: told[0], Fence: true, LeftBehind: leftBehind, LookPeriod: lookPeriod}
		ahead, waits = launch(t, config), launch(t, config)
		wait.For(t, "ready", ahead.Ready)
		wait.For(t, "ready", waits.Ready)
		unreachable = *told[1]
		unreachable.New.Servers = slices.Clone(to.Servers)
		unreachable.New.Servers[1].Port = uint16(memcachedtest.FreePort(t))
		offered = time.Now()
		for r, table := range map[*running]*router.Table{waits: &unreachable, ahead: told[1]} {
			if taken, err := r.Offer(table); taken || err != nil {
				return fmt.Errorf("taken=%t, %w", taken, err)
			}
		}
		return nil
	})
	followed := make(chan error, 1)
	go func() { followed <- waits.follow(&unreachable) }()
	time.Sleep(time.Until(offered.Add(leftBehind + 3*lookPeriod)))
	if err := ahead.follow(told[2]); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "its acknowledgement", func() error { return acknowledged(ahead, told[2].Number) })
	keys := owned(to, 20)
	moves := keys[slices.IndexFunc(keys, func(key string) bool { return to.Owner.Owner([]byte(key)) == 1 })]
	a, b := dial(t, ahead.address), dial(t, waits.address)
	wait.For(t, "its connection to the new member", func() error { // it is too late to wait for it before the table
		if got := a.ask("set " + moves + " 0 0 1\r\na\r\n"); got != "STORED\r\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	for range 500 {
		served(a, "set "+moves+" 0 0 1\r\na\r\n", "STORED\r\n")
		if b.ask("set "+moves+" 0 0 1\r\nb\r\n") == "STORED\r\n" {
			served(a, "get "+moves+"\r\n", "VALUE "+moves+" 0 1\r\nb\r\nEND\r\n")
		}
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
}

// follow offers a table repeatedly, as the code that reads it from a file does.
func (r *running) follow(table *router.Table) error {
	for end := wait.Deadline(); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if taken, err := r.Offer(table); taken || err != nil {
			return err
		}
	}
	return fmt.Errorf("state %v is not taken", table.State)
}

// owned returns keys, some of which each member owns in that ring.
func owned(r router.Ring, n int) (keys []string) {
	has := map[int]int{}
	for i := 0; len(keys) < n*len(r.Servers); i++ {
		key := fmt.Sprintf("key-%d", i)
		if owner := r.Owner.Owner([]byte(key)); has[owner] < n {
			has[owner]++
			keys = append(keys, key)
		}
	}
	return keys
}

func leftBehindIs(r *running) error {
	switch err := r.Ready(); {
	case err == nil:
		return errors.New("it is ready")
	case !strings.Contains(err.Error(), "left behind"):
		return fmt.Errorf("it is not ready for another reason: %w", err)
	}
	return nil
}

// In each state of a ring change, a router stops reading tables, while another one goes through all remaining
// states, each as early as possible. The first router answers with the latest value or refuses, keys whose
// owner stays later than others, and in the end refuses all requests. When the first router gets the table,
// it serves again.
func TestARouterThatIsCutOffServesNothingOld(t *testing.T) {
	t.Parallel()
	for state := ringchange.Stable; state <= ringchange.Finish; state++ {
		t.Run(state.String(), func(t *testing.T) {
			if state != ringchange.Stable { // from there it goes through all states
				tier.Second(t, "TestARouterThatIsCutOffServesNothingOld")
			}
			t.Parallel()
			cutOff(t, int(state))
		})
	}
}

// served asks a router that isn't left behind. It may refuse, too, for a moment, if it has been stopped for so long that it
// could be.
func served(c *conversation, request, want string) {
	c.t.Helper()
	wait.For(c.t, fmt.Sprintf("%.40q to be served", request), func() error {
		switch got := c.ask(request); got {
		case want:
			return nil
		case refused:
			return errors.New("it is refused")
		default:
			c.t.Fatalf("%.40q: %q, want %q", request, got, want)
			return nil
		}
	})
}

func cutOff(t *testing.T, at int) {
	all := members(t, 3)
	three, two := ring(t, all...), ring(t, all[:2]...)
	told := tables(three, two)
	ahead, behind := fenced(t, told[0]), fenced(t, told[0])
	for i, table := range told[:at+1] {
		for _, r := range []*running{ahead, behind} {
			if i > 0 {
				r.take(t, table)
			}
			wait.For(t, "the router to be ready", r.Ready)
		}
	}
	a, b := dial(t, ahead.address), dial(t, behind.address)
	keys := owned(three, 4)
	var later time.Time // before any router has a later table than the one that is behind
	version, refusals := 0, 0
	// use stores new values through one router, asks the other for them, and returns how many requests that
	// one refuses.
	use := func() (n int) {
		version++
		for _, key := range keys {
			value := fmt.Sprintf("%06d", version)
			served(a, "set "+key+" 0 0 6\r\n"+value+"\r\n", "STORED\r\n")
			switch got := b.ask("get " + key + "\r\n"); got {
			case "VALUE " + key + " 0 6\r\n" + value + "\r\nEND\r\n":
				if got := b.ask("set " + key + " 0 0 5\r\nother\r\n"); got != "STORED\r\n" && got != refused {
					t.Fatalf("version %d of %s can't be replaced: %q", version, key, got)
				} else if got == "STORED\r\n" {
					served(a, "get "+key+"\r\n", "VALUE "+key+" 0 5\r\nother\r\nEND\r\n")
				}
			case refused:
				n++
				stays := three.Owner.Owner([]byte(key)) == two.Owner.Owner([]byte(key)) && told[at].State != ringchange.Stable
				if d := time.Since(later); stays && d < 2*leftBehind {
					t.Fatalf("%s, whose owner stays, is refused after %v", key, d)
				}
			default:
				t.Fatalf("version %d of %s: the router in state %v says %q", version, key, told[at].State, got)
			}
		}
		refusals += n
		return n
	}
	use()
	later = time.Now()
	for _, table := range told[at+1:] {
		taken := make(chan error, 1)
		go func() { taken <- ahead.follow(table) }()
		for err := errors.New("not yet"); err != nil; use() {
			select {
			case err = <-taken:
				if err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
	}
	wait.For(t, "all to be refused", func() error {
		if n := use(); n < len(keys) {
			return fmt.Errorf("%d of %d keys are", n, len(keys))
		}
		return nil
	})
	if err := leftBehindIs(behind); err != nil {
		t.Error(err)
	}
	b.want("flush_all\r\n", refused)
	behind.take(t, told[5])
	wait.For(t, "it to be ready again", behind.Ready)
	wait.For(t, "all to be served", func() error {
		if n := use(); n > 0 {
			return fmt.Errorf("%d keys are refused", n)
		}
		return nil
	})
	t.Logf("%d rounds, %d requests were refused", version, refusals)
}

// A router with an old file refuses requests from the start, and serves when it has a new one.
func TestARouterThatStartsWithAnOldTableIsNotReady(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	told := tables(ring(t, all...), ring(t, all[0]))
	newer := fenced(t, told[2])
	wait.For(t, "the newer router to be ready", newer.Ready)
	older := launch(t, router.Config{ReadErrors: true, Table: told[0], Fence: true, LookPeriod: lookPeriod}) // with the usual bound
	c := dial(t, older.address)
	for _, key := range owned(told[0].New, 3) {
		c.want("get "+key+"\r\nset "+key+" 0 0 1\r\nx\r\n", refused+refused)
	}
	wait.For(t, "it to say why", func() error { return leftBehindIs(older) })
	// The next table is not enough.
	for range 3 {
		if taken, err := older.Offer(told[1]); taken || err != nil {
			t.Errorf("an old table: taken=%t, %v", taken, err)
		}
	}
	if err := leftBehindIs(older); err != nil {
		t.Error(err)
	}
	told[2].Before = 0
	older.take(t, told[2])
	wait.For(t, "it to be ready", older.Ready)
	wait.For(t, "it to serve", func() error {
		if got := c.ask("get key-0\r\n"); got != "END\r\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// A router that replaces one that can't be reached waits until that one refuses requests.
func TestARouterThatStartsWaitsForThoseThatAreBehind(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	told := tables(ring(t, all...), ring(t, all[0]))
	older := fenced(t, told[0])
	wait.For(t, "the older router to be ready", older.Ready)
	old := dial(t, older.address)
	for _, key := range owned(told[0].New, 3) {
		old.want("set "+key+" 0 0 1\r\nx\r\n", "STORED\r\n")
	}
	newer := dial(t, fenced(t, told[5]).address)
	newer.ask("get key-0\r\n")
	for _, key := range owned(told[0].New, 3) {
		old.want("get "+key+"\r\n", refused)
	}
}

// Members that can't be reached don't prevent a router from starting.
func TestARouterStartsWithoutADeadMember(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	told := tables(ring(t, all...), ring(t, all[0]))
	all[1].Kill()
	r := fenced(t, told[0])
	wait.For(t, "the router to be ready", r.Ready)
	// This also holds if it starts in the state that waits for connections.
	r = fenced(t, told[1])
	c := dial(t, r.address)
	for _, key := range owned(told[1].Old, 1) {
		if got := c.ask("get " + key + "\r\n"); got != "END\r\n" && !strings.HasPrefix(got, "SERVER_ERROR") {
			t.Errorf("%q", got)
		}
	}
}

// A request that waits for another one's lease ends with an error when its router is left behind: it changes
// nothing any more.
func TestAWaitingRequestOfALateRouterFails(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	told := tables(ring(t, all[0]), ring(t, all[1]))
	r := fenced(t, told[3])
	wait.For(t, "the router to be ready", r.Ready)
	old, current, routed := dial(t, all[0].Address()), dial(t, all[1].Address()), dial(t, r.address)
	old.want("set n 0 0 1\r\n5\r\n", "STORED\r\n")
	lease := func() { current.ask("ms n 20 T6\r\n" + ringchange.LeaseValue + "\r\n") } // another request's lease
	lease()
	routed.say("incr n 1\r\nmn\r\n")
	later := contract.RingNumber(told[4].Number, "secret")
	current.want(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", contract.RingNumberKey, len(later), later), "STORED\r\n")
	wait.For(t, "it to be left behind", func() error { lease(); return leftBehindIs(r) })
	answered := make(chan string, 1)
	go func() {
		got, _ := routed.r.ReadString('\n')
		answered <- got
	}()
	got := ""
	wait.For(t, "the answer, while the lease is held", func() error {
		lease()
		select {
		case got = <-answered:
			return nil
		default:
			return errors.New("there is none")
		}
	})
	if got != refused {
		t.Errorf("%q", got)
	}
	current.want("delete n\r\n", "DELETED\r\n")
	old.want("get n\r\n", "VALUE n 0 1\r\n5\r\nEND\r\n")
}
