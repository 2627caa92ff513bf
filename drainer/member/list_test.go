//go:build linux

package member_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// told is a member with a supervisor that has a list.
type told struct {
	*drainertest.Served
	t      *testing.T
	dialer memcache.Dialer
	// list is the kubelet's file, and address is where clients ask.
	list, address string
}

func serveTold(t *testing.T, c contract.Connection, dir, list string, port int, more ...string) *told {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t))
	args := drainertest.MemberArgs(c, dir, port, append([]string{"-m", "64"}, more...)...)
	args.List, args.Discovery = list, address
	return &told{drainertest.SuperviseCommand(t, "", args), t, memcache.Dialer{Connection: c, Unverified: true}, list, address}
}

// tell replaces the file atomically, as the kubelet does.
func tell(t *testing.T, path string, list *contract.List) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(list.String()), 0o644), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// config returns the answer to a client's request.
func (m *told) config() (string, error) {
	ctx, cancel := context.WithDeadline(m.t.Context(), wait.Deadline())
	defer cancel()
	conn, err := m.dialer.DialContext(ctx, "tcp", m.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(wait.Deadline())
	if _, err := io.WriteString(conn, "config get cluster\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	size, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "CONFIG cluster 0 ")
	if err != nil || !found {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		return "", err
	}
	text := make([]byte, n+len("\r\nEND\r\n"))
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	body, found := strings.CutSuffix(string(text), "\r\nEND\r\n")
	if !found {
		return "", fmt.Errorf("%q has no END", text)
	}
	return body, nil
}

// item returns the list that clients find at the member itself.
func (m *told) item() (string, error) {
	conn, err := m.dialer.Dial(m.t.Context(), m.Address())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	v, err := conn.Get([]byte(contract.ListKey))
	if err != nil || v == nil {
		return "", fmt.Errorf("no item: %w", err)
	}
	return string(v.Data), nil
}

// itemsCAS returns the item's CAS, which changes if the item is stored again.
func (m *told) itemsCAS() uint64 {
	m.t.Helper()
	conn, err := m.dialer.Dial(m.t.Context(), m.Address())
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	v, err := conn.Get([]byte(contract.ListKey))
	if err != nil || v == nil {
		m.t.Fatalf("no item: %v", err)
	}
	return v.CAS
}

func (m *told) says(what string, want *contract.List) {
	m.t.Helper()
	wait.For(m.t, what, func() error {
		config, err := m.config()
		item, itemErr := m.item()
		if err = errors.Join(err, itemErr); err == nil && (config != want.String() || item != want.String()) {
			err = fmt.Errorf("it answers %q, and its item is %q", config, item)
		}
		return err
	})
}

func listOf(version int64, members int) *contract.List {
	l := &contract.List{Version: version}
	for i := range members {
		l.Nodes = append(l.Nodes, contract.Node{Host: fmt.Sprintf("cache-%d.cache.shop.svc", i), IP: fmt.Sprintf("10.0.0.%d", i+1), Port: 11211})
	}
	return l
}

func TestClientsAreToldOfTheListByTheMembersOwnTLSAndLogins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]contract.Connection{"plain": {}, "secured": memcachedtest.NewSecured(t).Connection()} {
		t.Run(name, func(t *testing.T) {
			if name != "secured" {
				tier.Second(t, "TestClientsAreToldOfTheListByTheMembersOwnTLSAndLogins")
			}
			t.Parallel()
			dir, port := t.TempDir(), memcachedtest.FreePort(t)
			list := filepath.Join(t.TempDir(), "list")
			m := serveTold(t, c, dir, list, port)
			wait.For(t, "an answer without a list", func() error {
				if _, err := m.config(); err == nil || !strings.Contains(err.Error(), "SERVER_ERROR") {
					return fmt.Errorf("want a SERVER_ERROR: %w", err)
				}
				return nil
			})
			tell(t, list, listOf(10, 3))
			m.says("the first list", listOf(10, 3))
			tell(t, list, listOf(11, 2))
			m.says("the second list", listOf(11, 2))
			tell(t, list, listOf(9, 5))
			m.WaitFor("clients' list: version 9 is ignored, because clients already have version 11")
			if err := os.WriteFile(list, []byte("nonsense"), 0o644); err != nil {
				t.Fatal(err)
			}
			m.WaitFor("clients' list: a list that has not two lines")
			m.says("the same list, after an older one and one that is none", listOf(11, 2))

			conn, err := m.dialer.Dial(t.Context(), m.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, lose := range []string{"flush_all\r\n", "delete " + contract.ListKey + "\r\n", "set " + contract.ListKey + " 0 0 4\r\nevil\r\n"} {
				if err := conn.Send([]byte(lose)); err != nil {
					t.Fatal(err)
				}
				if answer, err := conn.Line(); err != nil || string(answer) != "OK" && string(answer) != "DELETED" && string(answer) != "STORED" {
					t.Fatalf("%q: %q %v", lose, answer, err)
				}
				m.says("the item again after "+lose, listOf(11, 2))
			}
			if c.AuthFile != "" {
				stranger := memcache.Dialer{Connection: contract.Connection{TLSDir: c.TLSDir}, Unverified: true}
				(&told{m.Served, t, stranger, list, m.address}).refuses("CLIENT_ERROR unauthenticated")
			}

			// This is another pod, which the operator doesn't know yet.
			m.End("saved")
			again := serveTold(t, c, dir, filepath.Join(t.TempDir(), "list"), port)
			again.says("the list of the last start", listOf(11, 2))
			tell(t, again.list, listOf(12, 4))
			again.says("the next list", listOf(12, 4))
			again.End("saved")

			// This is a pod whose list the operator has written before it starts.
			newest := filepath.Join(t.TempDir(), "list")
			tell(t, newest, listOf(13, 5))
			third := serveTold(t, c, dir, newest, port)
			third.firstAnswers(listOf(13, 5))
			third.End("saved")
		})
	}
}

// firstAnswers checks the first answers: none may have an older list.
func (m *told) firstAnswers(want *contract.List) {
	m.t.Helper()
	wait.For(m.t, "an answer", func() error {
		first, err := m.config()
		if err == nil && first != want.String() {
			m.t.Errorf("the first answer is %q", first)
		}
		return err
	})
}

// refuses expects that a client is refused for one of these reasons.
func (m *told) refuses(why ...string) {
	m.t.Helper()
	_, err := m.config()
	if err == nil || !slices.ContainsFunc(why, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		m.t.Errorf("want one of %q, got %v", why, err)
	}
}

// A client without a certificate is given the list, and the stream, only if it may ask the members, too.
func TestTheSupervisorAsksForACertificateWhereMemcachedDoes(t *testing.T) {
	t.Parallel()
	c := memcachedtest.NewSecured(t).Connection()
	none := contract.Connection{TLSDir: t.TempDir(), AuthFile: c.AuthFile}
	authority, err := os.ReadFile(filepath.Join(c.TLSDir, contract.CAFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(none.TLSDir, contract.CAFile), authority, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, asks := range map[string]bool{"memcached asks": true, "memcached asks for none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := drainertest.MemberArgs(c, t.TempDir(), memcachedtest.FreePort(t), "-m", "64")
			args.List, args.Discovery = filepath.Join(t.TempDir(), "list"), fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t))
			args.ExportPort = int32(memcachedtest.FreePort(t))
			if !asks {
				for i, a := range args.Command {
					args.Command[i] = strings.ReplaceAll(a, ","+contract.VerifyClients, "")
				}
			}
			tell(t, args.List, listOf(10, 3))
			m := &told{drainertest.SuperviseCommand(t, "", args), t, memcache.Dialer{Connection: c, Unverified: true}, args.List, args.Discovery}
			m.says("the list to a client with a certificate", listOf(10, 3))
			without := &told{m.Served, t, memcache.Dialer{Connection: none, Unverified: true}, args.List, args.Discovery}
			if asks {
				// With TLS 1.3 the client may write before it gets the reason, and find the connection
				// closed.
				without.refuses("certificate required", "broken pipe", "connection reset")
				m.says("the list to a client with a certificate, still", listOf(10, 3))
			} else {
				without.says("the list to a client without one", listOf(10, 3))
			}
			mover := func(by contract.Connection) error {
				request := &export.Request{Client: "gomemcache", Servers: []export.Listed{{Host: "a", Port: 1}}}
				s, err := export.Open(t.Context(), memcache.Dialer{Connection: by, Unverified: true}, fmt.Sprintf("127.0.0.1:%d", args.ExportPort), request, wait.Long)
				if err == nil {
					s.Close()
				}
				return err
			}
			wait.For(t, "items to be streamed to a mover with a certificate", func() error { return mover(c) })
			if err := mover(none); (err != nil) != asks {
				t.Errorf("a mover without a certificate: %v", err)
			}
			m.End("saved")
		})
	}
}

// memcached evicts it as any other item that is not asked for.
func TestTheListsItemIsPutBackAfterAnEviction(t *testing.T) {
	tier.Second(t, "TestClientsAreToldOfTheListByTheMembersOwnTLSAndLogins")
	t.Parallel()
	list := filepath.Join(t.TempDir(), "list")
	tell(t, list, listOf(10, 3))
	m := serveTold(t, contract.Connection{}, t.TempDir(), list, memcachedtest.FreePort(t), "-m", "40")
	m.says("the list", listOf(10, 3))
	before := m.itemsCAS()
	conn, err := m.dialer.Dial(t.Context(), m.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	value := strings.Repeat("v", len(listOf(10, 3).String()))
	missed := false
	for i := 0; !missed; i++ { // of the item's size, so that they share its slab class
		if i == 4_000_000 {
			t.Fatal("the item was never evicted: this shows nothing")
		}
		if err := conn.Send(fmt.Appendf(nil, "set %0*d 0 0 %d noreply\r\n%s\r\n", len(contract.ListKey), i, len(value), value)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			cas, err := conn.CAS([]byte(contract.ListKey))
			if err != nil {
				t.Fatal(err)
			}
			missed = cas != before
		}
	}
	if stats, err := conn.Stats(""); err != nil || stats["evictions"] == "0" {
		t.Fatalf("%v: %s evictions", err, stats["evictions"])
	}
	m.says("the list again", listOf(10, 3))
}

// Clients choose their commands by the version. memcached is asked for it before the goroutine runs that
// could take the answer's exit code.
func TestDiscoveryNamesMemcachedsVersion(t *testing.T) {
	t.Parallel()
	starts := 1
	if tier.All() {
		starts = 5
	}
	for range starts {
		m := serveTold(t, contract.Connection{}, t.TempDir(), filepath.Join(t.TempDir(), "list"), memcachedtest.FreePort(t))
		var at, of string
		wait.For(t, "two versions", func() (err error) {
			if at, err = m.version(m.address); err == nil {
				of, err = m.version(m.Address())
			}
			return err
		})
		if at != of || len(at) < len("VERSION 1.5") {
			t.Errorf("discovery says %q, memcached %q", at, of)
		}
		m.End("saved")
	}
}

// version returns the version that is reported at an address.
func (m *told) version(address string) (string, error) {
	conn, err := m.dialer.Dial(m.t.Context(), address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.Send([]byte("version\r\n")); err != nil {
		return "", err
	}
	line, err := conn.Line()
	return string(line), err
}

// Drains, replays and moves leave it where it is.
func TestTheListsItemStaysWithItsMember(t *testing.T) {
	tier.Second(t, "TestClientsAreToldOfTheListByTheMembersOwnTLSAndLogins")
	t.Parallel()
	all := drainertest.Objects(80, 300)
	var members []*told
	var servers []string
	for range 3 {
		list := filepath.Join(t.TempDir(), "list")
		tell(t, list, listOf(5, 3))
		m := serveTold(t, contract.Connection{}, t.TempDir(), list, memcachedtest.FreePort(t))
		m.says("the list", listOf(5, 3))
		members, servers = append(members, m), append(servers, m.Address())
	}
	drainertest.StoreByOwner(t, "gomemcache", servers[:2], all)
	var before []uint64
	for _, m := range members {
		before = append(before, m.itemsCAS())
	}
	for _, source := range servers[:2] { // a third of all keys, and the list's item, belong elsewhere now
		args := drainertest.MoveArgs(t, "gomemcache", source, servers)
		if r := drainertest.Move(t, args); r.Receipt.AddsUp(args.SourceID) != nil {
			t.Errorf("receipt %+v\n%s", r.Receipt, r.Err)
		}
	}
	drainertest.Check(t, "gomemcache", servers, all)
	for i, m := range members {
		if cas := m.itemsCAS(); cas != before[i] {
			t.Errorf("member %d had to put its item back", i)
		}
	}
	leaving := members[2]
	left := leaving.Memcached().Items(t) - 1 // without the list's
	number := contract.RingNumber(7, "")
	leaving.Memcached().RawFor(t).Must("STORED", fmt.Sprintf("set %s 0 0 %d", contract.RingNumberKey, len(number)), []byte(number))
	leaving.End("saved")
	_, survivors := drainertest.Survivors(t, 1)
	args := drainertest.DrainArgs(t, leaving.Dir, survivors)
	r := drainertest.Drain(t, args)
	if err := r.Receipt.AddsUp(args.SourceID); err != nil || r.Receipt.Found != left || r.Receipt.Added != left {
		t.Errorf("%v: %d found, %d added of %d\n%s", err, r.Receipt.Found, r.Receipt.Added, left, r.Err)
	}
	conn, err := memcache.Dial(t.Context(), survivors[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, key := range []string{contract.ListKey, contract.RingNumberKey} {
		if v, err := conn.Get([]byte(key)); err != nil || v != nil {
			t.Errorf("the survivor has the item %s %v: %v", key, v, err)
		}
	}
}

// A member that has it settles when no client calls any more. The item stays there.
func TestTheListsItemIsNoClientsCommand(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "list")
	want := &contract.List{Version: 1, Nodes: []contract.Node{{Host: "cache-0.cache", IP: "10.0.0.1", Port: 11211}}}
	tell(t, list, want)
	m := serveTold(t, contract.Connection{}, t.TempDir(), list, memcachedtest.FreePort(t))
	m.says("the list", want)
	all := drainertest.Objects(5, 100)
	drainertest.Store(t, m.Address(), all)
	owner := memcachedtest.Start(t)
	args := drainertest.MoveArgs(t, "gomemcache", m.Address(), []string{owner.Address()})
	args.Patience = wait.Long
	r := drainertest.Move(t, args)
	if err := r.Receipt.AddsUp(args.SourceID); err != nil || r.Receipt.Found != 100 || !r.Receipt.Settled {
		t.Errorf("%v: %+v\n%s", err, r.Receipt, r.Err)
	}
	drainertest.Check(t, "gomemcache", []string{owner.Address()}, all)
	m.says("the list", want)
}
