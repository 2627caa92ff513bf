package member_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
)

// peerCommand is a real client, which isn't in Debian's packages. It is given the address
// for discovery, reads keys, one a line, stores each, and writes a line when it has.
// testdata has the programs.
var peerCommand = flag.String("peer", "", "a program of testdata with a real client of the discovery protocol")

// peer that runs.
type peer struct {
	in  io.Writer
	out *bufio.Scanner
}

func startPeer(t *testing.T, address string) *peer {
	t.Helper()
	words := append(strings.Fields(*peerCommand), address)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(err, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &peer{in, bufio.NewScanner(out)}
}

// store keys, and return how many it could not.
func (p *peer) store(keys []string) (failed int, err error) {
	for _, key := range keys {
		if _, err := fmt.Fprintln(p.in, key); err != nil {
			return failed, err
		}
		if !p.out.Scan() {
			return failed, errors.New("the peer has ended")
		}
		if p.out.Text() != "stored" {
			failed++
		}
	}
	return failed, nil
}

// holders are the members that have one of the keys.
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

// TestARealClientFollows each list by itself, while it stores items all the time: 3 → 5 →
// 2 → 3 members.
func TestARealClientFollows(t *testing.T) {
	if *peerCommand == "" {
		t.Skip("it needs -peer: no package that CI installs has such a client")
	}
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
	p := startPeer(t, members[0].address)
	for i, n := range []int{3, 5, 2, 3} {
		tellAll(int64(i)+2, n)
		round := 0
		memcachedtest.WaitFor(t, fmt.Sprintf("items on %d members", n), func() error {
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
