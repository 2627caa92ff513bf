package move

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// exporting streams the items of a member, as its supervisor does, and returns the address.
func exporting(t testing.TB, m *memcachedtest.Mapped) (address string) {
	t.Helper()
	return exportingAfter(t, m, nil)
}

// exportingAfter does that for a supervisor that tells of a silence.
func exportingAfter(t testing.TB, m *memcachedtest.Mapped, silence func() *export.Silence) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &export.Server{Memcached: export.Memcached{Address: m.Address(), PID: m.PID(), Path: m.Path, Command: m.Args}, Logf: t.Logf, Silence: silence}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx, listener) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// startMapped runs memcached with a warm file, and with the crawler, which lists items.
func startMapped(t testing.TB, args ...string) *memcachedtest.Mapped {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	args = append([]string{"-e", path}, args...)
	return &memcachedtest.Mapped{Server: memcachedtest.Start(t, args...), Path: path, Args: args}
}

// A supervisor streams items that the member owns by the mover's routing. None of them is moved or deleted.
func TestASupervisorOfAnotherRouting(t *testing.T) {
	mapped := startMapped(t, "-f", "4", "-m", "16")
	other := memcachedtest.Start(t)
	list := drainertest.MustParse(t, []string{mapped.Address(), other.Address()})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 1000
	raw := mapped.Raw()
	for i := range keys {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 1", i), []byte("v"))
	}
	var log drainertest.Buffer
	e := &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: &log,
		Export: &Export{Address: exporting(t, mapped), Client: "python-memcached"}}
	r := e.MoveFrom(t.Context(), 0, t.TempDir(), 0)
	if err := r.AddsUp("the-claim"); err != nil || r.Reader == contract.ReaderStream || !strings.Contains(log.String(), errOtherRouting.Error()) {
		t.Errorf("%v: %+v, %s", err, r, log.String())
	}
	conns := []*memcache.Conn{mapped.Dial(), other.Dial()}
	for i := range keys {
		key := fmt.Appendf(nil, "key%d", i)
		if v, err := conns[owner.Owner(key)].Get(key); err != nil || v == nil {
			t.Errorf("its owner doesn't have %s: %v", key, err)
		}
	}
}

// While no client calls, no item is looked at separately, at the member or at its owner.
func TestStreamedItemsAreDeletedTogether(t *testing.T) {
	mapped := startMapped(t, "-f", "4", "-m", "16")
	other := memcachedtest.Start(t)
	list := drainertest.MustParse(t, []string{mapped.Address(), other.Address()})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	raw := mapped.Raw()
	for i := range 5000 {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 1", i), []byte("v"))
	}
	e := &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: t.Output(),
		Export: &Export{Address: exporting(t, mapped), Client: "gomemcache"}}
	r := e.MoveFrom(t.Context(), 0, t.TempDir(), 0)
	if err := r.AddsUp("the-claim"); err != nil || r.Added < 2000 {
		t.Errorf("%v: %+v", err, r)
	}
	for _, c := range []*memcache.Conn{mapped.Dial(), other.Dial()} {
		stats, err := c.Stats("")
		if err != nil || stats["get_hits"] != "0" {
			t.Errorf("%v: %s items were asked for", err, stats["get_hits"])
		}
	}
}

// Such items are deleted at the member, and no server gets them. Items that other servers own are moved.
func TestAStreamOfWhatALostServerOwns(t *testing.T) {
	mapped := startMapped(t, "-f", "4", "-m", "16")
	other := memcachedtest.Start(t)
	list := drainertest.MustParse(t, []string{mapped.Address(), other.Address(), fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t))})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 1000
	raw := mapped.Raw()
	want := make([]int, len(list))
	for i := range keys {
		key := fmt.Sprintf("key%d", i)
		raw.Must("STORED", "set "+key+" 0 0 1", []byte("v"))
		want[owner.Owner([]byte(key))]++
	}
	var log drainertest.Buffer
	e := &Engine{SourceID: "the-claim", Owner: owner, Servers: list, Lost: []bool{false, false, true}, UnreachableTimeout: wait.Long, Log: &log,
		Export: &Export{Address: exporting(t, mapped), Client: "gomemcache"}}
	r := e.MoveFrom(t.Context(), 0, t.TempDir(), 0)
	if err := r.AddsUp("the-claim"); err != nil || r.Added != int64(want[1]) || r.Invalidated != int64(want[2]) || log.String() != "" {
		t.Errorf("%v: %+v, want %v; %s", err, r, want, log.String())
	}
	if has, others := mapped.Items(t), other.Items(t); has != int64(want[0]) || others != int64(want[1]) {
		t.Errorf("the member has %d items, the other %d, want %v", has, others, want)
	}
}

// An item that is too large for its owner stays at the member, and the receipt says so.
func TestAnItemThatItsOwnerRefusesStays(t *testing.T) {
	mapped := startMapped(t, "-f", "4", "-m", "64", "-I", "2m")
	other := memcachedtest.Start(t)
	list := drainertest.MustParse(t, []string{mapped.Address(), other.Address()})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	small, large, raw := 0, 0, mapped.Raw()
	for i := 0; small < 10 || large < 10; i++ {
		key := fmt.Sprintf("key%d", i)
		if owner.Owner([]byte(key)) != 1 {
			continue
		}
		size, n := 10, &small
		if i%2 == 0 {
			size, n = 1_200_000, &large
		}
		*n++
		raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, size), bytes.Repeat([]byte("v"), size))
	}
	e := &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: t.Output(),
		Export: &Export{Address: exporting(t, mapped), Client: "gomemcache"}}
	r := e.MoveFrom(t.Context(), 0, t.TempDir(), 0)
	if r.Reason != reasonRejected || r.Added != int64(small) || r.Rejected != int64(large) {
		t.Errorf("%+v, want %d added and %d rejected", r, small, large)
	}
	if has := mapped.Items(t); has != int64(large) {
		t.Errorf("the member has %d items, want %d", has, large)
	}
}

// Each member has its own list and number, whichever server owns their keys.
func TestAMembersOwnListAndNumberStay(t *testing.T) {
	for _, key := range []string{contract.ListKey, contract.RingNumberKey} {
		for how, change := range map[string]func(*contract.Move){
			"streamed": func(*contract.Move) {},
			"listed":   func(a *contract.Move) { a.ExportPort = 0 },
			"leased":   func(a *contract.Move) { a.ExportPort, a.Leases = 0, true },
		} {
			t.Run(key+" "+how, func(t *testing.T) { staysThere(t, key, change) })
		}
	}
}

func staysThere(t *testing.T, key string, change func(*contract.Move)) {
	mapped, other := startMapped(t, "-f", "4", "-m", "16"), memcachedtest.Start(t)
	addresses := []string{mapped.Address(), other.Address()}
	owner, err := routing.New("gomemcache", drainertest.MustParse(t, addresses))
	if err != nil {
		t.Fatal(err)
	}
	if owner.Owner([]byte(key)) == 0 {
		slices.Reverse(addresses)
	}
	mapped.Raw().Must("STORED", "set "+key+" 0 0 4", []byte("list"))
	args := drainertest.MoveArgs(t, "gomemcache", mapped.Address(), addresses)
	args.ExportPort = int32(drainertest.MustParse(t, []string{exporting(t, mapped)})[0].Port)
	change(&args)
	r := drainertest.Move(t, args)
	if r.Code != 0 || r.Receipt.Found != 0 || mapped.Items(t) != 1 || other.Items(t) != 0 {
		t.Errorf("exit code %d, %+v, %d and %d items\n%s", r.Code, r.Receipt, mapped.Items(t), other.Items(t), r.Err)
	}
}

// streams returns the address of a supervisor that streams these items in its first pass, and none in later
// ones.
func streams(t *testing.T, items ...*item.Item) (address string) {
	t.Helper()
	return plays(t, func() ([]*item.Item, string) { return items, "" })
}

// unsure is the end of a pass that found nothing, and may have overlooked something.
const unsure = "unsure"

// plays returns the address of a supervisor whose passes have these items, and end with that error, or are
// unsure. Later passes have none.
func plays(t *testing.T, passes ...func() (items []*item.Item, problem string)) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	frame := func(kind byte, body []byte) []byte {
		b := append(make([]byte, export.FrameHead), body...)
		export.PutHead(b, kind)
		return b
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		lines := bufio.NewScanner(conn)
		for left := passes; lines.Scan(); {
			if lines.Text() != export.Pass {
				fmt.Fprintf(conn, "%s{}\r\n", export.OK)
				continue
			}
			var items []*item.Item
			var end export.End
			if len(left) > 0 {
				items, end.Error = left[0]()
				left = left[1:]
			}
			end.Complete = end.Error == ""
			if end.Error == unsure {
				end.Error = ""
			}
			var body []byte
			for _, it := range items {
				body = export.AppendItem(body, it)
			}
			end.Items = int64(len(items))
			said, _ := json.Marshal(end)
			_, _ = conn.Write(append(frame(export.Items, body), frame(export.Ended, said)...))
		}
	}()
	return listener.Addr().String()
}

// storedAt stores a value at a server, and returns the item as a supervisor would stream it.
func storedAt(t *testing.T, s *memcachedtest.Server, key, value string) *item.Item {
	t.Helper()
	s.Raw().Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), []byte(value))
	v, err := s.Dial().Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &item.Item{Key: []byte(key), Value: v.Data, CAS: v.CAS}
}

// leave moves the items of a leaving member to the one server. The supervisor at that address streams them.
func leave(t *testing.T, member *memcachedtest.Server, server, supervisor string, patience time.Duration) contract.Receipt {
	t.Helper()
	list := drainertest.MustParse(t, []string{server})
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: t.Output(),
		Export: &Export{Address: supervisor, Client: "gomemcache"}}
	r := e.MoveFromLeaving(t.Context(), drainertest.MustParse(t, []string{member.Address()})[0], t.TempDir(), patience)
	if err := r.AddsUp("the-claim"); err != nil {
		t.Errorf("%v: %+v", err, r)
	}
	return r
}

// has checks a server's value; "" is none.
func has(t *testing.T, s *memcachedtest.Server, key, want string) {
	t.Helper()
	v, err := s.Dial().Get([]byte(key))
	if err != nil || (v != nil) != (want != "") || v != nil && string(v.Data) != want {
		t.Errorf("%s has %+v for %s, want %q: %v", s.Address(), v, key, want, err)
	}
}

// The stream breaks while its items are being moved. The changes that clients make to one of them at the
// member count, as in a complete pass.
func TestAStreamThatBreaks(t *testing.T) {
	for what, test := range map[string]struct {
		command string
		data    []byte
		want    string
	}{
		"a client deletes an item":      {"delete key", nil, ""},
		"a client stores an item anew":  {"set key 0 0 5", []byte("newer"), "newer"},
		"a client calls for other keys": {"set other 0 0 1", []byte("v"), "value"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
			it, raw, once := storedAt(t, member, "key", "value"), member.Raw(), sync.Once{}
			through := memcachedtest.Between(t, owner.Address(), func(sent []byte) bool {
				if bytes.Contains(sent, []byte(" key ")) {
					once.Do(func() { raw.Do(test.command, test.data) })
				}
				return true
			})
			leave(t, member, through, plays(t, func() ([]*item.Item, string) { return []*item.Item{it}, "it breaks" }), 0)
			has(t, owner, "key", test.want)
			has(t, member, "key", "")
		})
	}
}

// Patience is over by then. The items that it has not reached are listed.
func TestAStreamThatBreaksInTheLastPass(t *testing.T) {
	tier.Second(t, "TestAStreamThatBreaks")
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	supervisor := plays(t, func() ([]*item.Item, string) { return nil, "" }, func() ([]*item.Item, string) {
		storedAt(t, member, "key", "value")
		return nil, "it breaks"
	})
	r := leave(t, member, owner.Address(), supervisor, time.Second)
	if r.Added != 1 || r.Settled {
		t.Errorf("%+v", r)
	}
	has(t, owner, "key", "value")
	has(t, member, "key", "")
}

// Such a pass is not the last one. After three of them memcached is asked for a listing.
func TestAPassThatMayHaveOverlookedSomething(t *testing.T) {
	none := func() ([]*item.Item, string) { return nil, unsure }
	for what, test := range map[string]struct {
		passes   int
		streamed bool
	}{
		"twice":       {mostIncomplete - 1, true},
		"three times": {mostIncomplete, false},
	} {
		t.Run(what, func(t *testing.T) {
			member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
			it := storedAt(t, member, "key", "value")
			passes := slices.Repeat([]func() ([]*item.Item, string){none}, test.passes)
			passes = append(passes, func() ([]*item.Item, string) { return []*item.Item{it}, "" })
			if r := leave(t, member, owner.Address(), plays(t, passes...), 0); r.Added != 1 || (r.Reader == contract.ReaderStream) != test.streamed {
				t.Errorf("%+v", r)
			}
			has(t, owner, "key", "value")
			has(t, member, "key", "")
		})
	}
}

// memcached is asked for its items.
func TestASupervisorThatCannotBeReached(t *testing.T) {
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	storedAt(t, member, "key", "value")
	unreachable := fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t))
	if r := leave(t, member, owner.Address(), unreachable, 0); r.Added != 1 || r.Reader == contract.ReaderStream {
		t.Errorf("%+v", r)
	}
	has(t, owner, "key", "value")
	has(t, member, "key", "")
}

// A client has stored the key again meanwhile, in a slot that was read later. In the end its last value is at
// the owner, and not deleted as if a client had deleted it.
func TestAKeyThatAPassComesAcrossTwice(t *testing.T) {
	member, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	items := []*item.Item{storedAt(t, member, "key", "1")}
	for i := range 100 { // so many that the two are in different batches
		items = append(items, storedAt(t, member, fmt.Sprintf("other%d", i), strings.Repeat("v", 50_000)))
	}
	leave(t, member, owner.Address(), streams(t, append(items, storedAt(t, member, "key", "2"))...), 0)
	has(t, owner, "key", "2")
	has(t, member, "key", "")
}
