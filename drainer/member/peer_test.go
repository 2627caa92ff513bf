//go:build linux

package member_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// clients are real libraries that use the discovery protocol, and the command that starts each with the
// discovery address. `make clients` installs them.
var clients = map[string][]string{
	"Thanos":      {"thanos"},
	"elasticache": {"node", "elasticache.js"},
}

// peer is a running library.
type peer struct {
	requests *json.Encoder
	answers  *json.Decoder
}

func startPeer(t *testing.T, client, address string) *peer {
	t.Helper()
	dir := tier.Clients(t)
	words := append(slices.Clone(clients[client]), address)
	last := len(words) - 2
	words[last] = filepath.Join(dir, words[last])
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(err, outErr, tied.Start(cmd)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &peer{json.NewEncoder(in), json.NewDecoder(out)}
}

// store stores keys, and returns how many it could not store.
func (p *peer) store(keys []string) (failed int, err error) {
	for _, key := range keys {
		var answer struct{ Error string }
		if err := p.requests.Encode(map[string]string{"do": "set", "key": key, "value": "1"}); err != nil {
			return failed, err
		}
		if err := p.answers.Decode(&answer); err != nil {
			return failed, fmt.Errorf("the library has ended: %w", err)
		}
		if answer.Error != "" {
			failed++
		}
	}
	return failed, nil
}

// holders returns the members that have one of the keys.
func holders(t *testing.T, members []*told, keys []string) map[int]int {
	t.Helper()
	held := map[int]int{}
	for i, m := range members {
		conn, err := memcache.Dial(t.Context(), m.Address())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if v, err := conn.Get([]byte(key)); err != nil {
				t.Fatal(err)
			} else if v != nil {
				held[i]++
			}
		}
		conn.Close()
	}
	return held
}

// Real clients follow each list by themselves, while they store items all the time: 3 → 5 → 2 → 3 members.
func TestRealClientsFollow(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	t.Parallel()
	for client := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			follows(t, client)
		})
	}
}

func follows(t *testing.T, client string) {
	const most = 5
	var members []*told
	for range most {
		members = append(members, serveTold(t, contract.Connection{}, t.TempDir(), filepath.Join(t.TempDir(), "list"), memcachedtest.FreePort(t)))
	}
	tellAll := func(version int64, n int) {
		list := &contract.List{Version: version}
		for _, m := range members[:n] {
			list.Nodes = append(list.Nodes, contract.Node{Host: "127.0.0.1", IP: "127.0.0.1", Port: int32(m.Port)})
		}
		for _, m := range members {
			tell(t, m.list, list)
		}
		members[0].says("its list", list)
	}
	tellAll(1, 3)
	p := startPeer(t, client, members[0].address)
	for i, n := range []int{3, 5, 2, 3} {
		tellAll(int64(i)+2, n)
		round := 0
		wait.For(t, fmt.Sprintf("items on %d members", n), func() error {
			var keys []string
			for k := range 100 {
				keys = append(keys, fmt.Sprintf("key-%d-%d-%d", i, round, k))
			}
			round++
			failed, err := p.store(keys)
			if err != nil {
				t.Fatal(err)
			}
			if held := holders(t, members, keys); failed > 0 || len(held) != n || held[n-1] == 0 {
				return fmt.Errorf("round %d: %d failed, items on members %v", round, failed, held)
			}
			return nil
		})
		t.Logf("%d members: followed in round %d", n, round)
	}
}
