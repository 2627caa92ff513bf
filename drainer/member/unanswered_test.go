//go:build linux

package member_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// deaf is a member whose supervisor asks at another port than clients do, so it never gets an answer.
type deaf struct {
	*drainertest.Process
	memcached *memcachedtest.Server
}

func (p *pod) startDeaf(args ...string) *deaf {
	p.t.Helper()
	port := memcachedtest.FreePort(p.t)
	c := drainertest.MemberArgs(contract.Connection{}, p.volume, port, args...)
	c.MemoryDir, c.Port = p.memory, int32(memcachedtest.FreePort(p.t))
	d := &deaf{drainertest.Start(p.t, c.Args()...), &memcachedtest.Server{Port: port}}
	wait.For(p.t, "memcached", func() error {
		conn, err := d.memcached.Dialer.Dial(p.t.Context(), d.memcached.Address())
		if err != nil {
			return err
		}
		conn.Close()
		return nil
	})
	return d
}

// killMemcached kills memcached; the supervisor then does the same as always.
func (d *deaf) killMemcached() {
	d.T.Helper()
	supervisor := strconv.Itoa(d.Cmd.Process.Pid)
	tasks, err := os.ReadDir("/proc/" + supervisor + "/task")
	if err != nil {
		d.T.Fatal(err)
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", supervisor, task.Name()))
		for _, child := range strings.Fields(string(children)) {
			pid, _ := strconv.Atoi(child)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	d.Wait()
}

// Clients may have stored values at a memcached that never answered its supervisor. If that memcached is
// lost, no older values come back in their place. If nothing was stored, the older values are the newest.
func TestAMemcachedThatNeverAnsweredMayHaveServed(t *testing.T) {
	for _, mode := range []string{"Mapped", "Saved"} {
		for _, end := range []string{"the container is killed", "memcached is killed"} {
			for _, stored := range []bool{true, false} {
				if mode == "Saved" && !stored && end == "the container is killed" {
					continue // the file in memory is lost with its pod, so it can't be read
				}
				t.Run(fmt.Sprintf("%s, %s, stored=%t", mode, end, stored), func(t *testing.T) {
					if (mode == "Mapped") == stored || (end == "memcached is killed") == stored {
						tier.Second(t, "TestAMemcachedThatNeverAnsweredMayHaveServed")
					}
					if !stored {
						tier.Second(t, "TestAStartThatNeverEndsIsBounded") // nothing is stored there, and all comes back
					}
					t.Parallel()
					older, newer := drainertest.Objects(94, 500), map[string]drainertest.Object{}
					for key := range older {
						newer[key] = drainertest.Object{Value: []byte("newer")}
					}
					p := newPod(t)
					if mode == "Mapped" {
						p.memory = ""
					}
					s := p.start("", "-m", "128")
					drainertest.Store(t, s.Address(), older)
					s.End("saved")
					if mode == "Saved" {
						p = p.nextPod()
					}
					d := p.startDeaf("-m", "160") // replays
					if stored {
						drainertest.Store(t, d.memcached.Address(), newer)
					}
					if end == "memcached is killed" {
						d.killMemcached()
					} else {
						d.Signal(syscall.SIGKILL)
						d.Wait()
					}
					_, addresses := drainertest.Survivors(t, 1)
					m := drainertest.DrainArgs(t, p.volume, addresses)
					r := drainertest.Drain(t, m)
					if want := map[bool]int{true: contract.ExitUnrecoverable, false: contract.ExitOK}[stored]; r.Code != want {
						t.Errorf("exit code %d, want %d: %+v", r.Code, want, r.Receipt)
					}
					if stored {
						older = map[string]drainertest.Object{}
					}
					drainertest.Check(t, m.Client, addresses, older)
					s = p.start("", "-m", "160")
					s.WaitFor(map[bool]string{true: "memcached starts cold", false: "replayed generation-1"}[stored])
					s.ExpectItems(older)
					s.End("saved")
				})
			}
		}
	}
}

// slab_config of memcached's .meta reads as a growth factor, and no server has told its classes.
func TestASaveWithOneListedSizeIsReadAlthoughItsMemcachedNeverAnswered(t *testing.T) {
	tier.Second(t, "TestItemsAreReadWhateverTheSlabsAreLike")
	t.Parallel()
	p := newPod(t)
	p.memory = ""
	all := drainertest.Objects(39, 90)
	s := p.startDeaf("-m", "128", "-o", "slab_sizes=1000")
	drainertest.Store(t, s.memcached.Address(), all)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Fatalf("exit code %d: %s", code, s.Err.String())
	}
	again := p.start("", "-m", "192")
	again.WaitFor("replayed generation-1: 90 items found: 90 added")
	drainertest.Check(t, "gomemcache", []string{again.Address()}, all)
	again.End("saved")
}
