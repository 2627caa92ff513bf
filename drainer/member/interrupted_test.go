//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// A replay is interrupted, and clients have deleted keys whose items had been restored. Neither the next
// replay nor a drain brings them back. Items that had not been replayed yet do come back, and those that had
// been and weren't deleted are still there.
func TestAKeyThatIsDeletedAfterItsReplayStaysDeleted(t *testing.T) {
	for _, mode := range []string{"Mapped", "Saved"} {
		for _, how := range []string{"supervisor and memcached killed", "memcached killed", "stopped", "drained"} {
			t.Run(mode+", "+how, func(t *testing.T) {
				if mode+how != "Mappedsupervisor and memcached killed" && mode+how != "Savedstopped" {
					tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
				}
				t.Parallel()
				// A batch has at most 2048 of these: two batches have been answered before the item at which
				// the replay stops.
				all := map[string]drainertest.Object{}
				for i := range 6000 {
					all[fmt.Sprintf("key:%04d", i)] = drainertest.Object{Value: []byte(strings.Repeat("v", 100))}
				}
				const stop, answered = "5000", 4096
				start := interruptible(t, mode, all)
				s := start(stallAt + stop)
				s.WaitFor("stalled before item")
				wait.For(t, "items to come back", func() error {
					if n := s.Memcached().Items(t); n < answered {
						return fmt.Errorf("%d items", n)
					}
					return nil
				})
				back := drainertest.Held(t, s.Address(), all)
				raw := s.Memcached().RawFor(t)
				deleted := 0
				for key := range back {
					if deleted == 100 {
						break
					}
					deleted++
					raw.Must("DELETED", "delete "+key, nil)
					delete(all, key)
				}
				switch how {
				case "supervisor and memcached killed", "drained":
					s.End("killed")
				case "memcached killed":
					s.KillMemcached()
				case "stopped":
					s.End("saved")
				}
				if how == "drained" && mode == "Mapped" {
					servers, addresses := drainertest.Survivors(t, 1)
					m := drainertest.DrainArgs(t, s.Dir, addresses)
					r := drainertest.Drain(t, m)
					if err := r.Receipt.AddsUp("the-claim"); err != nil {
						t.Errorf("%v: %+v; %s", err, r.Receipt, r.Err)
					}
					if n := servers[0].Items(t); n != int64(len(all)) {
						t.Errorf("%d items were drained, want %d: %d that clients had deleted are back", n, len(all), n-int64(len(all)))
					}
					drainertest.Check(t, m.Client, addresses, all)
				}
				last := start("")
				last.WaitFor("replayed generation-1")
				if n := last.Memcached().Items(t); n != int64(len(all)) {
					t.Errorf("%d items are there, want %d: %d that clients had deleted are back", n, len(all), n-int64(len(all)))
				}
				drainertest.Check(t, "gomemcache", []string{last.Address()}, all)
				last.End("saved")
			})
		}
	}
}

// interruptible returns a function that starts a member repeatedly whose items have to be replayed.
func interruptible(t *testing.T, mode string, all map[string]drainertest.Object) (start func(env string) *drainertest.Served) {
	t.Helper()
	if mode == "Mapped" {
		dir := drainertest.Leaving(t, "killed", all)
		return func(env string) *drainertest.Served {
			return drainertest.ServeWith(t, env, dir, memcachedtest.FreePort(t), "-m", "128")
		}
	}
	p := savedPod(t, all).nextPod()
	return func(env string) *drainertest.Served { return p.start(env, "-m", "160") }
}

// memcached is killed while items are being sent to it. Some of them may have been stored, and deleted by
// clients. So none of them comes back: at most eight batches. All others do.
func TestAKilledReplayLosesOnlyWhatWasUnderWay(t *testing.T) {
	tier.Second(t, "TestAKeyThatIsDeletedAfterItsReplayStaysDeleted")
	t.Parallel()
	const stored, underWay = 40_000, 8 * 2048
	all := map[string]drainertest.Object{}
	for i := range stored {
		all[fmt.Sprintf("key:%06d", i)] = drainertest.Object{Value: []byte(strings.Repeat("v", 100))}
	}
	dir, hold := drainertest.Leaving(t, "killed", all), filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "128")
	s := drainertest.SuperviseCommand(t, holdBy+hold, c, holdAt+"10000")
	const before = 4 * 2048 // so many have at least been answered when it stalls
	wait.For(t, "items to come back", func() error {
		if n := s.Memcached().Items(t); n < before {
			return fmt.Errorf("%d items", n)
		}
		return nil
	})
	if n := marked(t, dir, 1); n != before {
		t.Errorf("%d items are marked, %d were sent", n, before)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "items to be under way", func() error {
		if marked(t, dir, 1) == before {
			return errors.New("none is")
		}
		return nil
	})
	s.KillMemcached()
	again := drainertest.Serve(t, s.Dir, "-m", "128")
	again.WaitFor("replayed generation-1")
	n := again.Memcached().Items(t)
	t.Logf("%d of %d items came back", n, stored)
	if n < stored-underWay || n == stored {
		t.Errorf("%d of %d items came back, at most %d were under way", n, stored, underWay)
	}
	again.End("saved")
}

// marked returns how many items of a generation are marked as replayed.
func marked(t *testing.T, dir string, generation int) (n int) {
	t.Helper()
	marks, err := os.ReadFile(filepath.Join(dir, volume.GenerationName(generation, false), contract.ReplayedFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, b := range marks {
		n += bits.OnesCount8(b)
	}
	return n
}

// stalled is a source that calls do before its n-th item, when every item before that has an outcome: then a
// kill loses no item that is being sent.
type stalled struct {
	item.Source
	n  int
	do func()
}

func (s *stalled) Layers() []item.Source {
	part := func(has func(n int) bool) item.Source {
		return item.Through{Source: s.Source, Sequence: func(items iter.Seq2[*item.Item, error]) iter.Seq2[*item.Item, error] {
			return func(yield func(*item.Item, error) bool) {
				n := 0
				for it, err := range items {
					if n++; (err != nil || has(n)) && !yield(it, err) {
						return
					}
				}
			}
		}}
	}
	return []item.Source{
		part(func(n int) bool { return n < s.n }),
		part(func(n int) bool {
			if n == s.n {
				s.do()
			}
			return n >= s.n
		}),
	}
}
