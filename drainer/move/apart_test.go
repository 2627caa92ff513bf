package move

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// untilSaid is a log that ends a move when it gets that text.
type untilSaid struct {
	text string
	end  context.CancelFunc
}

func (u *untilSaid) Write(line []byte) (int, error) {
	if strings.Contains(string(line), u.text) {
		u.end()
	}
	return len(line), nil
}

// A name may lead to another member for a while. A move would add items where they are, and then delete them
// there; a drain would store them where no client looks. Both wait, and move nothing.
func TestNothingIsMovedWhileTwoNamesLeadToOneMember(t *testing.T) {
	t.Parallel()
	all := map[string]drainertest.Object{}
	for i := range 200 {
		all[fmt.Sprintf("key-%d", i)] = drainertest.Object{Value: []byte("value")}
	}
	member := memcachedtest.Start(t)
	drainertest.Store(t, member.Address(), all)
	servers := []routing.Server{{Host: "127.0.0.1", Port: uint16(member.Port)}, {Host: "localhost", Port: uint16(member.Port)}}
	owner, err := routing.New("gomemcache", servers)
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(context.Context, *Engine) contract.Receipt{
		"move": func(ctx context.Context, e *Engine) contract.Receipt { return e.MoveFrom(ctx, 0, t.TempDir(), 0) },
		"drain": func(ctx context.Context, e *Engine) contract.Receipt {
			e.Source = &aged{n: 10, size: 10}
			return e.Run(ctx)
		},
	} {
		ctx, cancel := context.WithCancel(wait.Context(t))
		r := run(ctx, &Engine{Owner: owner, Servers: servers, UnreachableTimeout: wait.Long, Log: &untilSaid{"its name resolves to", cancel}})
		if cancel(); r.Reason != reasonInterrupted || r.Found != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n := member.Items(t); n != int64(len(all)) {
		t.Errorf("%d of %d items are left", n, len(all))
	}
}

// A connection may break in a move, and the name of its server lead to another member by then. No item is
// stored or deleted there: the move ends, and the next one looks up all places again.
func TestAMoveEndsIfANameComesToLeadToAnotherMember(t *testing.T) {
	t.Parallel()
	const here, there = "127.0.0.1", "127.0.0.2"
	for name, c := range map[string]struct {
		leases, leaving, source bool
	}{
		"an owner":                    {},
		"an owner, leases":            {leases: true},
		"an owner of one that leaves": {leaving: true},
		"the one that leaves":         {leaving: true, source: true},
		"it, leases":                  {leaving: true, source: true, leases: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stays, goes := memcachedtest.Start(t), memcachedtest.Start(t) // the one that a name leads to at last, and at first
			between := drainertest.ProxyAt(t, fmt.Sprintf("%s:%d", there, stays.Port), goes.Address())
			changes := drainertest.NewName(t, there)
			fixed, named := routing.Server{Host: here, Port: uint16(stays.Port)}, routing.Server{Host: string(changes), Port: uint16(stays.Port)}
			servers := []routing.Server{fixed, named}
			source := fixed
			if c.source {
				servers, source = []routing.Server{fixed}, named
			} else if c.leaving {
				servers = []routing.Server{named}
			}
			owner, err := routing.New("gomemcache", servers)
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]drainertest.Object{}
			for i := range 200 {
				all[fmt.Sprintf("key-%d", i)] = drainertest.Object{Value: []byte("value")}
			}
			drainertest.Store(t, stays.Address(), all)
			file := filepath.Join(t.TempDir(), "begin")
			prepared := make(chan struct{}, 1)
			e := &Engine{Owner: owner, Servers: servers, UnreachableTimeout: wait.Long, Log: io.Discard, Leases: c.leases,
				Begin: &contract.Begin{File: file, When: "2", Within: wait.Long},
				Progress: func(p contract.Progress) {
					if p.Phase == contract.PhasePrepared {
						select {
						case prepared <- struct{}{}:
						default:
						}
					}
				}}
			ended := make(chan contract.Receipt, 1)
			go func() {
				if c.leaving {
					ended <- e.MoveFromLeaving(wait.Context(t), source, t.TempDir(), 0)
				} else {
					ended <- e.MoveFrom(wait.Context(t), 0, t.TempDir(), 0)
				}
			}()
			wait.Receive(t, "the move to be prepared", prepared)
			changes.To(here)
			between.End()
			write(t, file, "2")
			r := wait.Receive(t, "its end", ended)
			if r.ExitCode != contract.ExitUnreachable || !strings.Contains(r.Message, "its name resolves to") || r.Added != 0 || r.Complete {
				t.Errorf("%+v", r)
			}
			if left := drainertest.Held(t, stays.Address(), all); len(left) != len(all) {
				t.Errorf("%d of %d items are left", len(left), len(all))
			}
		})
	}
}
