//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// clockCases are ends of a member whose clock differed from the present one. A node whose clock was behind
// during the save is missing, because an hour may have passed since.
var clockCases = []struct {
	how   string
	ahead time.Duration
}{{"saved", time.Hour}, {"killed", time.Hour}, {"killed", -time.Hour}}

// expiring returns n objects, half of which have less time left than the difference of the clocks.
func expiring(n int) map[string]drainertest.Object {
	all := map[string]drainertest.Object{}
	for i := range n {
		all["expiring:"+strconv.Itoa(i)] = drainertest.Object{Value: []byte("value"), TTL: []int64{0, 600, 600, 20000}[i%4]}
	}
	return all
}

// Items have as much time left as by the clock of the memcached that held them, whatever its node's clock
// was.
func TestReplayByTheClockOfTheMember(t *testing.T) {
	for _, test := range clockCases {
		how, ahead := test.how, test.ahead
		t.Run(fmt.Sprintf("%s, %v ahead", how, ahead), func(t *testing.T) {
			if how != "killed" || ahead < 0 {
				tier.Second(t, "TestReplayByTheClockOfTheMember")
			}
			t.Parallel()
			all := expiring(400)
			dir := t.TempDir()
			s := drainertest.ServeWith(t, memcachedtest.ClockAhead(t, ahead), dir, memcachedtest.FreePort(t), "-m", "128")
			drainertest.Store(t, s.Address(), all)
			s.Settle(len(all))
			s.End(how)
			_, addresses := drainertest.Survivors(t, 2)
			if r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses)); r.Code != 0 || r.Receipt.Added != int64(len(all)) {
				t.Errorf("%+v\n%s", r.Receipt, r.Err)
			}
			drainertest.Check(t, "libmemcached-ketama-weighted", addresses, all)
			again := drainertest.Serve(t, dir, "-m", "192")
			again.WaitFor("replayed generation-1: 400 items found: 400 added")
			again.ExpectItems(all)
			again.End("saved")
		})
	}
}

// A save that is of the future by this node's clock is resumed from, even if the volume has no room for
// anything else, and memcached's clock is right from then on.
func TestNothingIsDeletedForAClock(t *testing.T) {
	const noRoom = freeIs + "0"
	check := func(t *testing.T, begun time.Time, start func() *drainertest.Served, all map[string]drainertest.Object) {
		t.Helper()
		s := start()
		s.ExpectItems(all)
		// memcached's clock loses the duration of each start, and both clocks count whole seconds.
		off := memcachedtest.Clock(t, s.Memcached().DialFor(t)) - time.Now().Unix()
		if took := int64(time.Since(begun)/time.Second) + 2; off > 1 || off < -took {
			t.Errorf("memcached's clock is off by %d s, after at most %d s", off, took)
		}
		drainertest.ExpectGenerations(t, s.Dir)
		s.End("saved")
	}
	t.Run("Mapped", func(t *testing.T) {
		tier.Second(t, "TestNothingIsDeletedForAClock")
		t.Parallel()
		all, dir := expiring(4000), t.TempDir()
		s := drainertest.ServeWith(t, memcachedtest.ClockAhead(t, time.Hour), dir, memcachedtest.FreePort(t), "-m", "128")
		drainertest.Store(t, s.Address(), all)
		s.End("saved")
		begun := time.Now()
		check(t, begun, func() *drainertest.Served {
			return drainertest.ServeWith(t, noRoom, dir, memcachedtest.FreePort(t), "-m", "128")
		}, all)
		check(t, begun, func() *drainertest.Served { return drainertest.Serve(t, dir, "-m", "128") }, all)
	})
	t.Run("Saved", func(t *testing.T) {
		t.Parallel()
		all, p := expiring(4000), newPod(t)
		s := p.start(memcachedtest.ClockAhead(t, time.Hour), "-m", "128")
		drainertest.Store(t, s.Address(), all)
		s.End("saved")
		begun := time.Now()
		check(t, begun, func() *drainertest.Served { return p.nextPod().start("", "-m", "128") }, all)
		if tier.All() {
			check(t, begun, func() *drainertest.Served { return p.nextPod().start("", "-m", "128") }, all)
		}
	})
	t.Run("Saved, the same pod", func(t *testing.T) {
		tier.Second(t, "TestNothingIsDeletedForAClock")
		t.Parallel()
		all, p := expiring(4000), newPod(t)
		s := p.start(memcachedtest.ClockAhead(t, time.Hour), "-m", "128")
		drainertest.Store(t, s.Address(), all)
		s.End("saved")
		begun := time.Now()
		check(t, begun, func() *drainertest.Served { return p.start("", "-m", "128") }, all)
	})
}

// A flush_all that clients have seen take effect has taken effect, and one that they ordered for later has
// not, whatever the node's clock was.
func TestFlushByTheClockOfTheMember(t *testing.T) {
	tier.Second(t, "TestFlushedByTheClockOfTheMemcached")
	for _, test := range clockCases {
		how, ahead := test.how, test.ahead
		t.Run(fmt.Sprintf("%s, %v ahead", how, ahead), func(t *testing.T) {
			t.Parallel()
			command, live, gone := "flush_all", 50, 950
			if ahead < 0 {
				command, live, gone = "flush_all 1800", 1000, 0
			}
			dir := t.TempDir()
			// Otherwise memcached would remove the flushed items from the file.
			args := []string{"-m", "128", "-o", "no_lru_crawler,no_lru_maintainer"}
			s := drainertest.ServeWith(t, memcachedtest.ClockAhead(t, ahead), dir, memcachedtest.FreePort(t), args...)
			raw := s.Memcached().RawFor(t)
			for i := range 950 {
				raw.Must("STORED", fmt.Sprintf("set old%d 0 0 3000", i), make([]byte, 3000))
			}
			s.Memcached().WaitSecond(t)
			raw.Must("OK", command, nil)
			s.Memcached().WaitSecond(t)
			for i := range 50 { // in a separate slab class
				raw.Must("STORED", fmt.Sprintf("set new%d 0 0 3", i), []byte("new"))
			}
			wait.For(t, "the manifest to know of the flush", func() error {
				m, err := drainertest.ReadManifest(dir)
				if err == nil && m.Image.OldestLive == 0 {
					err = errors.New("it does not")
				}
				return err
			})
			s.End(how)
			if n, err := drainertest.LiveItems(t, dir); err != nil || n != int64(live) {
				t.Errorf("%d live items on the volume, %v; want %d", n, err, live)
			}
			again := drainertest.Serve(t, dir, "-m", "192")
			again.WaitFor(fmt.Sprintf("replayed generation-1: 1000 items found: %d added, 0 already present, 0 expired, %d invalidated", live, gone))
			again.End("saved")
		})
	}
}
