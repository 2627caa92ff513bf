package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 4) }

// waits is the time between two tables if the operator has waited in vain, in seconds.
const waits = int64(contract.RingWaits/time.Second) + 5

// inBubble runs a test whose clock stands still during a request to a member, and jumps ahead when all
// goroutines wait. The members run outside.
func inBubble(t *testing.T, members []*memcachedtest.Server, test func(t *testing.T)) {
	for _, m := range members {
		m.Items(t) // wait until it answers
	}
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // a bubble begins in the year 2000, in which there were no tables
		test(t)
	})
}

// eventually repeats try until it succeeds, for an hour of the bubble's clock.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	began := time.Now()
	for err := try(); err != nil; err = try() {
		if time.Since(began) > time.Hour {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// begun returns a fence that has begun to look at the members of a table.
func begun(t *testing.T, table *fence.Table) *fence.Fence {
	t.Helper()
	serving, end := context.WithCancel(context.Background())
	f := fence.New(serving, fence.Config{LookTimeout: wait.Long, LeftBehind: 400 * time.Millisecond,
		LookPeriod: 40 * time.Millisecond, Logf: t.Logf}, table)
	t.Cleanup(func() { end(); f.Wait() })
	f.Begin(serving)
	if err := f.Ready(); err != nil {
		t.Fatal(err)
	}
	return f
}

// tables returns the tables of a ring change, each of which begins apart seconds after the one before.
func tables(members []*memcachedtest.Server, apart int64) (all []*fence.Table) {
	var from fence.Ring
	for _, m := range members {
		from.Servers = append(from.Servers, routing.Server{Host: "127.0.0.1", Port: uint16(m.Port)})
	}
	to := fence.Ring{Servers: from.Servers[:1]}
	for state := ringchange.Stable; state <= ringchange.Finish; state++ {
		table := &fence.Table{Number: 1000 + int64(state)*apart, Key: "secret", State: state, Old: from, New: to}
		if state == ringchange.Stable {
			table.Old, table.New = fence.Ring{}, from
		} else {
			table.Before = table.Number - apart
		}
		all = append(all, table)
	}
	return all
}

func start(t *testing.T, n int) (all []*memcachedtest.Server) {
	for range n {
		all = append(all, memcachedtest.Start(t))
	}
	return all
}

// ask sends a text to a member, and returns the whole answer.
func ask(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(wait.Long))
	if _, err := io.WriteString(c, text+"mn\r\n"); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	part := make([]byte, 64<<10)
	for !bytes.HasSuffix(answer, []byte("MN\r\n")) {
		n, err := c.Read(part)
		if err != nil {
			t.Fatalf("%.60q: %v", text, err)
		}
		answer = append(answer, part[:n]...)
	}
	return string(bytes.TrimSuffix(answer, []byte("MN\r\n")))
}

// Each state is taken at once if all routers have acknowledged the previous one.
func TestNothingIsHeldIfAllRoutersFollow(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, 1)
		f := begun(t, told[0])
		for _, table := range told[1:] {
			if !f.MayTake(table) {
				_, why := f.Offered()
				t.Errorf("state %v waits: %s", table.State, why)
			}
			f.Apply(table)
		}
	})
}

// If the operator has waited in vain, the first router that goes on waits until the routers that are behind
// refuse requests. A router that is two states behind is left behind then.
func TestARouterGoesOnWhenThoseThatAreBehindRefuse(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		ahead, behind := begun(t, told[0]), begun(t, told[0])
		for _, table := range told[1:3] {
			eventually(t, fmt.Sprintf("state %v", table.State), func() error {
				if !ahead.MayTake(table) {
					_, why := ahead.Offered()
					return errors.New(why)
				}
				return nil
			})
			if table == told[2] && !behind.Outdated(told[0].Number) {
				t.Error("the other one serves by the table before the last")
			}
			ahead.Apply(table)
		}
		if err := behind.Ready(); err == nil || !strings.Contains(err.Error(), "left behind") {
			t.Errorf("the other one is ready, or not for another reason: %v", err)
		}
		if err := ahead.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A process that was paused for longer than the others wait for it refuses requests at once.
func TestARouterThatWakesIsLeftBehindAtOnce(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		f := begun(t, told[0])
		eventually(t, "the number", func() error {
			return unless(hasNumber(t, all[0], told[0].Number), "it is not there")
		})
		f.StoodStill()
		eventually(t, "a look", func() error { return unless(!f.MustLook(), "it has not looked") })
		if f.Outdated(told[0].Number) {
			t.Fatal("it is left behind, and no router went on")
		}
		f.StoodStill()
		for _, m := range all { // before it has looked at the members
			value := contract.RingNumber(told[2].Number, "secret")
			m.Raw().Must("STORED", fmt.Sprintf("set %s 0 0 %d", contract.RingNumberKey, len(value)), []byte(value))
		}
		f.StoodStill()
		eventually(t, "a look", func() error { return unless(!f.MustLook(), "it has not looked") })
		if d, latest := f.Behind(told[0].Number); latest != told[2].Number || d < time.Hour {
			t.Errorf("it has been behind for %v, of table %d", d, latest)
		}
	})
}

// A table that says that the others have waited for the router in vain, and gone on, makes it left behind at
// once.
func TestATableAfterOneThatWasMissedLeavesARouterBehindAtOnce(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		f := begun(t, told[0])
		began := time.Now()
		if f.MayTake(told[2]) {
			t.Error("it takes the table at once")
		}
		if !f.Outdated(told[0].Number) {
			t.Error("it serves by the table before the last")
		}
		// All routers may have missed the table: then the others learn of the next one from this router.
		eventually(t, "the table is taken", func() error { return unless(f.MayTake(told[2]), "it waits") })
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("it takes the table after %v: others that have missed the one before can't know", took)
		}
	})
}

// A router that has just started takes a table at once if all routers had acknowledged the previous one. The
// previous table may be hours old, so the numbers don't show it.
func TestARouterThatHasJustStartedTakesTheTableAfterOneThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		f := begun(t, told[0])
		told[1].Acknowledged = true
		if !f.MayTake(told[1]) {
			_, why := f.Offered()
			t.Errorf("it waits: %s", why)
		}
	})
}

// A router that starts does not rely on the table's acknowledgements: the pod of a router that still serves
// may have disappeared for the operator.
func TestARouterThatStartsWaitsForThoseThatTheOperatorDoesNotSee(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		told[1].Acknowledged, told[2].Acknowledged = true, true
		unseen := begun(t, told[0])
		began := time.Now()
		next := begun(t, told[1])
		eventually(t, "the table after that", func() error { return unless(next.MayTake(told[2]), "it waits") })
		if took := time.Since(began); took < 400*time.Millisecond || !unseen.Outdated(told[0].Number) {
			t.Errorf("it is two tables ahead after %v, and the other one serves: %t", took, !unseen.Outdated(told[0].Number))
		}
	})
}

// Members without CAS values also keep the number.
func TestTheNumberIsKeptWithoutCAS(t *testing.T) {
	t.Parallel()
	all := []*memcachedtest.Server{memcachedtest.Start(t, "-C"), memcachedtest.Start(t)}
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, 1)
		f := begun(t, told[0])
		for _, table := range told[:2] {
			if table != told[0] {
				f.MayTake(table)
				f.Apply(table)
			}
			eventually(t, "the number", func() error { return unless(hasNumber(t, all[0], table.Number), "it is not there") })
		}
	})
}

func hasNumber(t *testing.T, m *memcachedtest.Server, number int64) bool {
	member, err := net.Dial("tcp", m.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	return strings.Contains(ask(t, member, "get "+contract.RingNumberKey+"\r\n"), contract.RingNumber(number, "secret"))
}

func unless(is bool, why string) error {
	if is {
		return nil
	}
	return errors.New(why)
}

// Clients may do anything to the item: no fence takes it for a table's number, and the number is soon restored.
func TestNoClientsNumberLeavesARouterBehind(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)
		f := begun(t, told[0])
		member, err := net.Dial("tcp", all[0].Address())
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		own := contract.RingNumber(told[0].Number, "secret")
		set := func(value string) string {
			return fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", contract.RingNumberKey, len(value), value)
		}
		future := contract.NumberAt(time.Now()) + 2*int64(contract.NumbersAhead/time.Second)
		for name, harm := range map[string]string{
			"flush_all":          "flush_all\r\n",
			"a delete":           "delete " + contract.RingNumberKey + "\r\n",
			"a forged number":    set("2000"),
			"another's number":   set(contract.RingNumber(2000, "other")),
			"one of the future":  set(contract.RingNumber(future, "secret")),
			"one of the past":    set(contract.RingNumber(7, "secret")),
			"no number":          set("evil"),
			"an empty value":     set(""),
			"a large value":      set(strings.Repeat("1", 500_000)),
			"a negative number":  set(contract.RingNumber(-5, "secret")),
			"a number and words": set(own + " or so"),
		} {
			is := func() error {
				_, value, _ := strings.Cut(ask(t, member, "get "+contract.RingNumberKey+"\r\n"), "\r\n")
				if got := strings.TrimSuffix(value, "\r\nEND\r\n"); got != own {
					return fmt.Errorf("it is %.80q", got)
				}
				return nil
			}
			eventually(t, name+": the number", is)
			ask(t, member, harm)
			eventually(t, name+": the number again", is)
			if err := f.Ready(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	})
}

// By its table, a router knows that the time is at least the table's. If its clock is days behind, the router
// still sees tables of others that were written a day later at most, and doesn't overwrite them.
func TestARouterWhoseClockIsBehindSeesThatItIsLeftBehind(t *testing.T) {
	t.Parallel()
	all := start(t, 2)
	inBubble(t, all, func(t *testing.T) {
		told := tables(all, waits)[0]
		told.Number = contract.NumberAt(time.Now()) + 3*int64(contract.NumbersAhead/time.Second)
		f := begun(t, told)
		later := contract.RingNumber(told.Number+1, told.Key)
		member, err := net.Dial("tcp", all[0].Address())
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		ask(t, member, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", contract.RingNumberKey, len(later), later))
		eventually(t, "the router to refuse", func() error {
			if f.Ready() == nil {
				return errors.New("it is ready")
			}
			return nil
		})
		if !strings.Contains(ask(t, member, "get "+contract.RingNumberKey+"\r\n"), later) {
			t.Error("the later number is overwritten")
		}
	})
}
