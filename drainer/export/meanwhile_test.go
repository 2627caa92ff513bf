package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/wait"
)

// Offsets in memcached's header; see warmfile/layout.go.
const (
	atNext, atExpire, atBytes, atRefcount, atFlags, atClass, atKeyLength, atKey = 0, 28, 32, 36, 38, 40, 41, 56
	accessedAt                                                                  = 24
)

// memcached is stopped, and the test makes a change that memcached could make to an item while the item is
// copied. The copy is not accepted, unless the item was only read.
func TestACopyOfAnItemThatChangesMeanwhileIsNotAccepted(t *testing.T) {
	const slot = 4 << 10 // more than the item and its header
	f := newFrozen(t, "key1")
	for what, test := range map[string]struct {
		change   func(slot []byte)
		accepted bool
	}{
		"nothing":                {func([]byte) {}, true},
		"it is read":             {func(s []byte) { s[atFlags] |= 8 }, true},
		"it is read again":       {func(s []byte) { s[atFlags] |= 16 }, true},
		"it was accessed":        {func(s []byte) { s[accessedAt]++ }, true},
		"it goes to another LRU": {func(s []byte) { s[atClass] ^= 0xc0 }, true},
		"it is in no LRU":        {func(s []byte) { clear(s[atNext : atNext+16]) }, false},
		"a touch":                {func(s []byte) { s[atExpire]++ }, false},
		"another length":         {func(s []byte) { s[atBytes]-- }, false},
		"a reference":            {func(s []byte) { s[atRefcount]++ }, false},
		"it is unlinked":         {func(s []byte) { s[atFlags] &^= 1 }, false},
		"it is free":             {func(s []byte) { s[atFlags] = 4 }, false},
		"another slab class":     {func(s []byte) { s[atClass]++ }, false},
		"a longer key":           {func(s []byte) { s[atKeyLength]++ }, false},
		"another CAS":            {func(s []byte) { s[warmfile.WordCAS]++ }, false},
		"no line end":            {func(s []byte) { copy(s[atKey+len("key1\x00")+3000:], "xx") }, false},
		"it is marked as stale":  {func(s []byte) { s[atFlags+1] |= 8 }, false},
	} {
		t.Run(what, func(t *testing.T) {
			f.t = t
			defer copy(f.slot, slices.Clone(f.slot[:slot]))
			b := f.read(func(key []byte) bool {
				wanted := string(key) == "key1"
				if wanted {
					test.change(f.slot)
				}
				return wanted
			})
			if b.Items == 1 != test.accepted || b.Items+len(b.asks) != 1 {
				t.Errorf("%d copies, and memcached is asked for %d", b.Items, len(b.asks))
			}
		})
	}
}

// The item is in use by a client's command or the slab mover, before it is read and after. The item may be
// changing, so memcached is asked for it.
func TestAnItemThatIsInUse(t *testing.T) {
	f := newFrozen(t, "key1")
	f.slot[atRefcount]++
	if b := f.read(func(key []byte) bool { return string(key) == "key1" }); b.Items != 0 || len(b.asks) != 1 {
		t.Errorf("%d copies, and memcached is asked for %d", b.Items, len(b.asks))
	}
}

// A read error is an error of the pass, and does not end the process.
func TestAFileThatFailsWhileItIsRead(t *testing.T) {
	f := newFrozen(t, "key1")
	err := f.r.Read(f.number, everything, func([]byte) bool {
		if err := f.file.Truncate(0); err != nil {
			t.Errorf("%v", err)
		}
		return true
	}, &Batch{})
	if !errors.Is(err, item.ErrFault) {
		t.Errorf("%v", err)
	}
}

// The page now has values in place of headers. No item of the page is accepted, and the pass reports that it
// may have overlooked some.
func TestAPageThatIsCutAnewWhileItIsRead(t *testing.T) {
	for what, change := range map[string]func(page []byte){
		"another slab class": func(p []byte) { p[atClass]++ },
		"no slab class":      func(p []byte) { clear(p[:atKey]) },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFrozen(t, "key1")
			seen := 0
			b := f.read(func([]byte) bool {
				if seen++; seen == 2 {
					change(f.page)
				}
				return true
			})
			if seen < 2 || b.Items != 0 || len(b.asks) != 0 || b.unread != 1 {
				t.Errorf("%d keys were seen, %d copies, memcached is asked for %d; %d unread", seen, b.Items, len(b.asks), b.unread)
			}
		})
	}
}

// memcached is not asked for a key that the member owns.
func TestASlotThatIsGivenToAnotherKeyWhileItIsRead(t *testing.T) {
	f := newFrozen(t, "key1")
	b := f.read(func(key []byte) bool {
		wanted := string(key) == "key1"
		if wanted {
			copy(f.slot[atKey:], "own1")
			f.slot[warmfile.WordCAS]++
		}
		return wanted
	})
	if b.Items != 0 || len(b.asks) != 0 || len(b.keys) != 0 {
		t.Errorf("%d copies, and memcached is asked for %d: %q", b.Items, len(b.asks), b.keys)
	}
}

// Its owner would bring it back to life. The pass reports that it may have overlooked something.
func TestAnItemThatIsFlushedWhileItIsReadIsNotSent(t *testing.T) {
	m := startMember(t, contract.Connection{})
	raw := m.Raw()
	for i := range 10 {
		raw.Must("STORED", "set key"+itoa(i)+" 0 0 5", []byte("value"))
	}
	mover, conn := net.Pipe()
	defer mover.Close()
	sent := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, mover)
		sent <- n
	}()
	s, err := newStream(t.Context(), m.server.Memcached, &m.request, conn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for page := range s.reader.Pages() {
		if err := s.reader.Read(page, everything, s.elsewhere, &s.batch); err != nil {
			t.Fatal(err)
		}
	}
	read := s.batch.Items
	raw.Must("OK", "flush_all", nil)
	if err := s.ship(); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := <-sent; read == 0 || n != 0 || s.batch.unread != 1 {
		t.Errorf("%d items were read, %d bytes are sent, %d times unread", read, n, s.batch.unread)
	}
}

// The pass isn't complete: an item may have moved from a place that the pass had not reached to one that it
// had passed.
func TestAPassDuringASlabMove(t *testing.T) {
	for _, moves := range []bool{false, true} {
		t.Run("moves "+strconv.FormatBool(moves), func(t *testing.T) {
			m := startMember(t, contract.Connection{})
			raw, c := m.Raw(), m.Dial()
			for i := range 300 { // in one slab class, on several pages
				raw.Must("STORED", "set key"+itoa(i)+" 0 0 10000", bytes.Repeat([]byte("v"), 10_000))
			}
			slabs, err := c.Stats("slabs")
			if err != nil {
				t.Fatal(err)
			}
			class := ""
			for name, value := range slabs {
				if of, isPages := strings.CutSuffix(name, ":total_pages"); isPages && value != "0" && value != "1" {
					class = of
				}
			}
			mover, conn := net.Pipe()
			defer mover.Close()
			s, err := newStream(t.Context(), m.server.Memcached, &m.request, conn)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			s.passes = 1 // the first pass comes in bands, and is never complete
			ended := make(chan error, 1)
			go func() { ended <- s.pass(t.Context()) }()
			var head [FrameHead]byte
			if _, err := io.ReadFull(mover, head[:]); err != nil { // now the pass waits for the mover
				t.Fatal(err)
			}
			if moves {
				raw.Must("OK", "slabs reassign "+class+" 1", nil)
				wait.For(t, "the page to be moved", func() error {
					stats, err := c.Stats("")
					if err == nil && (stats["slabs_moved"] == "0" || stats["slab_reassign_running"] != "0") {
						err = fmt.Errorf("%s are moved", stats["slabs_moved"])
					}
					return err
				})
			}
			go func() { _, _ = io.Copy(io.Discard, mover) }()
			if err := <-ended; err != nil || s.end.Complete == moves {
				t.Errorf("%+v: %v", s.end, err)
			}
		})
	}
}

// A member that ends waits for no survey, and for no pass, even if the pass finds nothing.
func TestAMemberThatEnds(t *testing.T) {
	f := newFrozen(t, "key1")
	ctx, cancel := context.WithCancel(t.Context())
	looked := 0
	s := stream{reader: f.r, said: time.Now(), elsewhere: func([]byte) bool {
		looked++
		return false
	}}
	cancel()
	if _, err := f.r.Survey(ctx, 0, s.elsewhere); !errors.Is(err, context.Canceled) {
		t.Errorf("the survey: %v", err)
	}
	if err := s.band(ctx, everything); !errors.Is(err, context.Canceled) || looked > 0 {
		t.Errorf("the pass: %v, and %d keys were looked at", err, looked)
	}
}

// The pass reports now and then that it goes on.
func TestAPassThatFindsNothing(t *testing.T) {
	f := newFrozen(t, "key1")
	mover, conn := net.Pipe()
	s := stream{reader: f.r, conn: conn, said: time.Now().Add(-sayEvery), elsewhere: func([]byte) bool { return false }}
	go func() {
		if err := s.band(t.Context(), everything); err != nil {
			t.Errorf("%v", err)
		}
		conn.Close()
	}()
	said, err := io.ReadAll(mover)
	if err != nil || !bytes.Equal(said, []byte{Items, 0, 0, 0, 0}) {
		t.Errorf("%x: %v", said, err)
	}
}

// frozen is a stopped memcached with a few items in one page.
type frozen struct {
	t          *testing.T
	r          *Reader
	file       *os.File
	number     int
	page, slot []byte // parts of the file, to be changed
}

func newFrozen(t *testing.T, key string) *frozen {
	t.Helper()
	tr := &trial{t: t, m: memcachedtest.StartMapped(t, filepath.Join(t.TempDir(), "file"), "-m", "48", "-f", "2", "-o", "no_lru_maintainer")}
	raw := tr.m.Raw()
	for i := range 3 {
		raw.Must("STORED", "set key"+itoa(i)+" 0 1000 3000", []byte(strings.Repeat("v", 3000)))
	}
	file, err := os.OpenFile(tr.m.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	f := &frozen{t: t, r: tr.reader(tr.m.Dial(), file), file: file}
	t.Cleanup(f.r.Close)
	tr.m.Signal(syscall.SIGSTOP)
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	all, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	at := bytes.Index(all, append([]byte(key), 0)) - atKey
	if at < 0 {
		t.Fatal("the item is not in the file")
	}
	f.number, f.slot = at/warmfile.SlabPageSize, all[at:]
	f.page = all[f.number*warmfile.SlabPageSize:]
	return f
}

func (f *frozen) read(elsewhere func(key []byte) bool) *Batch {
	f.t.Helper()
	b := &Batch{}
	if err := f.r.Read(f.number, everything, elsewhere, b); err != nil {
		f.t.Fatal(err)
	}
	var it item.Item
	for rest := b.Records; len(rest) > 0; {
		var err error
		if rest, err = NextItem(rest, &it); err != nil || string(it.Value) != strings.Repeat("v", 3000) {
			f.t.Fatalf("%v: a copy of %d bytes", err, len(it.Value))
		}
	}
	return b
}
