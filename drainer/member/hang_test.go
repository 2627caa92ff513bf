//go:build linux

package member_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/member"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// clock is the clock by which a supervisor judges whether its memcached hangs. The test controls it.
type clock struct {
	s   *drainertest.Served
	dir string
}

// Two goroutines look at memcached, and each has its own seconds: one while memcached runs, one when it was
// told to end.
var seconds = map[bool]string{false: "while it runs", true: "when it was told to end"}

// The lines that a supervisor with such a clock writes.
const (
	answered = "memcached has answered"
	asked    = "memcached is asked"
)

// startWithClock runs a member whose memcached may hang for a minute.
func startWithClock(t *testing.T, c contract.Supervise, env ...string) (*drainertest.Served, clock) {
	t.Helper()
	dir := t.TempDir()
	c.HangAfter = time.Minute
	s := drainertest.SuperviseCommand(t, clockIn+dir, c, env...)
	s.WaitFor(answered)
	return s, clock{s, dir}
}

// followClock is the supervisor's part: a second passes when there is a file with its name. The supervisor
// removes the file when it has looked.
func followClock(dir string) {
	var runs, ends bool // it has looked at this second
	next := func(ctx context.Context, toldToEnd bool) error {
		file, looked := filepath.Join(dir, seconds[toldToEnd]), &runs
		if toldToEnd {
			looked = &ends
		}
		if *looked {
			_ = os.Remove(file)
		}
		for *looked = false; !*looked; {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err := os.Stat(file)
			if *looked = err == nil; !*looked {
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	}
	member.SetHangClock(next, func(pending bool) {
		fmt.Fprintln(os.Stderr, map[bool]string{true: asked, false: answered}[pending])
	})
}

// pass lets a second pass; it returns false if the supervisor has killed memcached.
func (c clock) pass(toldToEnd bool) bool {
	c.s.T.Helper()
	file, killed := filepath.Join(c.dir, seconds[toldToEnd]), false
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		c.s.T.Fatal(err)
	}
	wait.For(c.s.T, "the supervisor to look", func() error {
		if said := c.s.Err.String(); strings.Contains(said, "memcached hangs") || strings.Contains(said, "memcached was told to end") {
			killed = true
			return nil
		}
		if volume.Missing(file) {
			return nil
		}
		return errors.New("it has not")
	})
	return !killed
}

// untilKilled lets seconds pass until memcached is killed, and returns how many. untilKilled calls
// between before each.
func (c clock) untilKilled(toldToEnd bool, between func()) (n int) {
	c.s.T.Helper()
	for n = 1; ; n++ {
		between()
		if !c.pass(toldToEnd) {
			return n
		}
	}
}

// waitForQuestion waits until memcached, which no longer answers, is sent a request.
func waitForQuestion(s *drainertest.Served) {
	s.T.Helper()
	wait.For(s.T, "a question without an answer", func() error {
		if said := s.Err.String(); strings.LastIndex(said, asked) < strings.LastIndex(said, answered) {
			return errors.New(said)
		}
		return nil
	})
}

func TestAMemcachedThatHangsIsReplacedAndKeepsItsItems(t *testing.T) {
	for _, mode := range []string{"Saved", "Mapped"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "Mapped" {
				tier.Second(t, "TestAMemcachedThatHangsIsReplacedAndKeepsItsItems")
			}
			t.Parallel()
			all := drainertest.Objects(91, 1000)
			p := newPod(t)
			if mode == "Mapped" {
				p.memory = ""
			}
			s, clock := startWithClock(t, p.serve("-m", "128"))
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			stopMemcached(t, s)
			waitForQuestion(s)
			if after := clock.untilKilled(false, func() {}); after < 60 || after >= 600 {
				t.Errorf("it was killed after %d s", after)
			}
			if code := s.Wait(); code != 128+int(syscall.SIGKILL) {
				t.Errorf("exit code %d", code)
			}
			if said := s.Err.String(); !strings.Contains(said, "memcached hangs: it has not answered for 1m0s") {
				t.Errorf("it said %s", said)
			}
			again := p.start("")
			again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
		})
	}
}

// stopMemcached makes memcached hang.
func stopMemcached(t *testing.T, s *drainertest.Served) {
	t.Helper()
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// A memcached whose workers are stuck still accepts connections.
func TestAMemcachedWhoseWorkersHangIsReplacedThoughClientsConnect(t *testing.T) {
	t.Parallel()
	s, clock := startWithClock(t, newPod(t).serve("-m", "128"))
	stopWorkers(t, s.PID())
	waitForQuestion(s)
	after := clock.untilKilled(false, func() {
		for range 5 {
			if conn, err := net.Dial("tcp", s.Address()); err == nil {
				defer conn.Close()
			}
		}
	})
	if code := s.Wait(); after < 60 || after >= 600 || code != 128+int(syscall.SIGKILL) || !strings.Contains(s.Err.String(), "memcached hangs") {
		t.Errorf("after %d s, exit code %d: %s", after, code, s.Err.String())
	}
}

// stopWorkers stops all threads of the process but the main one, as a debugger does.
func stopWorkers(t *testing.T, pid int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the threads stop for this thread, and continue when it ends
		var failed error
		var stuck []int
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || id == pid {
				continue
			}
			if err = syscall.PtraceAttach(id); err == nil {
				_, err = syscall.Wait4(id, nil, syscall.WALL, nil)
			}
			failed = errors.Join(failed, err)
			stuck = append(stuck, id)
		}
		stopped <- failed
		for _, id := range stuck { // the kernel reports their end to this thread first
			_, _ = syscall.Wait4(id, nil, syscall.WALL, nil)
		}
	}()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

func TestAMemcachedThatHangsAtItsEndIsKilledAndKeepsItsItems(t *testing.T) {
	for _, mode := range []string{"Saved", "Mapped"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "Mapped" {
				tier.Second(t, "TestAMemcachedThatHangsAtItsEndIsKilledAndKeepsItsItems")
			}
			t.Parallel()
			all := drainertest.Objects(92, 1000)
			p := newPod(t)
			if mode == "Mapped" {
				p.memory = ""
			}
			s, clock := startWithClock(t, p.serve("-m", "128"))
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			stopMemcached(t, s)
			s.Signal(syscall.SIGTERM)
			if after := clock.untilKilled(true, func() {}); after != 10 {
				t.Errorf("it was killed after %d s", after)
			}
			s.Wait()
			if mode == "Saved" { // the file in memory is lost with the pod
				p = p.nextPod()
			}
			again := p.start("")
			again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
		})
	}
}

// A memcached that works isn't killed, whatever its clients do.
func TestABusyMemcachedIsNotKilled(t *testing.T) {
	const told = "it refuses connections"
	for name, args := range map[string][]string{
		told:                          {"-c", "128"},
		"it lets connections wait":    {"-c", "128", "-o", "no_maxconns_fast"},
		"it closes idle connections":  {"-o", "idle_timeout=1"},
		"it has one thread, loaded":   {"-t", "1"},
		"it has few requests at once": {"-t", "1", "-R", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != told {
				tier.Second(t, "TestABusyMemcachedIsNotKilled")
			}
			t.Parallel()
			s, clock := startWithClock(t, newPod(t).serve(append([]string{"-m", "128"}, args...)...))
			occupied := occupy(t, s, 256)
			worksOn(t, clock, occupied)
			for _, conn := range occupied {
				conn.Close()
			}
			s.End("saved")
		})
	}
}

// occupy opens as many connections as there may be, up to n.
func occupy(t *testing.T, s *drainertest.Served, n int) (all []net.Conn) {
	t.Helper()
	for range n {
		conn, err := net.DialTimeout("tcp", s.Address(), time.Second)
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	return all
}

// worksOn checks that memcached survives two minutes, in which it works a hundredth of each second.
func worksOn(t *testing.T, clock clock, on []net.Conn) {
	t.Helper()
	const seconds = 120
	stop, pid := load(t, clock.s, on), clock.s.PID()
	defer stop()
	for second, before := 0, cpuTicks(t, pid); second < seconds; second++ {
		wait.For(t, "memcached to work", func() error {
			if now := cpuTicks(t, pid); now <= before {
				return fmt.Errorf("it has used %d hundredths of a second of a CPU, and %d before", now, before)
			}
			return nil
		})
		before = cpuTicks(t, pid)
		if !clock.pass(false) {
			t.Fatalf("it was killed in second %d: %s", second, clock.s.Err.String())
		}
	}
	if err := drainertest.Gone(pid); err == nil {
		t.Errorf("memcached is gone: %s", clock.s.Err.String())
	}
}

// cpuTicks returns the CPU time of a process, in hundredths of a second (proc_pid_stat(5)).
func cpuTicks(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return user + system
}

// load sends requests on some of these connections, repeatedly, until stop is called.
func load(t *testing.T, s *drainertest.Served, on []net.Conn) (stop func()) {
	t.Helper()
	request := []byte(strings.Repeat("mg a-key-that-is-missing v\r\n", 500) + "mn\r\n")
	if len(on) < 8 {
		t.Fatalf("%d connections only: %s", len(on), s.Err.String())
	}
	var asking sync.WaitGroup
	for _, conn := range on[:8] {
		asking.Go(func() {
			buffer := make([]byte, 64<<10)
			for {
				if _, err := conn.Write(request); err != nil {
					return
				}
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					if strings.HasSuffix(string(buffer[:n]), "MN\r\n") {
						break
					}
				}
			}
		})
	}
	return func() {
		for _, conn := range on[:8] {
			conn.Close()
		}
		asking.Wait()
	}
}

// A replay that stalls is no hang.
func TestAMemcachedThatReplaysIsNotKilled(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(93, 3000)
	dir := drainertest.Leaving(t, "killed", all)
	c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
	s, clock := startWithClock(t, c, stallAt+"700")
	s.WaitFor("stalled before item")
	worksOn(t, clock, occupy(t, s, 8))
	s.End("killed")
}
