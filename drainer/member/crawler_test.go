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

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/wait"
)

// TestAMemcachedThatListsItsItemsEndsInTime: at its end it waits for its crawler, and the
// crawler for whoever reads its list. It is killed in time for a save, which has all items.
func TestAMemcachedThatListsItsItemsEndsInTime(t *testing.T) {
	const within = 3 * time.Second
	for name, perSecond := range map[string]int{"the reader stalls": 0, "the reader is slow": 1 << 20} {
		for _, mode := range []string{"Saved", "Mapped"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				all, p := longKeys(20_000), newPod(t)
				if mode == "Mapped" {
					p.memory = ""
				}
				c := drainertest.MemberArgs(contract.Connection{}, p.volume, memcachedtest.FreePort(t), "-m", "128")
				c.MemoryDir, c.GracePeriod = p.memory, 3*within
				s := drainertest.ServeCommand(t, "", c)
				drainertest.Store(t, s.Address(), all)
				s.Settle(len(all))
				list := beginListing(t, s.Address())
				if perSecond > 0 {
					go readSlowly(list, perSecond)
				}
				began := time.Now()
				s.Signal(syscall.SIGTERM)
				s.WaitFor("memcached does not end")
				if took := time.Since(began); took < within || took > 2*within {
					t.Errorf("it was killed after %v, want %v", took, within)
				}
				s.Wait()
				p.expectAllOrNothing(all, false)
			})
		}
	}
}

// longKeys are objects whose list is long: a key takes three times its length there.
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

// readSlowly reads to the end, so many bytes a second.
func readSlowly(r *bufio.Reader, perSecond int) {
	const rests = 50 // a second
	for {
		if _, err := r.Discard(perSecond / rests); err != nil {
			return
		}
		time.Sleep(time.Second / rests)
	}
}
