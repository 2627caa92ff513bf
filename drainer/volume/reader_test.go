package volume

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/test/tier"
)

// The reader finds exactly the items that the server itself last served, byte for byte, after a save and
// after a SIGKILL.
func TestReadsWhatTheServerHeld(t *testing.T) {
	for name, test := range memcachedtest.Settings() {
		for _, end := range []string{"saved", "killed"} {
			t.Run(name+", "+end, func(t *testing.T) {
				if (name != "default" || end != "killed") && (name != "small chunks" || end != "saved") {
					tier.Second(t, "TestReadsWhatTheServerHeld")
				}
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				m := startMember(t, append([]string{"-m", "200"}, test.Args...)...)
				p := newPopulation(m, seed)
				steps := 120
				switch {
				case tier.All() && test.Most <= 1<<20:
					steps = 1000
				case tier.All():
					steps = 300
				}
				p.Populate(steps, test)
				m.wait() // until the short-lived items have expired
				want, items := p.Expected(), m.Items(t)
				if end == "saved" {
					m.Save()
				} else {
					m.crash()
				}
				got, n := readAll(t, m.dir)
				memcachedtest.Compare(t, got, want)
				if n > items || n < int64(len(want)) { // expired items may be removed meanwhile
					t.Errorf("%d items in the file, the server counted %d", n, items)
				}
				saved := pack(t, m.dir)
				for place, dir := range map[string]string{"the save": saved, "what is loaded of it": unpack(t, saved)} {
					held, all := readAll(t, dir)
					if all != n {
						t.Errorf("%d items in %s, the file has %d", all, place, n)
					}
					memcachedtest.Compare(t, held, got)
				}
			})
		}
	}
}

func TestFlushedItemsStayAway(t *testing.T) {
	fill := func(m *member, prefix string) {
		raw := m.Raw()
		value := []byte("v")
		if prefix == "old" { // in a separate slab class, where no new item reclaims them
			value = make([]byte, 3000)
		}
		for i := range 100 {
			raw.Must("STORED", fmt.Sprintf("set %s%d 0 0 %d", prefix, i, len(value)), value)
		}
	}
	for _, end := range []string{"saved", "killed"} {
		for _, args := range [][]string{nil, {"-C"}} {
			t.Run(end+strconv.Itoa(len(args)), func(t *testing.T) {
				if (end == "killed") == (len(args) > 0) {
					tier.Second(t, "TestFlushedItemsStayAway")
				}
				t.Parallel()
				// The maintainer would remove flushed items from the file.
				m := startMember(t, memcachedtest.FewPages(append([]string{"-o", "no_lru_maintainer"}, args...)...)...)
				fill(m, "old")
				if len(args) > 0 || end == "killed" {
					m.wait() // items of the same second can't be told apart
				}
				m.Raw().Must("OK", "flush_all", nil)
				if len(args) > 0 || end == "killed" {
					m.wait()
				}
				fill(m, "new")
				if end == "saved" {
					m.Save()
				} else {
					m.crash()
				}
				got, n := readAll(t, m.dir)
				if len(got) != 100 {
					t.Errorf("%d live of %d items, want the 100 new ones", len(got), n)
				}
				if waited := len(args) > 0 || end == "killed"; waited && n == 100 {
					t.Error("no flushed item is left in the file: nothing is tested")
				}
				for key := range got {
					if key[:3] != "new" {
						t.Errorf("%s came back", key)
					}
				}
			})
		}
	}
	t.Run("in the second of a crash", func(t *testing.T) {
		t.Parallel()
		m := startMember(t, memcachedtest.FewPages()...)
		fill(m, "old")
		m.Raw().Must("OK", "flush_all", nil)
		m.crash()
		if got, _ := readAll(t, m.dir); len(got) != 0 {
			t.Errorf("%d flushed items came back", len(got))
		}
	})
	t.Run("still to come", func(t *testing.T) {
		t.Parallel()
		m := startMember(t, memcachedtest.FewPages()...)
		fill(m, "old")
		c := m.DialFor(t)
		from := memcachedtest.Clock(t, c) + 1000 // it lags while the machine is busy
		m.Raw().Must("OK", "flush_all 1000", nil)
		to := memcachedtest.Clock(t, c) + 1000
		m.Save()
		got, _ := readAll(t, m.dir)
		for key, h := range got {
			if h.ExpireAt < from-2 || h.ExpireAt > to+1 {
				t.Errorf("%s expires at %d, the flush is from %d to %d", key, h.ExpireAt, from, to)
			}
		}
		if len(got) != 100 {
			t.Errorf("%d items before the flush, want 100", len(got))
		}
	})
}

// Times and addresses are right after a restart, too.
func TestAfterWarmRestart(t *testing.T) {
	for _, end := range []string{"saved", "killed"} {
		t.Run(end, func(t *testing.T) {
			if end != "killed" {
				tier.Second(t, "TestAfterWarmRestart")
			}
			t.Parallel()
			m := startMember(t, "-m", "200")
			p := newPopulation(m, 7)
			for range 100 {
				p.Step(1 << 19)
			}
			m.wait()
			m.Save()
			waitPast(t, m.dir)
			m.Restart()
			p.Reconnect()
			if m.Items(t) == 0 {
				t.Fatal("memcached started cold")
			}
			for range 100 {
				p.Step(1<<20 - 500)
			}
			m.wait()
			want := p.Expected()
			if end == "saved" {
				m.Save()
			} else {
				m.crash()
			}
			got, _ := readAll(t, m.dir)
			memcachedtest.Compare(t, got, want)
		})
	}
}

// waitPast waits until the clock is past the save, or memcached rejects it.
func waitPast(t *testing.T, dir string) {
	t.Helper()
	meta, err := ReadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(time.Until(time.Unix(meta.StopTime+1, 0)))
	defer timer.Stop()
	<-timer.C
}

// In a file that memcached has touched completely, the used pages are those that belong to a slab class; each
// class has one from the beginning.
func TestOnlyPagesOfASlabClassAreCountedAsUsed(t *testing.T) {
	m := startMember(t, "-m", "200")
	raw := m.Raw()
	for i := range 3 {
		raw.Must("STORED", "set key"+strconv.Itoa(i)+" 0 0 400000", make([]byte, 400000))
	}
	m.Save()
	r, err := Open(m.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if used := r.Used() >> 20; used < 30 || used > 60 || r.Size() != 200<<20 {
		t.Errorf("%d of %d MiB are used", used, r.Size()>>20)
	}
}

// If another process truncates a file while it is read, or its disk fails, that is an error, although the
// file is mapped.
func TestAFileThatIsCutMeanwhileIsAnError(t *testing.T) {
	m := startMember(t, memcachedtest.FewPages("-m", "64")...)
	raw := m.Raw()
	for i := range 100 {
		raw.Must("STORED", "set key"+strconv.Itoa(i)+" 0 0 20000", make([]byte, 20000))
	}
	m.crash()
	r, err := Open(m.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := 0
	err = func() (err error) {
		defer item.Faults(&err)()
		for it, err := range r.Shares(t.Context(), 1)[0] {
			if err != nil {
				return err
			}
			if read++; read == 1 {
				if err := os.Truncate(m.Path, 0); err != nil {
					return err
				}
			}
			_ = bytes.Count(it.Value, []byte("x"))
		}
		return nil
	}()
	if err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("%d items were read, and then: %v", read, err)
	}
}
