package move

import (
	"context"
	"io"
	"iter"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// largeFlags is a source of ten items, one of which has client flags of more than 32 bits.
type largeFlags struct{ aged }

func (s *largeFlags) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		n := 0
		for it, err := range s.aged.Items(ctx) {
			if n++; n == 5 {
				it.Flags = 1 << 32
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// The cause is reported, and there is no retry if nothing else is wrong; all other items are added.
func TestClientFlagsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size   int
		reason string
		code   int
		added  int64
	}{"nothing else": {100, reasonFlags, contract.ExitUsage, 9}, "and all items are too large": {600_000, reasonRejected, contract.ExitRejected, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addresses := drainertest.Survivors(t, 1, "-I", "512k")
			servers := drainertest.MustParse(t, addresses)
			owner, err := routing.New("gomemcache", servers)
			if err != nil {
				t.Fatal(err)
			}
			r := (&Engine{Source: &largeFlags{aged{n: 10, size: test.size}}, Owner: owner, Servers: servers,
				UnreachableTimeout: wait.Long, Log: io.Discard}).Run(t.Context())
			if r.Reason != test.reason || r.ExitCode != test.code || r.Added != test.added || r.Rejected != 10-test.added || !r.Complete {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The member's value stays there, and its earlier value is removed from the owner.
func TestChangedToFlagsThatTheOwnerDoesNotTake(t *testing.T) {
	t.Parallel()
	p := makePair(t, 3, "1")
	p.l.takes = func(int, uint64) bool { return false }
	read := p.fetched()
	for _, key := range p.keys {
		p.owner.Raw().Must("STORED", "add "+key+" 0 0 1", []byte("1"))
		set("2")(p.member.Raw(), key)
	}
	if err := p.l.own.delete(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	for _, key := range p.keys {
		p.holds(p.member, key, "2")
		p.holds(p.owner, key, "")
	}
}
