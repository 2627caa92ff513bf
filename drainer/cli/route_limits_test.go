package cli_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// anonymous returns the process's anonymous memory, in bytes.
func (r *routed) anonymous() int {
	r.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
	_, rest, found := strings.Cut(string(text), "RssAnon:")
	var kib int
	if _, bad := fmt.Sscan(rest, &kib); err != nil || bad != nil || !found {
		r.T.Fatalf("%v, %v: %s", err, bad, text)
	}
	return kib << 10
}

// metric returns one of the router's metrics.
func (r *routed) metric(name string) int {
	r.T.Helper()
	text, err := r.get("/metrics")
	_, rest, found := strings.Cut(text, "\n"+name+" ")
	n := 0.
	if _, bad := fmt.Sscan(rest, &n); err != nil || bad != nil || !found {
		r.T.Fatalf("%v, %v: %s", err, bad, text)
	}
	return int(n)
}

const (
	heldBytes    = "memcached_router_held_bytes"
	requestBytes = "memcached_router_request_bytes_total"
)

// most returns the most memory, in bytes, that f makes the router take until a metric has been that much, and
// the router has no more work.
func (r *routed) most(metric string, least int, f func(i int) bool) (anonymous, held int) {
	r.T.Helper()
	before := r.anonymous()
	look := func() {
		anonymous, held = max(anonymous, r.anonymous()), max(held, r.metric(heldBytes))
	}
	for i := 0; f(i); i++ {
		look()
	}
	wait.For(r.T, "what the clients send", func() error {
		if look(); r.metric(metric) < least && (metric != heldBytes || held < least) {
			return fmt.Errorf("%s is %d, want %d at least", metric, r.metric(metric), least)
		}
		return nil
	})
	for range 5 {
		r.settle()
		look()
	}
	return anonymous - before, held
}

// within fails if the router took more than its bound, plus the spare capacity of buffers and as much
// garbage.
func within(t *testing.T, anonymous, held, maxMemory int) {
	t.Helper()
	t.Logf("%d MiB, %d MiB held", anonymous>>20, held>>20)
	// The buffer of a line of up to 1 MiB doubles before the router sees that there is no memory left.
	if most := 4*maxMemory + 24<<20; anonymous > most || held > maxMemory*3/2+1<<20 {
		t.Errorf("it takes %d MiB, %d MiB held, where %d MiB are the bound", anonymous>>20, held>>20, maxMemory>>20)
	}
}

// talk opens a connection that sends the text. talk ignores errors of sending.
func talk(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(wait.Deadline())
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	go func() { _, _ = io.WriteString(conn, text) }()
	return conn
}

// writeRing writes the table atomically.
func writeRing(t *testing.T, path string, table any) {
	t.Helper()
	text, err := json.Marshal(table)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Clients ask for large values and read none of them.
func TestUnreadAnswersTakeBoundedMemory(t *testing.T) {
	for _, state := range []contract.RingState{contract.RingStable, contract.RingPrepare, contract.RingMove} {
		t.Run(state.String(), func(t *testing.T) {
			if state != contract.RingMove {
				tier.Second(t, "TestUnreadAnswersTakeBoundedMemory")
			}
			t.Parallel()
			servers := []*memcachedtest.Server{memcachedtest.Start(t, "-m", "100"), memcachedtest.Start(t, "-m", "100")}
			var keys strings.Builder
			value := strings.Repeat("v", 1_000_000)
			for i := range 16 {
				fmt.Fprintf(&keys, " k%d", i)
				conn := talk(t, servers[0].Address(), fmt.Sprintf("set k%d 0 0 %d\r\n%s\r\n", i, len(value), value))
				if _, err := io.ReadFull(conn, make([]byte, len("STORED\r\n"))); err != nil {
					t.Fatal(err)
				}
			}
			old := contract.Ring{Client: "gomemcache", Servers: []string{servers[0].Address()}}
			table := contract.RingTable{Number: 1, State: state, New: old}
			if state != contract.RingStable {
				table.Old, table.New.Servers = &old, []string{servers[1].Address()}
			}
			path := filepath.Join(t.TempDir(), "ring")
			writeRing(t, path, table)
			const maxMemory = 16 << 20
			r := route(t, "--threads=1", "--linger=0s", "--ring-file="+path, fmt.Sprintf("--max-memory=%d", maxMemory))
			anonymous, held := r.most(heldBytes, maxMemory/2, func(i int) bool {
				talk(t, r.address, "get"+keys.String()+"\r\n")
				return i < 30
			})
			within(t, anonymous, held, maxMemory)
			other := talk(t, r.address, "get nothing\r\n")
			if _, err := io.ReadFull(other, make([]byte, len("END\r\n"))); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

// Clients send large values for a member that reads none.
func TestRequestsThatAMemberDoesNotTakeAreBounded(t *testing.T) {
	for _, state := range []contract.RingState{contract.RingStable, contract.RingSettle} {
		t.Run(state.String(), func(t *testing.T) {
			if state != contract.RingSettle {
				tier.Second(t, "TestRequestsThatAMemberDoesNotTakeAreBounded")
			}
			t.Parallel()
			servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
			ring := contract.Ring{Client: "gomemcache", Servers: []string{servers[0].Address()}}
			table := contract.RingTable{Number: 1, State: state, New: ring}
			if state != contract.RingStable {
				table.Old = &contract.Ring{Client: "gomemcache", Servers: []string{servers[1].Address()}}
			}
			path := filepath.Join(t.TempDir(), "ring")
			writeRing(t, path, table)
			const maxMemory = 4 << 20
			r := route(t, "--threads=1", "--linger=0s", "--ring-file="+path, fmt.Sprintf("--max-memory=%d", maxMemory))
			servers[0].Signal(syscall.SIGSTOP)
			text := "set big 0 0 1000000\r\n" + strings.Repeat("v", 1_000_000) + "\r\n"
			anonymous, held := r.most(heldBytes, maxMemory/2, func(i int) bool {
				talk(t, r.address, text)
				return i < 60
			})
			servers[0].Signal(syscall.SIGCONT)
			within(t, anonymous, held, maxMemory)
		})
	}
}

// The first request of each client is for a member that does not answer; many for another member follow it.
// Neither these requests nor the other member's answers take more than the bound.
func TestRequestsAfterOneThatWaitsTakeBoundedMemory(t *testing.T) {
	tier.Second(t, "TestUnreadAnswersTakeBoundedMemory")
	value := strings.Repeat("v", 2000)
	for name, requests := range map[string]func(key string) string{
		"small answers": func(key string) string { return strings.Repeat("get "+key+"\r\n", 2000) },
		"requests":      func(key string) string { return strings.Repeat("set "+key+" 0 0 2000\r\n"+value+"\r\n", 2000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
			const maxMemory = 16 << 20
			r := route(t, "--threads=1", "--linger=0s", "--client=gomemcache",
				"--server="+servers[0].Address(), "--server="+servers[1].Address(), fmt.Sprintf("--max-memory=%d", maxMemory))
			silent, other := storedAt(t, r, servers[0], value), storedAt(t, r, servers[1], value)
			servers[0].Signal(syscall.SIGSTOP)
			text := "get " + silent + "\r\n" + requests(other)
			anonymous, held := r.most(heldBytes, maxMemory/2, func(i int) bool {
				talk(t, r.address, text)
				return i < 300
			})
			within(t, anonymous, held, maxMemory)
			another := talk(t, r.address, "get "+other+"\r\n") // the router may answer that there is no memory
			if _, err := io.ReadFull(another, make([]byte, 1)); err != nil {
				t.Errorf("another client: %v", err)
			}
			servers[0].Signal(syscall.SIGCONT)
		})
	}
}

// storedAt stores the value through the router, under a key that the member owns, and returns the key.
func storedAt(t *testing.T, r *routed, member *memcachedtest.Server, value string) (key string) {
	t.Helper()
	for i := range 100 {
		key = fmt.Sprintf("k%d", i)
		conn := talk(t, r.address, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value))
		if _, err := io.ReadFull(conn, make([]byte, len("STORED\r\n"))); err != nil {
			t.Fatal(err)
		}
		is := make([]byte, len("VALUE"))
		if _, err := io.ReadFull(talk(t, member.Address(), "get "+key+"\r\n"), is); err != nil {
			t.Fatal(err)
		}
		if string(is) == "VALUE" {
			return key
		}
	}
	t.Fatalf("%s has none of 100 keys", member.Address())
	return ""
}

// Clients send a line without an end, before their login and after it.
func TestLinesWithoutAnEndTakeBoundedMemory(t *testing.T) {
	for _, login := range []bool{true, false} {
		t.Run(fmt.Sprintf("login=%v", login), func(t *testing.T) {
			if !login {
				tier.Second(t, "TestLinesWithoutAnEndTakeBoundedMemory")
			}
			t.Parallel()
			const maxMemory = 4 << 20
			args := []string{"--threads=1", "--linger=0s", "--client=gomemcache", "--server=" + memcachedtest.Start(t).Address(), fmt.Sprintf("--max-memory=%d", maxMemory)}
			if login {
				file := filepath.Join(t.TempDir(), "auth")
				if err := os.WriteFile(file, []byte("user:pass\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--client-auth-file="+file)
			}
			r := route(t, args...)
			anonymous, held := r.most(requestBytes, 60*2048, func(i int) bool {
				talk(t, r.address, "get "+strings.Repeat("k ", 1<<19-10))
				return i < 60
			})
			within(t, anonymous, held, maxMemory)
		})
	}
}

// With TLS, too, a connection counts until it is closed, and is closed after a time if its client reads
// nothing.
func TestConnectionsByTLSCountUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	m := memcachedtest.Start(t)
	value := strings.Repeat("v", 900_000)
	direct := talk(t, m.Address(), fmt.Sprintf("set big 0 0 %d\r\n%s\r\n", len(value), value))
	if _, err := io.ReadFull(direct, make([]byte, len("STORED\r\n"))); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const most = 10
	r := route(t, "--threads=1", "--linger=0s", "--client=gomemcache", "--server="+m.Address(), "--client-tls-dir="+dir, fmt.Sprintf("--max-connections=%d", most), "--idle-timeout=1s")
	files := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := files()
	secured := func(takesLittle bool) (*tls.Conn, error) {
		conn, err := net.DialTimeout("tcp", r.address, wait.Long)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(wait.Deadline())
		if takesLittle {
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		return c, c.Handshake()
	}
	taken := 0
	for round := range 3 {
		for range most {
			if c, err := secured(true); err == nil {
				taken++
				_, _ = io.WriteString(c, "get big big big big big\r\nquit\r\n")
			}
		}
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			if n := files() - before; n > 3*most+3 {
				t.Fatalf("round %d: %d descriptors of %d connections", round, n, most)
			}
		}
	}
	if taken < most {
		t.Errorf("%d connections were taken", taken)
	}
	wait.For(t, "the connections to be closed", func() error {
		if n, files := r.metric("memcached_router_connections"), files()-before; n > 0 || files > 2 {
			return fmt.Errorf("%d connections, %d descriptors", n, files)
		}
		return nil
	})
	text := fmt.Sprintf("VALUE big 0 %d\r\n%s\r\n", len(value), value)
	wait.For(t, "a client that is not idle for a second to get its answer", func() error {
		c, err := secured(false)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "get big big\r\nquit\r\n"); err != nil {
			return err
		}
		if got, err := io.ReadAll(c); string(got) != text+text+"END\r\n" || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%d bytes, %w", len(got), err)
		}
		return nil
	})
}

// Once the file is right again, its earlier errors are forgotten, and a refused table does not prevent the
// next one.
func TestTroubleWithTheRingFilePasses(t *testing.T) {
	t.Parallel()
	ring := contract.Ring{Client: "gomemcache", Servers: []string{memcachedtest.Start(t).Address()}}
	path := filepath.Join(t.TempDir(), "ring")
	table := func(number int64) contract.RingTable {
		return contract.RingTable{Number: number, State: contract.RingStable, New: ring}
	}
	writeRing(t, path, table(7))
	r := route(t, "--linger=0s", "--ring-file="+path)
	says := func(what string, number int64, trouble bool) { t.Helper(); r.says(t, what, number, trouble) }
	writeRing(t, path, "no table")
	says("the error", 7, true)
	writeRing(t, path, table(7))
	says("the table again", 7, false)
	writeRing(t, path, table(5))
	says("that it is older", 7, true)
	writeRing(t, path, table(7))
	says("the table again", 7, false)
	writeRing(t, path, table(5))
	says("that it is older", 7, true)
	writeRing(t, path, table(8))
	says("the next table", 8, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	says("that the file is gone", 8, true)
	writeRing(t, path, table(8))
	says("the table again", 8, false)
}

// After SIGTERM a router is not ready, and accepts connections for a while.
func TestARouterLingersAfterSIGTERM(t *testing.T) {
	t.Parallel()
	member := memcachedtest.Start(t).Address()
	r := route(t, "--linger=1h", "--client=gomemcache", "--server="+member)
	ask := func(what string, conn net.Conn) {
		t.Helper()
		if _, err := io.WriteString(conn, "get a\r\n"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len("END\r\n"))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	idle := talk(t, r.address, "")
	ask("a connection", idle)
	r.Signal(syscall.SIGTERM)
	wait.For(t, "it to be not ready", func() error {
		if _, err := r.get("/ready"); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	ask("a late connection", talk(t, r.address, ""))
	ask("an earlier connection", idle)
}

// After that time the router ends.
func TestARouterEndsAfterItHasLingered(t *testing.T) {
	t.Parallel()
	r := route(t, "--linger=1s", "--client=gomemcache", "--server="+memcachedtest.Start(t).Address())
	idle := talk(t, r.address, "get a\r\n")
	if _, err := io.ReadFull(idle, make([]byte, len("END\r\n"))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != contract.ExitOK || time.Since(began) < time.Second {
		t.Errorf("exit code %d after %v: %s", code, time.Since(began), r.Err.String())
	}
	if rest, err := io.ReadAll(idle); err != nil || len(rest) > 0 {
		t.Errorf("the connection: %q, %v", rest, err)
	}
}
