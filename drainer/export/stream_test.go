package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

func itoa(n int) string { return strconv.Itoa(n) }

// member is a memcached whose items are streamed.
type member struct {
	*memcachedtest.Mapped
	t       *testing.T
	address string
	request Request
	owner   routing.Owner
	server  *Server
}

func startMember(t *testing.T, c contract.Connection) *member {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	args := []string{"-e", path, "-o", "no_lru_crawler", "-m", "48", "-f", "2"}
	m := &member{t: t, Mapped: &memcachedtest.Mapped{Server: memcachedtest.StartBy(t, c, args...), Path: path, Args: args}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = listener.Addr().String()
	m.server = &Server{Memcached: Memcached{Dialer: memcache.Dialer{Connection: c, Unverified: true}, Address: m.Address(), PID: m.PID(), Path: m.Path, Command: m.Args},
		VerifyClients: true, Logf: t.Logf}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { m.server.Serve(ctx, listener) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	m.request = Request{Client: "gomemcache", Servers: []Listed{{Host: "a", Port: 1}, {Host: "b", Port: 2}}}
	if m.owner, err = routing.New("gomemcache", []routing.Server{{Host: "a", Port: 1}, {Host: "b", Port: 2}}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *member) open(d memcache.Dialer) *Stream {
	m.t.Helper()
	s, err := Open(m.t.Context(), d, m.address, &m.request, wait.Long)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Close)
	return s
}

// all returns copies of all items of a pass.
func (m *member) all(s *Stream) map[string]item.Item {
	m.t.Helper()
	all := map[string]item.Item{}
	for it, err := range s.Items() {
		if err != nil {
			m.t.Fatal(err)
		}
		if _, twice := all[string(it.Key)]; twice {
			m.t.Errorf("%q comes twice", it.Key)
		}
		own := *it
		own.Key, own.Value = bytes.Clone(it.Key), bytes.Clone(it.Value)
		all[string(it.Key)] = own
	}
	return all
}

// A stream has all items that others own, with memcached's values: texts, numbers, binary keys, large values
// in chunks, flags and times. The end of the stream says that it is complete.
func TestAStreamHasEverything(t *testing.T) {
	m := startMember(t, contract.Connection{})
	objects := drainertest.Objects(11, 600)
	for i := range 20 {
		objects["chunked:"+itoa(i)] = drainertest.Object{Value: bytes.Repeat([]byte{'a' + byte(i)}, 600_000)}
		objects["number:"+itoa(i)] = drainertest.Object{Value: []byte(itoa(i * 1000))}
		objects["short:"+itoa(i)] = drainertest.Object{Value: []byte("abc"), Flags: uint64(i), TTL: 1000}
	}
	drainertest.Store(t, m.Address(), objects)
	s, c := m.open(memcache.Dialer{}), m.Dial()
	const second = 1
	for pass := range 2 { // the first comes in bands
		got, want, asked := m.all(s), 0, int64(0)
		for key := range objects {
			before := memcachedtest.Clock(t, c)
			v, err := c.Get([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			after := memcachedtest.Clock(t, c)
			it, streamed := got[key]
			if wanted := v != nil && m.owner.Owner([]byte(key)) == 1; wanted != streamed {
				t.Errorf("%q: wanted %t, streamed %t", key, wanted, streamed)
				continue
			}
			if !streamed {
				continue
			}
			if want++; strings.HasPrefix(key, "chunked:") || strings.HasPrefix(key, "number:") {
				asked++ // memcached changes a number in place
			}
			if !bytes.Equal(it.Value, v.Data) || it.Flags != v.Flags || it.CAS != v.CAS || it.State != item.Live ||
				(v.TTL < 0) != (it.ExpireAt == 0) || v.TTL >= 0 && (it.ExpireAt < v.TTL+before-second || it.ExpireAt > v.TTL+after+second) {
				t.Errorf("%q: %d bytes, %+v, expires at %d; memcached says in %d, between %d and %d", key, len(it.Value), it.State, it.ExpireAt, v.TTL, before, after)
			}
		}
		if s.End.Items != int64(want) || asked == 0 || s.Asked < asked || !s.Complete {
			t.Errorf("pass %d: %d wanted, of which memcached is asked for %d; %+v", pass, want, asked, s.End)
		}
	}
}

// The mover deletes them.
func TestStaleItemsAreStreamedAsSuch(t *testing.T) {
	m := startMember(t, contract.Connection{})
	raw := m.Raw()
	for i := range 50 {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 5", i), []byte("value"))
		raw.Must("HD", fmt.Sprintf("md key%d I T1000", i), nil)
	}
	got := m.all(m.open(memcache.Dialer{}))
	for key, it := range got {
		if it.State != item.Invalidated {
			t.Errorf("%s has state %d", key, it.State)
		}
	}
	if len(got) == 0 {
		t.Error("nothing is streamed")
	}
}

// The hottest items come last if the mover asks for that. The first pass is made in bands of last access.
// Every item comes once.
func TestTheHottestItemsComeFirst(t *testing.T) {
	m := startMember(t, contract.Connection{})
	raw, value := m.Raw(), bytes.Repeat([]byte("v"), 2000)
	const each = 60
	for i := range each { // items of one age are on all pages
		for minutes := 10; minutes <= 10*bands; minutes += 10 {
			raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", drainertest.AgedKey(minutes, i), len(value)), value)
		}
	}
	drainertest.Age(t, m.Mapped)
	m.server.PID = m.PID()
	for _, oldestFirst := range []bool{false, true} {
		m.request.OldestFirst = oldestFirst
		var came []int
		for it, err := range m.open(memcache.Dialer{}).Items() {
			if err != nil {
				t.Fatal(err)
			}
			came = append(came, drainertest.MinutesOf(t, it.Key))
		}
		want := slices.Sorted(slices.Values(came))
		if oldestFirst {
			slices.Reverse(want)
		}
		if len(came) < each*bands/3 || !slices.Equal(came, want) {
			t.Errorf("oldest first: %t: of these minutes ago: %v", oldestFirst, came)
		}
	}
}

// memcached has no items during the survey. Items that come later are in pages that memcached has had since
// its start.
func TestItemsStoredAfterTheSurveyAreStreamed(t *testing.T) {
	m := startMember(t, contract.Connection{})
	s, raw, want := m.open(memcache.Dialer{}), m.Raw(), 0
	for i := range 100 {
		key := "key" + itoa(i)
		raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, 10*i), bytes.Repeat([]byte("v"), 10*i))
		want += m.owner.Owner([]byte(key))
	}
	if got := m.all(s); len(got) != want || want == 0 || !s.Complete {
		t.Errorf("%d items, want %d; %+v", len(got), want, s.End)
	}
}

// memcached doesn't count as silent while the mover doesn't read memcached's answers.
func TestAMoverThatIsSlow(t *testing.T) {
	m := startMember(t, contract.Connection{})
	const chunked = 4
	raw, value := m.Raw(), bytes.Repeat([]byte("v"), 600_000)
	for i, n := 0, 0; n < chunked; i++ {
		if key := "key" + itoa(i); m.owner.Owner([]byte(key)) == 1 {
			raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), value)
			n++
		}
	}
	wait.AtSomeSpeed(t, 100*time.Millisecond, func(rest time.Duration) error { return m.slowMover(rest, chunked) })
}

// slowMover waits before each of the frames. memcached may be silent for half of the whole time.
func (m *member) slowMover(rest time.Duration, chunked int) error {
	m.t.Helper()
	mover, conn := net.Pipe()
	defer mover.Close()
	s, err := newStream(m.t.Context(), m.server.Memcached, &m.request, conn)
	if err != nil {
		m.t.Fatal(err)
	}
	s.patience = time.Duration(chunked) / 2 * rest
	passed := make(chan struct{})
	go func() {
		_ = s.pass(m.t.Context())
		conn.Close()
		close(passed)
	}()
	defer func() {
		mover.Close()
		<-passed
		s.close()
	}()
	for frames := 0; ; frames++ {
		var head [FrameHead]byte
		if _, err := io.ReadFull(mover, head[:]); err != nil {
			return err
		}
		kind, size, err := Head(head[:])
		body := make([]byte, size)
		if err == nil {
			time.Sleep(rest)
			_, err = io.ReadFull(mover, body)
		}
		if err != nil {
			return err
		}
		if kind != Ended {
			continue
		}
		var end End
		if err := json.Unmarshal(body, &end); err != nil || frames != chunked || end.Asked != int64(chunked) || !end.Complete {
			return fmt.Errorf("%d frames, %s: %w", frames, body, err)
		}
		return nil
	}
}

// memcached may be slow.
func TestAStreamThatEndsDoesNotWaitForMemcached(t *testing.T) {
	m := startMember(t, contract.Connection{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mover, conn := net.Pipe()
	defer mover.Close()
	go func() { _, _ = io.Copy(io.Discard, mover) }()
	s, err := newStream(ctx, m.server.Memcached, &m.request, conn)
	if err != nil {
		t.Fatal(err)
	}
	s.patience = time.Hour
	ended := make(chan error, 1)
	m.Signal(syscall.SIGSTOP)
	go func() { ended <- s.pass(ctx) }()
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the pass has ended well")
		}
	case <-wait.Over():
		t.Error("the pass goes on")
	}
	m.Signal(syscall.SIGCONT)
	s.close()
}

// A mover that is gone must not be in the way.
func TestTheNewestStreamWins(t *testing.T) {
	m := startMember(t, contract.Connection{})
	raw := m.Raw()
	for i := range 10 {
		raw.Must("STORED", "set key"+itoa(i)+" 0 0 1", []byte("v"))
	}
	first := m.open(memcache.Dialer{})
	if len(m.all(first)) == 0 {
		t.Fatal("the first stream has nothing to go on with")
	}
	m.all(m.open(memcache.Dialer{}))
	for _, err := range first.Items() {
		if err == nil {
			t.Error("the first stream goes on")
		}
	}
}

// A mover needs the certificate and the login that memcached's clients need.
func TestAStreamNeedsTheCertificateAndLoginOfAClient(t *testing.T) {
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	m := startMember(t, c)
	m.all(m.open(memcache.Dialer{Connection: c}))
	stranger := memcachedtest.NewSecured(t)
	guess := filepath.Join(t.TempDir(), "guess")
	if err := os.WriteFile(guess, []byte("drainer:guess\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	noCertificate := t.TempDir()
	ca, err := os.ReadFile(filepath.Join(c.TLSDir, contract.CAFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(noCertificate, contract.CAFile), ca, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]contract.Connection{
		"without TLS":                 {AuthFile: c.AuthFile},
		"without a login":             {TLSDir: c.TLSDir},
		"with a wrong password":       {TLSDir: c.TLSDir, AuthFile: guess},
		"without a certificate":       {TLSDir: noCertificate, AuthFile: c.AuthFile},
		"with a stranger's authority": {TLSDir: stranger.TLS.Dir, AuthFile: c.AuthFile},
		"with nothing":                {},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), memcache.Dialer{Connection: other}, m.address, &m.request, wait.Long)
			if err == nil {
				s.Close()
				t.Error("it gets a stream")
			}
			t.Log(err)
		})
	}
}

// The parts of the file that memcached has not used stay unallocated.
func TestToReadTakesNoMemory(t *testing.T) {
	m := startMember(t, contract.Connection{})
	raw := m.Raw()
	for i := range 1000 {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 100", i), bytes.Repeat([]byte("v"), 100))
	}
	blocks := func() int64 {
		var stat syscall.Stat_t
		if err := syscall.Stat(m.Path, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks
	}
	before := blocks()
	if got := m.all(m.open(memcache.Dialer{})); len(got) == 0 {
		t.Error("nothing is streamed")
	}
	if after := blocks(); after > before {
		t.Errorf("the file takes %d blocks more", after-before)
	}
}

// Other clients have connected before, more than are allowed, and send nothing.
func TestAMoverGetsIn(t *testing.T) {
	m := startMember(t, contract.Connection{})
	for _, others := range []int{mostConns, 2 * mostConns} {
		for range others {
			conn, err := net.Dial("tcp", m.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		m.all(m.open(memcache.Dialer{}))
	}
}

// Such a request is refused, and costs little.
func TestARequestThatNoMoverMakesIsRefused(t *testing.T) {
	m := startMember(t, contract.Connection{})
	for name, change := range map[string]func(r *Request){
		"more servers than there can be": func(r *Request) {
			for i := range MaxServers {
				r.Servers = append(r.Servers, Listed{Host: "c", Port: uint16(i + 1)})
			}
		},
		"no servers":            func(r *Request) { r.Servers = nil },
		"no such place":         func(r *Request) { r.Self = 2 },
		"another such place":    func(r *Request) { r.Self = NoServer - 1 },
		"no such client":        func(r *Request) { r.Client = "x" },
		"a server without name": func(r *Request) { r.Servers = append(r.Servers, Listed{}) },
	} {
		request := m.request
		change(&request)
		s, err := Open(t.Context(), memcache.Dialer{}, m.address, &request, wait.Long)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// This holds for every client and everything that it sends.
func TestLogLinesAreShort(t *testing.T) {
	m := startMember(t, contract.Connection{})
	logged := make(chan string, 1)
	m.server.Logf = func(format string, args ...any) { logged <- fmt.Sprintf(format, args...) }
	long := strings.Repeat("9", MaxLine/4)
	for _, said := range []string{
		`{"servers":[{"host":"h","port":` + long + `}]}`,
		`{"client":"` + strings.Repeat("\xff", len(long)) + `","servers":[{"host":"h","port":1}]}`,
	} {
		m.server.complained = time.Time{}
		conn, err := net.Dial("tcp", m.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s%s\r\n", Export, said)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		select {
		case line := <-logged:
			if len(line) > 1<<10 {
				t.Errorf("%d bytes: %.200s", len(line), line)
			}
		case <-wait.Over():
			t.Error("nothing is logged")
		}
		conn.Close()
	}
}

// A client gets a stream only for a request, after a login.
func FuzzGreet(f *testing.F) {
	dir := f.TempDir()
	file := filepath.Join(dir, "auth")
	if err := os.WriteFile(file, []byte("ann:pwd\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("version\r\nset login 0 0 7\r\nann pwd\r\nexport {}\r\n"))
	f.Add([]byte("set login 0 0 7\r\nann xxx\r\nexport {}\r\n"))
	f.Add([]byte("set \r\nset x\r\nset -1\r\n"))
	f.Add([]byte("export {\r\n"))
	f.Add([]byte("set 99999999999999999999\r\n\n\n\n\n\n\n\n\n\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		for _, auth := range []string{"", file} {
			s := &Server{Memcached: Memcached{Dialer: memcache.Dialer{Connection: contract.Connection{AuthFile: auth}}}, Logf: t.Logf}
			client, server := net.Pipe()
			go func() {
				_, _ = client.Write(said)
				client.Close()
			}()
			go func() { _, _ = io.Copy(io.Discard, client) }()
			request, err := s.greet(server, bufio.NewReaderSize(server, MaxLine))
			server.Close()
			if (request != nil) != (err == nil) || request != nil && auth != "" && !bytes.Contains(said, []byte("ann pwd\r\n")) {
				t.Errorf("%q: %+v, %v", said, request, err)
			}
		}
	})
}
