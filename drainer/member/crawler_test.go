//go:build linux

package member_test

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// At its end memcached waits for its crawler, and the crawler waits for the client that reads its list. So
// memcached is killed in time for a save, which has all items.
func TestAMemcachedThatListsItsItemsEndsInTime(t *testing.T) {
	tier.Second(t, "TestAMemcachedThatHangsAtItsEndIsKilledAndKeepsItsItems")
	for name, perSecond := range map[string]int{"the reader stalls": 0, "the reader is slow": 64 << 10} {
		for _, mode := range []string{"Saved", "Mapped"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				all, p := longKeys(10_000), newPod(t)
				if mode == "Mapped" {
					p.memory = ""
				}
				c := p.serve("-m", "128")
				c.GracePeriod = 21 * time.Second
				s, clock := startWithClock(t, c)
				drainertest.Store(t, s.Address(), all)
				s.Settle(len(all))
				list := beginListing(t, s.Address())
				s.Signal(syscall.SIGTERM)
				s.WaitFor("Gracefully stopping")
				after := clock.untilKilled(true, func() {
					if _, err := list.Discard(perSecond); err != nil {
						t.Fatalf("the list has ended: %v", err)
					}
				})
				if after != 7 {
					t.Errorf("it was killed after %d s, want 7", after)
				}
				s.Wait()
				p.expectAllOrNothing(all, false)
			})
		}
	}
}

// longKeys returns objects whose list is long: in it, a key takes three times its length.
func longKeys(n int) map[string]drainertest.Object {
	all := map[string]drainertest.Object{}
	for i := range n {
		all[strings.Repeat("%", 220)+strconv.Itoa(i)] = drainertest.Object{Value: []byte("v")}
	}
	return all
}

// beginListing begins to read a list of all items.
func beginListing(t *testing.T, address string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	r := bufio.NewReader(conn)
	wait.For(t, "the first line", func() error {
		if _, err := fmt.Fprint(conn, "lru_crawler metadump all\r\n"); err != nil {
			return err
		}
		line, err := r.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "key=") {
			err = fmt.Errorf("it is %q", line)
		}
		return err
	})
	return r
}
