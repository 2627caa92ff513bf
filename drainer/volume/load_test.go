package volume

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// After a SIGKILL at a random moment, the reader finds a set of items that the server could have had. Every
// acknowledged value is there, unless it was just being replaced, or memcached dropped it to move a slab
// page. Each value there was written, and was not deleted.
func TestKilledUnderLoad(t *testing.T) {
	for i, args := range [][]string{nil, nil, {"-C"}, memcachedtest.SmallChunks(), {"-f", "1.07"}, {"-t", "1"}} {
		moving := i%2 == 1
		if !moving {
			args = append(args, "-o", "slab_automove=0")
		}
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			if i != 1 {
				tier.Second(t, "TestKilledUnderLoad")
			}
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			m := startMember(t, append([]string{"-m", "400"}, args...)...)
			if moving && m.CrashesInPageMoves() {
				t.Skipf("memcached %s crashes when it moves a slab page", m.Version())
			}
			m.writeManifest(Manifest{State: Running, Image: m.image()})
			var writers []*loadWriter
			var answered atomic.Int64
			var wg sync.WaitGroup
			for w := range 4 {
				l := newLoadWriter(t, m.Server, w, seed)
				l.moving, l.all = moving, &answered
				writers = append(writers, l)
				wg.Go(l.run)
			}
			moment := int64(500 + rand.IntN(1000))
			if tier.All() {
				moment *= 2 + rand.Int64N(2)
			}
			wait.For(t, fmt.Sprintf("%d operations", moment), func() error {
				select {
				case <-m.Ended():
					t.Fatalf("memcached ended by itself after %d operations", answered.Load())
				default:
				}
				if n := answered.Load(); n < moment {
					return fmt.Errorf("there were %d", n)
				}
				return nil
			})
			m.Kill()
			wg.Wait()
			got, _ := readAll(t, m.dir)
			operations, items := 0, len(got)
			for _, l := range writers {
				operations += l.operations
				l.check(got)
			}
			t.Logf("%d operations before the kill, %d items found", operations, items)
			for key := range got {
				t.Errorf("%q was never written", key)
			}
		})
	}
}

// loadWriter writes its own keys, one request at a time, until the server is gone.
type loadWriter struct {
	t    *testing.T
	name int
	// moving means that slab pages change their class, which may lose items.
	moving     bool
	r          *rand.Rand
	conn       net.Conn
	in         *bufio.Reader
	acked      map[string]string // the values; "" is deleted
	key, value string            // of the request without an answer
	operations int
	all        *atomic.Int64 // operations of all writers
}

func newLoadWriter(t *testing.T, s *memcachedtest.Server, name int, seed uint64) *loadWriter {
	t.Helper()
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &loadWriter{t: t, name: name, r: rand.New(rand.NewPCG(seed, uint64(name))), conn: conn,
		in: bufio.NewReader(conn), acked: map[string]string{}}
}

func (l *loadWriter) run() {
	for {
		if l.moving && l.name == 0 && l.r.IntN(50) == 0 {
			if !l.do("slabs reassign -1 "+strconv.Itoa(1+l.r.IntN(35))+"\r\n", "") {
				return
			}
			continue
		}
		l.key = fmt.Sprintf("key:%d:%d", l.name, l.r.IntN(300))
		held := l.acked[l.key]
		request, want := "", "STORED"
		switch n := l.r.IntN(10); {
		case n == 0 && held != "":
			l.value, want = "", "DELETED"
			request = "delete " + l.key + "\r\n"
		case n == 1 && held != "" && len(held) < 2000:
			// memcached appends in place only to a larger value.
			more := l.random(100)
			l.value = held + more
			request = fmt.Sprintf("append %s 0 0 %d\r\n%s\r\n", l.key, len(more), more)
		default:
			l.value = l.random([]int{700000, 20000, 20000, 1000, 1000, 1000, 100}[min(l.r.IntN(60), 6)])
			request = fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", l.key, len(l.value), l.value)
		}
		if !l.do(request, want) {
			return
		}
		l.acked[l.key] = l.value
		l.key = ""
	}
}

// random returns a value that differs from all others.
func (l *loadWriter) random(n int) string {
	unit := fmt.Sprintf("<%x>", l.r.Uint64())
	return strings.Repeat(unit, 1+n/len(unit))
}

// do tells whether the server has answered; if want is "", any answer will do.
func (l *loadWriter) do(request, want string) bool {
	_ = l.conn.SetDeadline(wait.Deadline())
	if _, err := l.conn.Write([]byte(request)); err != nil {
		return false
	}
	line, err := l.in.ReadString('\n')
	if err != nil {
		return false
	}
	l.operations++
	l.all.Add(1)
	switch answer := strings.TrimSpace(line); {
	case want == "" || answer == want:
	case l.moving && (answer == "NOT_FOUND" || answer == "NOT_STORED"):
		l.value = "" // memcached dropped it to move a page
	default:
		l.t.Errorf("%.30q: %s, want %s", request, answer, want)
		return false
	}
	return true
}

// check removes the writer's values from got.
func (l *loadWriter) check(got map[string]memcachedtest.Held) {
	l.t.Helper()
	for key, value := range l.acked {
		h, there := got[key]
		underWay := key == l.key
		switch {
		case there && h.Value == value, there && underWay && h.Value == l.value:
		case !there && (value == "" || underWay || l.moving):
		default:
			l.t.Errorf("%q: there %t with %d bytes, acknowledged %d, under way %t with %d", key, there, len(h.Value), len(value), underWay, len(l.value))
		}
		delete(got, key)
	}
	if h, there := got[l.key]; there && h.Value == l.value {
		delete(got, l.key) // its first value, which was never acknowledged
	}
}
