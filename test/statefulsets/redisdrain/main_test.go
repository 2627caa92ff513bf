package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/test/statefulsets/drainer"
	"example.com/memcached-operator/test/statefulsets/resp"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// A test runs this program as a process of its own, which can be killed.
const asProgram = "REDISDRAIN_RUNS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// server is a redis-server that stays.
type server struct {
	*testing.T
	dir, address string
	process      *exec.Cmd
}

func newServer(t *testing.T) *server {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	tier.Needs(t, "Debian's package redis-server", err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &server{T: t, dir: t.TempDir(), address: l.Addr().String()}
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() *server {
	s.Helper()
	host, port, _ := net.SplitHostPort(s.address)
	s.process = exec.Command("redis-server", "--dir", s.dir, "--bind", host, "--port", port, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	s.process.SysProcAttr = linux.DiesWithParent()
	if err := s.process.Start(); err != nil {
		s.Fatal(err)
	}
	s.call("PING")
	return s
}

func (s *server) stop() {
	if s.process != nil {
		_, _ = s.process.Process.Kill(), s.process.Wait()
		s.process = nil
	}
}

// call waits until the server answers.
func (s *server) call(args ...string) (answer any) {
	s.Helper()
	wait.For(s, "an answer to "+args[0], func() error {
		c, err := resp.Dial("tcp", s.address, time.Minute)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err = c.Call(args...)
		return err
	})
	return answer
}

// volume is that of a server that has left, with so many keys.
func volume(t *testing.T, keys int) string {
	t.Helper()
	left := newServer(t).start()
	c, err := resp.Dial("tcp", left.address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range keys {
		if _, err := c.Call("SET", key(i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	left.stop()
	// The socket's path has to be short.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.CopyFS(dir, os.DirFS(left.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func key(i int) string   { return fmt.Sprint("key-", i) }
func value(i int) string { return fmt.Sprint("value of ", i) }

// run is a drainer's process.
type run struct {
	*testing.T
	*exec.Cmd
	message string
	output  strings.Builder
}

func start(t *testing.T, dir, unreachable string, members ...*server) *run {
	t.Helper()
	r := &run{T: t, message: filepath.Join(t.TempDir(), "message")}
	addresses := make([]string, len(members))
	for i, m := range members {
		addresses[i] = m.address
	}
	r.Cmd = exec.Command(os.Args[0], "-dir="+dir, "-message="+r.message, "-unreachable="+unreachable, "-members="+strings.Join(addresses, ","))
	r.Env = append(os.Environ(), asProgram+"=1")
	r.Stdout = &r.output
	r.SysProcAttr = linux.DiesWithParent()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// ends waits for the drainer's end.
func (r *run) ends() (count drainer.Count, code int) {
	r.Helper()
	_ = r.Wait()
	text, err := os.ReadFile(r.message)
	if err == nil {
		err = json.Unmarshal(text, &count)
	}
	if err != nil {
		r.Fatalf("its message is %q: %v", text, err)
	}
	return count, r.ProcessState.ExitCode()
}

// everyKeyIsAtItsOwner fails unless each of the keys is where clients look for it.
func everyKeyIsAtItsOwner(t *testing.T, keys int, members ...*server) {
	t.Helper()
	lost := 0
	for i := range keys {
		owner := members[resp.Owner(key(i), len(members))]
		if got := owner.call("GET", key(i)); got != value(i) {
			if lost++; lost < 5 {
				t.Errorf("%s is %v at its owner, want %q", key(i), got, value(i))
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d keys are lost", lost, keys)
	}
}

func TestADrainOfRedisMovesEachKeyToItsOwner(t *testing.T) {
	t.Parallel()
	const keys = 300
	a, b := newServer(t).start(), newServer(t).start()
	dir := volume(t, keys)
	r := start(t, dir, "1m", a, b)
	count, code := r.ends()
	if want := (drainer.Count{Found: keys, Moved: keys}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	everyKeyIsAtItsOwner(t, keys, a, b)
	lines := strings.Split(strings.TrimSpace(r.output.String()), "\n")
	if want := fmt.Sprintf(`{"done":%d,"total":%[1]d}`, keys); lines[len(lines)-1] != want {
		t.Errorf("its last line is %q, want %q", lines[len(lines)-1], want)
	}
}

func TestAKeyThatIsAtItsOwnerIsNotOverwritten(t *testing.T) {
	t.Parallel()
	const keys = 20
	a := newServer(t).start()
	dir := volume(t, keys)
	a.call("SET", key(7), "newer")
	count, code := start(t, dir, "1m", a).ends()
	if want := (drainer.Count{Found: keys, Moved: keys - 1, Skipped: 1}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	if got := a.call("GET", key(7)); got != "newer" {
		t.Errorf("the client's value is %v now", got)
	}
}

// deaf stands before a server: it lets a command through, and keeps the answer to itself. Then the
// server has done the command, and the one that sent it doesn't know.
func deaf(t *testing.T, s *server) (before *server, done <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answered := make(chan struct{})
	go func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", s.address)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(out, in) }()
		if _, err := out.Read(make([]byte, 1)); err == nil {
			close(answered)
		}
	}()
	return &server{T: t, address: l.Addr().String()}, answered
}

// The drainer is killed when an owner has taken a key and the volume still has it, with the
// redis-server that it has started; and is run again.
func TestADrainOfRedisThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	const keys = 300
	a, b := newServer(t).start(), newServer(t).start()
	dir := volume(t, keys)
	before, done := deaf(t, b)
	r := start(t, dir, "1h", a, before)
	wait.Receive(t, "a key is at the second server", done)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	moved := int(a.call("DBSIZE").(int64))
	count, code := start(t, dir, "1m", a, b).ends()
	if want := (drainer.Count{Found: keys - moved, Moved: keys - moved - 1, Skipped: 1}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	everyKeyIsAtItsOwner(t, keys, a, b)
}

// A drain fails while a server is away; the items that it has not moved are still there for the next attempt.
func TestADrainOfRedisWaitsForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	const keys = 100
	a, away := newServer(t).start(), newServer(t)
	dir := volume(t, keys)
	count, code := start(t, dir, "0s", a, away).ends()
	if code != 1 || count.Found != keys || count.Moved+count.Skipped == keys || count.Error == "" {
		t.Errorf("exit code %d, %+v, want a failure that says why", code, count)
	}
	r := start(t, dir, "10m", a, away) // it waits
	away.start()
	if count, code = r.ends(); code != 0 || count.Done() != nil {
		t.Errorf("exit code %d, %+v", code, count)
	}
	everyKeyIsAtItsOwner(t, keys, a, away)
}

func TestOneDrainerUsesAVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := drainer.Lock(filepath.Join(dir, ".drain.lock"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := drainer.Lock(filepath.Join(dir, ".drain.lock"), 0); err == nil || !strings.Contains(err.Error(), "another drainer uses the volume") {
		t.Errorf("two drainers have the volume: %v", err)
	}
	lock.Close()
}
