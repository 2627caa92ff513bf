package move

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// behind is a client with an old list: it keeps storing keys at a member after another one became their
// owner.
type behind struct {
	t       *testing.T
	member  *memcachedtest.Server
	raw     *memcachedtest.Raw
	owner   *memcache.Conn
	engine  *Engine
	keys    []string
	version int
}

const behindKeys = 50

func newBehind(t *testing.T, streamed bool, args ...string) *behind {
	t.Helper()
	mapped, other := startMapped(t, append([]string{"-f", "4", "-m", "16"}, args...)...), memcachedtest.Start(t)
	list := drainertest.MustParse(t, []string{mapped.Address(), other.Address()})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	b := &behind{t: t, member: mapped.Server, raw: mapped.Raw(), owner: other.Dial(),
		engine: &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: &drainertest.Buffer{}}}
	if streamed {
		b.engine.Export = &Export{Address: exporting(t, mapped), Client: "gomemcache"}
	}
	for i := 0; len(b.keys) < behindKeys; i++ {
		if key := fmt.Sprintf("key%d", i); owner.Owner([]byte(key)) == 1 {
			b.keys = append(b.keys, key)
		}
	}
	b.store()
	return b
}

// store gives each key another value at the member.
func (b *behind) store() {
	b.t.Helper()
	b.version++
	for _, key := range b.keys {
		value := fmt.Sprintf("value %d", b.version)
		b.raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), []byte(value))
	}
}

// move moves with that patience.
func (b *behind) move(patience time.Duration) <-chan contract.Receipt {
	done := make(chan contract.Receipt, 1)
	go func() { done <- b.engine.MoveFrom(b.t.Context(), 0, b.t.TempDir(), patience) }()
	return done
}

// arrived waits until each key's owner has the last value, and the member has none.
func (b *behind) arrived() {
	b.t.Helper()
	want := fmt.Appendf(nil, "value %d", b.version)
	wait.For(b.t, fmt.Sprintf("%s at the owner", want), func() error {
		for _, key := range b.keys {
			if v, err := b.owner.Get([]byte(key)); err != nil || v == nil || !bytes.Equal(v.Data, want) {
				return fmt.Errorf("%s: %+v, %w", key, v, err)
			}
		}
		if n := b.member.Items(b.t); n != 0 {
			return fmt.Errorf("the member has %d items", n)
		}
		return nil
	})
}

// A client that gets the list late stores keys where they no longer belong, after a pass has found nothing
// more. These items are moved, too, and replace those that were moved before.
func TestItemsStoredByAnEarlierListAreMovedToo(t *testing.T) {
	tier.Second(t, "TestAMovePutsEveryItemWhereItsClientLooks")
	bothWays(t, func(t *testing.T, streamed bool) {
		b := newBehind(t, streamed)
		done := b.move(wait.Long)
		for range 3 {
			b.arrived()
			b.store()
		}
		b.arrived()
		r := <-done
		if err := r.AddsUp("the-claim"); err != nil || r.Reason != "" || r.Found < 4*behindKeys {
			t.Errorf("%v: %+v", err, r)
		}
	})
}

// A client that never gets the list is not just late: a person has to look.
func TestAClientThatNeverLearnsOfTheListIsNamed(t *testing.T) {
	t.Parallel()
	b := newBehind(t, true)
	b.engine.Export.Address = memcachedtest.Between(t, b.engine.Export.Address, func(sent []byte) bool {
		if bytes.Contains(sent, []byte(export.Pass)) {
			b.store() // before each pass
		}
		return true
	})
	if r := <-b.move(time.Second); r.Reason != reasonStillStored {
		t.Errorf("%+v", r)
	}
}

// Patience counts from the first item, also if the stream breaks and the rest is listed.
func TestPatienceDoesNotBeginAnewWithAListing(t *testing.T) {
	l := &runningMember{patience: time.Minute}
	for range 2 { // the stream's first pass, and the listing's
		if more, err := l.anotherPass(t.Context(), 0, some); err != nil || !more {
			t.Fatalf("%t, %v", more, err)
		}
		l.until = l.until.Add(-l.patience)
	}
	for range atOnce { // clients may have stored items until now
		if more, err := l.anotherPass(t.Context(), atOnce, some); err != nil || !more {
			t.Fatalf("%t, %v", more, err)
		}
	}
	if _, err := l.anotherPass(t.Context(), atOnce, some); !errors.Is(err, errStillStored) || time.Since(l.until) < l.patience {
		t.Errorf("patience ended %s ago: %v", time.Since(l.until), err)
	}
}
