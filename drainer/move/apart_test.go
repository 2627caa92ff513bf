package move

import (
	"context"
	"fmt"
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
		r := run(ctx, &Engine{Owner: owner, Servers: servers, UnreachableTimeout: wait.Long, Log: &untilSaid{"its name leads to", cancel}})
		if cancel(); r.Reason != reasonInterrupted || r.Found != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n := member.Items(t); n != int64(len(all)) {
		t.Errorf("%d of %d items are left", n, len(all))
	}
}
