package move

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
)

// A client does something to an item at the member, after the mover has read it and its owner has it, and
// before the mover deletes it there. The mover lists the items, or the member's supervisor streams them.
func TestAnItemThatClientsChangeWhileItIsMovedIsNeverLostNorOld(t *testing.T) {
	tests := map[string]struct {
		// before and meanwhile are the client's commands; %s is the key.
		before, meanwhile [][2]string
		// owner and member are the expected values; empty for none.
		owner, member string
	}{
		"nothing":                      {nil, nil, "value", ""},
		"deletes it":                   {nil, [][2]string{{"delete %s", ""}}, "", ""},
		"stores it anew":               {nil, [][2]string{{"set %s 0 0 5", "newer"}}, "newer", ""},
		"deletes it, and stores it":    {nil, [][2]string{{"delete %s", ""}, {"set %s 0 0 5", "newer"}}, "newer", ""},
		"marks it as stale":            {nil, [][2]string{{"md %s I T100", ""}}, "", ""},
		"stores anew what was stale":   {[][2]string{{"md %s I T100", ""}}, [][2]string{{"set %s 0 0 5", "newer"}}, "newer", ""},
		"leaves what was stale":        {[][2]string{{"md %s I T100", ""}}, nil, "", ""},
		"deletes what was stale":       {[][2]string{{"md %s I T100", ""}}, [][2]string{{"delete %s", ""}}, "", ""},
		"marks what was stale anew":    {[][2]string{{"md %s I T100", ""}}, [][2]string{{"set %s 0 0 5", "newer"}, {"md %s I T100", ""}}, "", ""},
		"stores something, then stale": {nil, [][2]string{{"set %s 0 0 5", "newer"}, {"md %s I T100", ""}}, "", ""},
	}
	bothWays(t, func(t *testing.T, streamed bool) {
		mapped, owner, n := startMapped(t, "-f", "4", "-m", "16"), memcachedtest.Start(t), 0
		member, export := mapped.Server, exporting(t, mapped)
		for what, test := range tests {
			t.Run(what, func(t *testing.T) {
				raw, once, key := member.Raw(), sync.Once{}, ""
				do := func(commands [][2]string) {
					for _, c := range commands {
						var data []byte
						if c[1] != "" {
							data = []byte(c[1])
						}
						if answer := raw.Do(fmt.Sprintf(c[0], key), data); strings.Contains(answer, "ERROR") || strings.HasPrefix(answer, "N") {
							t.Errorf("%s: %s", c[0], answer)
						}
					}
				}
				through := memcachedtest.Between(t, member.Address(), func(sent []byte) bool {
					if bytes.Contains(sent, []byte("md "+key)) {
						once.Do(func() { do(test.meanwhile) })
					}
					return true
				})
				addresses := []string{through, owner.Address()}
				routes, err := routing.New("gomemcache", drainertest.MustParse(t, addresses))
				if err != nil {
					t.Fatal(err)
				}
				for ; key == ""; n++ {
					if k := "key" + strconv.Itoa(n); routes.Owner([]byte(k)) == 1 {
						key = k
					}
				}
				raw.Must("STORED", "set "+key+" 0 0 5", []byte("value"))
				do(test.before)
				args := drainertest.MoveArgs(t, "gomemcache", through, addresses)
				if streamed {
					args.ExportPort = int32(drainertest.MustParse(t, []string{export})[0].Port)
				}
				r := drainertest.Move(t, args)
				if r.Code != 0 || strings.Contains(r.Err, "is asked for") || (r.Receipt.Reader == contract.ReaderStream) != streamed {
					t.Fatalf("%+v\n%s", r.Receipt, r.Err)
				}
				for _, server := range []struct {
					name, want string
					s          *memcachedtest.Server
				}{{"owner", test.owner, owner}, {"member", test.member, member}} {
					v, err := server.s.Dial().Get([]byte(key))
					if err != nil {
						t.Fatal(err)
					}
					got := ""
					if v != nil && !v.Stale {
						got = string(v.Data)
					}
					if got != server.want {
						t.Errorf("the %s has %q, want %q", server.name, got, server.want)
					}
				}
			})
		}
	})
}

// The member has deleted an item for the mover, and the connection breaks before its answer. Then the owner's
// copy is the only one, and stays.
func TestALostAnswerToADelete(t *testing.T) {
	for what, answered := range map[string]int{"of the run of deletes": 0, "of the delete of one": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := makePair(t, 1, "value")
			key, raw, seen := p.keys[0], p.member.Raw(), atomic.Int64{}
			through := memcachedtest.Between(t, p.member.Address(), func(sent []byte) bool {
				if !bytes.Contains(sent, []byte("md "+key)) {
					return true
				}
				switch n := int(seen.Add(1)); {
				case n <= answered: // so that the mover looks at it separately
					raw.Must("STORED", "set "+key+" 0 0 5", []byte("newer"))
				case n == answered+1:
					raw.Must("DELETED", "delete "+key, nil)
					return false
				}
				return true
			})
			p.l.member = drainertest.MustParse(t, []string{through})[0]
			read := p.fetched()
			p.owner.Raw().Must("STORED", "add "+key+" 0 0 5", []byte("value"))
			if err := p.l.own.delete(t.Context(), read); err != nil {
				t.Fatal(err)
			}
			p.holds(p.member, key, "")
			p.holds(p.owner, key, []string{"value", "newer"}[answered])
		})
	}
}
