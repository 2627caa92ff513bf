package move

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// leaveLeased is leave under leases.
func (f *leavingMember) leaveLeased(patience time.Duration) <-chan contract.Receipt {
	done := make(chan contract.Receipt, 1)
	source := drainertest.MustParse(f.t, []string{f.member.Address()})[0]
	e := f.engine()
	e.Leases = true
	go func() { done <- e.MoveFromLeaving(f.t.Context(), source, f.t.TempDir(), patience) }()
	return done
}

// nothingLeft tells whether some progress has reported that.
func (f *leavingMember) nothingLeft() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.progress {
		if p.NothingLeft {
			return true
		}
	}
	return false
}

// Routers no longer ask a leaving member once its mover reports that nothing is left. So it doesn't report
// that while another process has the lease of a key, however long that takes.
func TestNothingIsLeftOnlyIfAPassFindsNothing(t *testing.T) {
	tier.Second(t, "TestAMoveLosesNothingWhateverClientsDo")
	bothWays(t, func(t *testing.T, streamed bool) {
		f := newLeavingMember(t, 100, streamed)
		f.member.Raw().Must("STORED", "set held 0 0 1", []byte("v"))
		f.all["held"] = drainertest.Object{Value: []byte("v")}
		owner := f.servers[f.owner.Owner([]byte("held"))].Raw()
		lease := func() { owner.Must("HD", "ms held 20 T6", []byte(ringchange.LeaseValue)) }
		lease()
		done := f.leaveLeased(wait.Long)
		wait.For(t, "the mover to settle", func() error {
			lease()
			if len(f.said(contract.PhaseSettling)) == 0 {
				return errors.New("it doesn't yet")
			}
			return nil
		})
		wait.For(t, "the mover to say more than once that it settles", func() error {
			lease()
			if f.nothingLeft() {
				t.Fatal("it says that nothing is left, and there is a key")
			}
			if n := len(f.said(contract.PhaseSettling)); n < 4 {
				return fmt.Errorf("it has said so %d times", n)
			}
			return nil
		})
		owner.Must("HD", "md held", nil)
		wait.For(t, "nothing to be left", func() error {
			if !f.nothingLeft() {
				return errors.New("there is something")
			}
			return nil
		})
		if n := f.member.Items(t); n > 0 {
			t.Errorf("nothing is left, and there are %d items", n)
		}
		r := <-done
		f.check(r)
	})
}

// storeBinary stores an item by memcached's binary protocol, which can carry any key.
func storeBinary(t *testing.T, s *memcachedtest.Server, key, value string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const head, extras = 24, 8
	request := make([]byte, head+extras, head+extras+len(key)+len(value))
	request[0], request[1], request[4] = 0x80, 1, extras // a set
	binary.BigEndian.PutUint16(request[2:], uint16(len(key)))
	binary.BigEndian.PutUint32(request[8:], uint32(extras+len(key)+len(value)))
	answer := make([]byte, head)
	if _, err := conn.Write(append(append(request, key...), value...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, answer); err != nil || binary.BigEndian.Uint16(answer[6:]) != 0 {
		t.Fatalf("set %.20q: %x, %v", key, answer, err)
	}
}

// Items that no client of a router can ask for stay. The move ends all the same, and the receipt has these
// items. Items with the size of a lease are moved like any other.
func TestItemsThatNoClientCanAskForDoNotHoldAMoveUp(t *testing.T) {
	bothWays(t, func(t *testing.T, streamed bool) {
		if !streamed {
			tier.Second(t, "TestItemsThatNoClientCanAskForDoNotHoldAMoveUp/streamed")
		}
		f := newLeavingMember(t, 100, streamed)
		for i := range 3 {
			storeBinary(t, f.member, fmt.Sprintf("%d%s", i, strings.Repeat(" k", 100)), "v")
		}
		f.member.Raw().Must("STORED", "set size 0 0 20", []byte("a value of a lease's"))
		f.all["size"] = drainertest.Object{Value: []byte("a value of a lease's")}
		select {
		case r := <-f.leaveLeased(wait.Long):
			if err := r.AddsUp("the-claim"); err != nil || !r.Settled || r.NoTextForm != 3 || r.Found != int64(len(f.all))+3 {
				t.Errorf("%d objects: %v: %+v", len(f.all), err, r)
			}
		case <-wait.Over():
			t.Fatal("the move doesn't end")
		}
		if n := f.member.Items(t); n != 3 || !f.nothingLeft() {
			t.Errorf("the member has %d items", n)
		}
	})
}

// A key that a pass forgets shows in the receipt.
func TestAForgottenKeyShowsInTheReceipt(t *testing.T) {
	bothWays(t, func(t *testing.T, streamed bool) {
		if streamed {
			tier.Second(t, "TestAForgottenKeyShowsInTheReceipt/listed")
		}
		f := newLeavingMember(t, 100, streamed)
		e := f.engine()
		e.Leases = true
		l := e.runningMember(drainertest.MustParse(t, []string{f.member.Address()})[0], nowhere, t.TempDir())
		l.leaving = &leaving{l: l, report: e.report}
		e.Source = l
		told := l.leased.passes.Moved
		l.leased.passes.Moved = func(ctx context.Context, owner int, keys []LeasedKey) error { return told(ctx, owner, keys[1:]) }
		if r := e.Run(t.Context()); r.Reason != "" || !r.Complete || r.AddsUp("the-claim") == nil {
			t.Errorf("%+v", r)
		}
	})
}
