// Package memcachedtest runs real memcached processes for tests: on free ports
// of the loopback interface, each ended by its own process id.
package memcachedtest

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Binary returns the path of memcached: the environment's MEMCACHED, else the one on the PATH.
func Binary(tb testing.TB) string {
	tb.Helper()
	return Program(tb, binary())
}

func binary() string { return cmp.Or(os.Getenv("MEMCACHED"), "memcached") }

// Program returns the path of a program that the test needs.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	tier.Needs(tb, name, err)
	return path
}

// Large returns a memcached that was built with 64-bit client flags (--enable-large-client-flags): the
// environment's MEMCACHED_LARGE, or else the one of `make memcacheds`.
func Large(tb testing.TB) string {
	tb.Helper()
	return Suite(tb, "large")
}

// Newer returns a memcached that is newer than Debian's: the environment's MEMCACHED_NEW, or else trixie's. Since 1.6.40
// the parser is another one: `make test-versions` has one.
func Newer(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv("MEMCACHED_NEW"); path != "" {
		return path
	}
	return Suite(tb, "trixie")
}

// Suite returns the memcached of another of Debian's suites: the environment's MEMCACHED_ and the suite's
// name, such as MEMCACHED_BULLSEYE, or else the one of `make memcacheds`.
func Suite(tb testing.TB, suite string) string {
	tb.Helper()
	if path := os.Getenv("MEMCACHED_" + strings.ToUpper(suite)); path != "" {
		return Program(tb, path)
	}
	const upwards = 8
	path := filepath.Join("bin", "memcached-"+suite, "memcached")
	for range upwards {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Join("..", path)
	}
	return Program(tb, path)
}

// StartSuite is Start with the memcached of another of Debian's suites.
func StartSuite(tb testing.TB, suite string, args ...string) *Server {
	tb.Helper()
	s := &Server{Port: FreePort(tb), tb: tb, args: args, binary: Suite(tb, suite)}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

// StartNewerSuite is Start with Debian's memcached of trixie, which takes the CAS value for an item.
func StartNewerSuite(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return StartSuite(tb, "trixie", args...)
}

// Main runs the tests, parallel ones at the same time: most of the time they wait for memcached and its
// clock.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Server is a running memcached.
type Server struct {
	Port int
	// Dialer is for this package's connections, except Raw ones.
	Dialer memcache.Dialer
	tb     testing.TB
	args   []string
	binary string // if "", it is Binary
	cmd    *exec.Cmd
	done   chan struct{}
}

// given are the ports that FreePort has returned.
var given sync.Map

// FreePort returns a TCP port on which no process listens, for the duration of the test. Meanwhile the kernel
// doesn't use the port for an outgoing connection, because it is below that range. Nor do the tests of other
// packages, which run at the same time: a socket with the port's name marks it as taken.
func FreePort(tb testing.TB) int {
	tb.Helper()
	const low, high = 12000, 32000
	for range 1000 {
		port := low + rand.IntN(high-low)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		reserved, err := net.Listen("unix", "@memcached-operator-test-port-"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if isFree(port) {
			tb.Cleanup(func() { _ = reserved.Close() })
			return port
		}
		_ = reserved.Close()
	}
	tb.Fatal("no free port was found")
	return 0
}

// isFree tells whether no process listens on the port. A process that another test forks meanwhile would
// listen, too, until its exec, so forks are locked out.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// StartLarge is Start with a memcached with 64-bit client flags.
func StartLarge(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{Port: FreePort(tb), tb: tb, args: args, binary: Large(tb)}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

// StartNewer is Start with a memcached that is newer than Debian's.
func StartNewer(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{Port: FreePort(tb), tb: tb, args: args, binary: Newer(tb)}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

// Start runs memcached with args on a free port, and ends it with the test.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return StartAt(tb, FreePort(tb), args...)
}

// Mapped is a memcached with a warm file.
type Mapped struct {
	*Server
	// Path is that of the warm file.
	Path string
	// Args are those that it was started with.
	Args []string
}

// StartMapped is Start with a warm file at path, and without the crawler, which would remove expired items
// while a test looks at them.
func StartMapped(tb testing.TB, path string, args ...string) *Mapped {
	tb.Helper()
	args = append([]string{"-e", path, "-o", "no_lru_crawler"}, args...)
	return &Mapped{Start(tb, args...), path, args}
}

// FewPages returns the arguments of a memcached with a warm file, with few slab classes unless args set them.
// memcached takes a page of each class at its start: by default 40 MB, which a test would write, save and
// read.
func FewPages(args ...string) []string {
	for _, arg := range args {
		if arg == "-f" || strings.Contains(arg, "slab_sizes") {
			return args
		}
	}
	return append([]string{"-f", "2"}, args...)
}

// StartAt is Start on a given port.
func StartAt(tb testing.TB, port int, args ...string) *Server {
	tb.Helper()
	s := &Server{Port: port, tb: tb, args: args}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

// Args returns the arguments that every memcached of a test gets, at port.
func Args(port int) []string {
	args := []string{"-l", "127.0.0.1", "-U", "0", "-p", strconv.Itoa(port)}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	return args
}

func (s *Server) run() {
	s.tb.Helper()
	binary := s.binary
	if binary == "" {
		binary = Binary(s.tb)
	}
	s.cmd = exec.Command(binary, append(Args(s.Port), s.args...)...)
	s.cmd.Stderr = os.Stderr
	if err := tied.Start(s.cmd); err != nil {
		s.tb.Fatal(err)
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	wait.For(s.tb, "memcached on port "+strconv.Itoa(s.Port), func() error {
		select {
		case <-s.done:
			s.tb.Fatalf("memcached %v ended: %v", s.args, s.cmd.ProcessState)
		default:
		}
		c, err := s.reach(s.tb.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Version()
		return err
	})
}

// Address returns HOST:PORT.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// Version returns the version that the server reports, such as "1.6.18".
func (s *Server) Version() string {
	s.tb.Helper()
	c, err := s.reach(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer c.Close()
	version, err := c.Version()
	if err != nil {
		s.tb.Fatal(err)
	}
	return version
}

// Ended is closed when the process has ended.
func (s *Server) Ended() <-chan struct{} { return s.done }

// PID returns the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Signal sends a signal. When it returns, a process that the signal kills or stops has ended, or answers
// nothing more.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal %v: %v", sig, err)
	}
	switch sig {
	case syscall.SIGKILL:
		<-s.done
	case syscall.SIGSTOP:
		wait.For(s.tb, "memcached to stop", s.stopped)
	}
}

// stopped returns nil when every thread is stopped.
func (s *Server) stopped() error {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.PID()))
	if err != nil || len(stats) == 0 {
		return fmt.Errorf("no thread of %d: %w", s.PID(), err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// The state follows the name, which is in parentheses (proc(5)).
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("a thread is in state %.1s", state)
		}
	}
	return nil
}

// Kill ends the process as a crash would. A second call does no harm.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Save makes memcached write its warm file and end.
func (s *Server) Save() {
	s.tb.Helper()
	s.stopMoves()
	s.Signal(syscall.SIGUSR1)
	wait.Receive(s.tb, "memcached to end after SIGUSR1", s.done)
	if !s.cmd.ProcessState.Success() {
		s.tb.Fatalf("memcached %v ended its save with %v", s.args, s.cmd.ProcessState)
	}
}

// CrashesInPageMoves tells whether the server has the fault of memcached#1269, which names these versions. Debian's
// trixie has 1.6.38.
func (s *Server) CrashesInPageMoves() bool {
	s.tb.Helper()
	var patch int
	_, err := fmt.Sscanf(s.Version(), "1.6.%d", &patch)
	return err == nil && patch >= 35 && patch <= 40
}

// stopMoves returns when no slab page is being moved, and none will be. The save of memcached 1.6.18 never
// ends if it begins during a move of a page that has an item in use: the thread that uses the item is stopped
// first, and the one that moves the page keeps waiting for it.
func (s *Server) stopMoves() {
	s.tb.Helper()
	c, err := s.reach(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer c.Close()
	do := func(command string) string {
		if err := c.Send([]byte(command + "\r\n")); err != nil {
			s.tb.Fatalf("%s: %v", command, err)
		}
		line, err := c.Line()
		if err != nil {
			s.tb.Fatalf("%s: %v", command, err)
		}
		return string(line)
	}
	do("slabs automove 0")
	waitForMoves(do, 10*time.Second)
}

// waitForMoves returns when no slab page is being moved, or after patience: since 1.6.35 a move that finds no
// free memory doesn't take any from other classes either, and lasts long.
func waitForMoves(do func(command string) string, patience time.Duration) {
	// This command is always refused, with another word if a move is going on or is about to begin. The
	// statistic slab_reassign_running shows a move only once it has begun.
	const probe = "slabs reassign 1 1"
	for end := time.Now().Add(patience); strings.HasPrefix(do(probe), "BUSY") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Restart runs the same memcached again after Kill or Save.
func (s *Server) Restart() {
	s.tb.Helper()
	s.run()
}

// reach connects to the server, whatever its version is.
func (s *Server) reach(ctx context.Context) (*memcache.Conn, error) {
	d := s.Dialer
	d.AnyServer = true
	return d.Dial(ctx, s.Address())
}

// Dial connects to the server until the test ends.
func (s *Server) Dial() *memcache.Conn {
	s.tb.Helper()
	return s.DialFor(s.tb)
}

// DialFor is Dial for the duration of another test.
func (s *Server) DialFor(tb testing.TB) *memcache.Conn {
	tb.Helper()
	c, err := s.reach(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(wait.Deadline()); err != nil {
		tb.Fatal(err)
	}
	return c
}

// Raw is a connection for typed commands.
type Raw struct {
	tb   testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// Raw connects until the test ends.
func (s *Server) Raw() *Raw {
	s.tb.Helper()
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { conn.Close() })
	return &Raw{s.tb, conn, bufio.NewReaderSize(conn, 64<<10)}
}

// Do sends a command line, and its data block if data isn't nil, and returns the first line of the answer.
func (r *Raw) Do(command string, data []byte) string {
	r.tb.Helper()
	request := append([]byte(command), "\r\n"...)
	if data != nil {
		request = append(append(request, data...), "\r\n"...)
	}
	_ = r.conn.SetDeadline(wait.Deadline())
	if _, err := r.conn.Write(request); err != nil {
		r.tb.Fatalf("%.60s: %v", command, err)
	}
	line, err := r.r.ReadString('\n')
	if err != nil {
		r.tb.Fatalf("%.60s: %v", command, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// Must is Do, and fails the test if the answer isn't want.
func (r *Raw) Must(want, command string, data []byte) {
	r.tb.Helper()
	if got := r.Do(command, data); got != want {
		r.tb.Fatalf("%.60s: got %q, want %q", command, got, want)
	}
}

// get returns the result of a classic get.
func (r *Raw) get(key string) (value string, flags uint64, ok bool) {
	r.tb.Helper()
	line := r.Do("get "+key, nil)
	if line == "END" {
		return "", 0, false
	}
	var size int
	if _, err := fmt.Sscanf(line, "VALUE "+key+" %d %d", &flags, &size); err != nil {
		r.tb.Fatalf("get %s: %q", key, line)
	}
	rest := make([]byte, size+len("\r\nEND\r\n"))
	if _, err := io.ReadFull(r.r, rest); err != nil {
		r.tb.Fatalf("get %s: %v", key, err)
	}
	return string(rest[:size]), flags, true
}

// RawFor is Raw for a server on Port that this package did not start.
func (s *Server) RawFor(tb testing.TB) *Raw {
	tb.Helper()
	return (&Server{Port: s.Port, tb: tb}).Raw()
}

// Items returns the server's curr_items.
func (s *Server) Items(tb testing.TB) int64 {
	tb.Helper()
	c, err := s.reach(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	stats, err := c.Stats("")
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.ParseInt(stats["curr_items"], 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
