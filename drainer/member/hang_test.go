//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"net"
	"os"
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
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// impatient is a member that may hang for so long.
func impatient(t *testing.T, p *pod, after time.Duration, args ...string) *drainertest.Served {
	t.Helper()
	c := drainertest.MemberArgs(contract.Connection{}, p.volume, memcachedtest.FreePort(t), args...)
	c.MemoryDir, c.HangAfter = p.memory, after
	return drainertest.ServeCommand(t, "", c)
}

// proven waits until the supervisor has a connection for its question beside that of
// its watch, and has had the time to ask.
func proven(t *testing.T, s *drainertest.Served) {
	t.Helper()
	seen := 0
	wait.For(t, "the supervisor to have asked", func() error {
		conn, err := memcache.Dial(t.Context(), s.Address())
		if err != nil {
			return err
		}
		defer conn.Close()
		stats, err := conn.Stats("")
		if err != nil {
			return err
		}
		const watchPulseAndThis = "3"
		if seen++; stats["curr_connections"] < watchPulseAndThis {
			seen = 0
		}
		if seen < 20 {
			return fmt.Errorf("%s connections, seen %d times", stats["curr_connections"], seen)
		}
		return nil
	})
}

func TestAMemcachedThatHangsIsReplacedAndKeepsItsItems(t *testing.T) {
	for _, mode := range []string{"Saved", "Mapped"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			all := drainertest.Objects(91, 1000)
			p := newPod(t)
			if mode == "Mapped" {
				p.memory = ""
			}
			s := impatient(t, p, 2*time.Second, "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			proven(t, s)
			stopMemcached(t, s)
			if code := s.Wait(); code != 128+int(syscall.SIGKILL) {
				t.Errorf("exit code %d", code)
			}
			if said := s.Err.String(); !strings.Contains(said, "memcached hangs: it has not answered for 2s") {
				t.Errorf("it said %s", said)
			}
			again := impatient(t, p, time.Minute, "-m", "128")
			again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
		})
	}
}

// stopMemcached makes it hang.
func stopMemcached(t *testing.T, s *drainertest.Served) {
	t.Helper()
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// A memcached whose workers are stuck goes on accepting connections.
func TestAMemcachedWhoseWorkersHangIsReplacedThoughClientsConnect(t *testing.T) {
	t.Parallel()
	s := impatient(t, newPod(t), 2*time.Second, "-m", "128")
	proven(t, s)
	stopWorkers(t, s.PID())
	ended := make(chan int, 1)
	go func() { ended <- s.Wait() }()
	for {
		select {
		case code := <-ended:
			if code != 128+int(syscall.SIGKILL) || !strings.Contains(s.Err.String(), "memcached hangs") {
				t.Errorf("exit code %d: %s", code, s.Err.String())
			}
			return
		case <-time.After(5 * time.Millisecond):
			if conn, err := net.Dial("tcp", s.Address()); err == nil {
				defer conn.Close()
			}
		}
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
		runtime.LockOSThread() // they are this thread's, and go on when it ends
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
		for _, id := range stuck { // their end is told to this thread first
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
			t.Parallel()
			all := drainertest.Objects(92, 1000)
			p := newPod(t)
			if mode == "Mapped" {
				p.memory = ""
			}
			s := impatient(t, p, time.Hour, "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			stopMemcached(t, s)
			began := time.Now()
			s.Signal(syscall.SIGTERM)
			s.Wait()
			if took := time.Since(began); took < 10*time.Second {
				t.Errorf("it was killed after %v", took)
			}
			if said := s.Err.String(); !strings.Contains(said, "memcached does not end") {
				t.Errorf("it said %s", said)
			}
			if mode == "Saved" { // what was in memory goes with the pod
				p = p.again()
			}
			again := impatient(t, p, time.Hour, "-m", "128")
			again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
			drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
			again.End("saved")
		})
	}
}

// Whatever its clients do to it, a memcached that works isn't killed.
func TestABusyMemcachedIsNotKilled(t *testing.T) {
	const patience = 3 * time.Second
	for name, args := range map[string][]string{
		"it refuses connections":      {"-c", "128"},
		"it lets connections wait":    {"-c", "128", "-o", "no_maxconns_fast"},
		"it closes idle connections":  {"-o", "idle_timeout=1"},
		"it has one thread, loaded":   {"-t", "1"},
		"it has few requests at once": {"-t", "1", "-R", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := impatient(t, newPod(t), patience, append([]string{"-m", "128"}, args...)...)
			proven(t, s)
			pid := s.PID()
			occupied := occupy(t, s, 256)
			load(t, s, 4*patience, occupied)
			if err := drainertest.Gone(pid); err == nil {
				t.Errorf("memcached is gone: %s", s.Err.String())
			}
			if said := s.Err.String(); strings.Contains(said, "hangs") {
				t.Errorf("it said %s", said)
			}
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

// load asks on these connections, over and over, for that long.
func load(t *testing.T, s *drainertest.Served, d time.Duration, on []net.Conn) {
	request := []byte(strings.Repeat("mg a-key-that-nobody-has v\r\n", 500) + "mn\r\n")
	var behind sync.WaitGroup
	if len(on) < 8 {
		t.Fatalf("%d connections only: %s", len(on), s.Err.String())
	}
	for _, conn := range on[:8] {
		behind.Go(func() {
			buffer := make([]byte, 64<<10)
			_ = conn.SetDeadline(time.Now().Add(d))
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
	behind.Wait()
}

// TestAMemcachedThatReplaysIsNotKilled: a replay that stalls is no hang.
func TestAMemcachedThatReplaysIsNotKilled(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(93, 3000)
	dir := drainertest.Leaving(t, "killed", all)
	c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
	c.HangAfter = time.Second
	s := drainertest.ServeCommand(t, stallAt+"700", c)
	s.WaitFor("stalled before item")
	load(t, s, 4*time.Second, occupy(t, s, 8))
	if said := s.Err.String(); strings.Contains(said, "hangs") {
		t.Errorf("it said %s", said)
	}
	s.End("killed")
}
