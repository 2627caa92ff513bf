package router_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// reader is an application with a library (testdata/away.py).
type reader struct {
	library string
	in      io.Writer
	out     *bufio.Scanner
}

// read has the values that were read.
type read struct {
	Many, One map[string]string
	Error     string
}

func newReader(t *testing.T, library, module, address string, keys []string) *reader {
	t.Helper()
	const python = "/usr/bin/python3" // Debian's, which has Debian's packages
	tier.Needs(t, "python3-"+module, exec.CommandContext(t.Context(), python, "-c", "import "+module).Run())
	cmd := exec.CommandContext(t.Context(), python, append([]string{"testdata/away.py", library, address}, keys...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &reader{library, in, bufio.NewScanner(out)}
}

func (r *reader) read(t *testing.T) (all read) {
	t.Helper()
	if _, err := io.WriteString(r.in, "\n"); err != nil {
		t.Fatal(err)
	}
	if !r.out.Scan() {
		t.Fatalf("%s has ended: %v", r.library, r.out.Err())
	}
	if err := json.Unmarshal(r.out.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// versioned is a key that one application sets to a growing number.
type versioned struct {
	key string
	// acknowledged is the last number whose set was answered, tried the last one that was sent.
	acknowledged, tried atomic.Int64
}

// set sets the key until done is closed.
func (v *versioned) set(t *testing.T, address string, done <-chan struct{}) {
	c := dial(t, address)
	for {
		select {
		case <-done:
			return
		default:
		}
		n := v.tried.Add(1)
		text := strconv.FormatInt(n, 10)
		if c.ask(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", v.key, len(text), text)) == "STORED\r\n" {
			v.acknowledged.Store(n)
		}
		time.Sleep(time.Millisecond) // the libraries get the CPU
	}
}

// While a member is away, libraries miss its keys and nothing else: neither other keys of the same read, nor
// the router. Libraries never read an old value.
func TestLibrariesMissTheKeysOfAMemberThatIsAwayOnly(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	rings := ring(t, all...)
	var log lines
	const loops = 2
	r := start(t, router.Config{Loops: loops, MemberTimeout: 5 * time.Second, ConnectTimeout: 5 * time.Second, Logf: log.logf}, all...)
	var keys []string
	var values []*versioned
	for i := range 8 {
		key := fmt.Sprintf("%s-%d", ownKey(rings, i%2), i)
		for n := 0; rings.Owner.Owner([]byte(key)) != i%2; n++ {
			key = fmt.Sprintf("%d-%d", i, n)
		}
		keys, values = append(keys, key), append(values, &versioned{key: key})
	}
	var readers []*reader
	for _, l := range [][2]string{{"python-memcached", "memcache"}, {"pymemcache", "pymemcache"}, {"pylibmc", "pylibmc"}, {"pylibmc-binary", "pylibmc"}} {
		readers = append(readers, newReader(t, l[0], l[1], r.address, keys))
	}
	done := make(chan struct{})
	var load sync.WaitGroup
	for _, v := range values {
		load.Go(func() { v.set(t, r.address, done) })
	}
	defer load.Wait()
	defer close(done)

	away := all[0]
	// stored waits until all keys of a member are set again, and until each loop is connected to the member: the
	// applications that set the keys may all be clients of one loop.
	stored := func(member int) {
		wait.For(t, "the connections of all loops", func() error {
			if m := r.Report().Members[member]; m.Connections != loops {
				return fmt.Errorf("%s has %d", m.Name, m.Connections)
			}
			return nil
		})
		for i, v := range values {
			if before := v.acknowledged.Load(); i%2 == member {
				wait.For(t, v.key+" to be set", func() error {
					if v.acknowledged.Load() < before+2 {
						return fmt.Errorf("%d, %d before", v.acknowledged.Load(), before)
					}
					return nil
				})
			}
		}
	}
	// round makes each library read. at are the members that have its keys. A loaded machine breaks connections, too,
	// and reads are misses until they are made anew: so a key is lost if three reads in a row miss one.
	const reads = 3
	round := func(when string, at ...int) {
		for _, l := range readers {
			for missed, paused := 0, true; paused; {
				for _, member := range at {
					stored(member)
				}
				var before []int64
				for _, v := range values {
					before = append(before, v.acknowledged.Load())
				}
				failed := log.failed(all[1])
				got := l.read(t)
				paused = log.failed(all[1]) > failed // the machine was paused meanwhile
				var lost []string
				for i, v := range values {
					for kind, found := range map[string]map[string]string{"many": got.Many, "one": got.One} {
						text, hit := found[v.key]
						n, _ := strconv.ParseInt(text, 10, 64)
						wanted := false
						for _, member := range at {
							wanted = wanted || member == i%2
						}
						if hit && (n < before[i] || n > v.tried.Load()) {
							t.Errorf("%s, %s: %s of %s is %q, where %d was stored before", when, l.library, kind, v.key, text, before[i])
						} else if wanted && !hit && !paused {
							lost = append(lost, kind+" "+v.key)
						}
					}
				}
				if got.Error != "" {
					t.Errorf("%s, %s: %s", when, l.library, got.Error)
				}
				if missed++; lost != nil && missed < reads {
					paused = true
				} else if lost != nil {
					t.Errorf("%s, %s: it has lost %s", when, l.library, lost)
				}
			}
		}
	}
	round("at first", 0, 1)
	away.Signal(syscall.SIGSTOP)
	round("stopped", 1)
	away.Signal(syscall.SIGCONT)
	round("back", 0, 1)
	away.Kill()
	round("killed", 1)
	away.Restart()
	round("started", 0, 1)
	if n := r.Report().Missed; n == 0 {
		t.Error("no read was counted as failed")
	}
}

// failed returns how often a connection to a member has failed.
func (l *lines) failed(m *memcachedtest.Server) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, "member "+m.Address()) {
			n++
		}
	}
	return n
}

// The cases are the answers to each kind of read of a key whose member is away.
func TestAFailedReadIsAMissOrAnErrorAsTheOptionSays(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	rings := ring(t, all...)
	away, here := ownKey(rings, 0), ownKey(rings, 1)
	lenient, strict := dial(t, start(t, router.Config{}, all...).address), dial(t, start(t, router.Config{ReadErrors: true}, all...).address)
	change := dial(t, start(t, router.Config{Table: &router.Table{State: ringchange.Settle, Old: ring(t, all[0]), New: ring(t, all[1])}}, all...).address)
	binary := dial(t, start(t, router.Config{}, all...).address)
	lenient.want("set "+here+" 0 0 1\r\nx\r\n", "STORED\r\n")
	all[0].Kill()
	wait.For(t, "the member to be away", func() error {
		for _, c := range []*conversation{lenient, strict, change} {
			if got := c.ask("touch " + away + " 0\r\n"); !strings.HasPrefix(got, "SERVER_ERROR") {
				return fmt.Errorf("%q", got)
			}
		}
		return nil
	})
	hit, failed := "VALUE "+here+" 0 1\r\nx\r\n", "SERVER_ERROR member "+all[0].Address()+" is not available\r\n"
	for _, name := range []string{"get", "gat 0"} {
		for text, want := range map[string][2]string{
			name + " " + away + "\r\n":                                  {"END\r\n", failed},
			name + " " + here + "\r\n":                                  {hit + "END\r\n", hit + "END\r\n"},
			name + " " + here + " " + away + " " + here + "\r\n":        {hit + hit + "END\r\n", hit + failed},
			name + " " + away + " " + here + " " + away + "\r\n":        {hit + "END\r\n", failed},
			name + " " + away + " " + away + "\r\nget " + here + "\r\n": {"END\r\n" + hit + "END\r\n", failed + hit + "END\r\n"},
		} {
			lenient.want(text, want[0])
			strict.want(text, want[1])
		}
	}
	for _, text := range []string{"set " + away + " 0 0 1\r\ny\r\n", "touch " + away + " 0\r\n", "delete " + away + "\r\n", "md " + away + "\r\n", "incr " + away + " 1\r\n"} {
		lenient.want(text, failed) // a write gets the error
	}
	for _, flags := range []string{" v", "", " v q", " t f v O7 k", " k v O7 q", " v N30", " T0"} {
		// The member that is there gives this answer about the other key if it has no such item.
		missing := here + "-missing"
		for rings.Owner.Owner([]byte(missing)) != 1 {
			missing += "-"
		}
		want := strings.ReplaceAll(lenient.ask("mg "+missing+strings.TrimSuffix(flags, " N30")+"\r\n"), missing, away)
		lenient.want("mg "+away+flags+"\r\n", want)
		strict.want("mg "+away+flags+"\r\n", failed)
	}
	// In a ring change both owners would have to answer that they don't have the key.
	change.want("get "+away+" "+here+"\r\n", hit+"END\r\n")
	change.want("gat 0 "+away+"\r\n", "END\r\n")
	for opcode, kind := range map[byte]string{0x00: "get", 0x0c: "getk", 0x1d: "gat"} {
		extras := ""
		if opcode == 0x1d {
			extras = u32(0)
		}
		if got := binary.one(packet{opcode: opcode, key: away, extras: extras}); got.status != 1 {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

// silentPlace is an address at which connections are accepted, and nothing is answered.
func silentPlace(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// fullPlace is an address whose SYNs are dropped, because nothing takes the connections that were made.
func fullPlace(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// However a member is away, reads of its keys are misses, in each protocol.
func TestAReadIsAMissHoweverItsMemberIsAway(t *testing.T) {
	t.Parallel()
	const key = "key"
	missed := func(t *testing.T, address string) {
		t.Helper()
		binary := dial(t, address)
		binary.say(packet{opcode: 0x00, key: key}.bytes())
		dial(t, address).want("get "+key+" "+key+"\r\ngats 0 "+key+"\r\nmg "+key+" v k O7\r\nmg "+key+" v q\r\n", "END\r\nEND\r\nEN k"+key+" O7\r\n")
		if got, err := readPacket(binary.r); err != nil || got.status != 1 {
			t.Errorf("a binary get: %v, %v", got, err)
		}
	}
	at := func(t *testing.T, address string, dialer memcache.Dialer) {
		t.Helper()
		server, err := routing.ParseServer(address)
		if err != nil {
			t.Fatal(err)
		}
		list := []routing.Server{server}
		owner, err := routing.New("gomemcache", list)
		if err != nil {
			t.Fatal(err)
		}
		missed(t, launch(t, router.Config{Dialer: dialer, ConnectTimeout: wait.Long, Table: &router.Table{New: router.Ring{Owner: owner, Servers: list}}}).address)
	}
	t.Run("refused", func(t *testing.T) {
		at(t, fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t)), memcache.Dialer{})
	})
	t.Run("dropped", func(t *testing.T) { at(t, fullPlace(t), memcache.Dialer{}) })
	t.Run("never answers", func(t *testing.T) { at(t, silentPlace(t), memcache.Dialer{}) })
	t.Run("never ends the handshake", func(t *testing.T) {
		at(t, silentPlace(t), memcache.Dialer{Connection: memcachedtest.NewSecured(t).Connection()})
	})
	t.Run("stopped", func(t *testing.T) {
		all := members(t, 1)
		r := start(t, router.Config{MemberTimeout: time.Second}, all...)
		all[0].Signal(syscall.SIGSTOP)
		defer all[0].Signal(syscall.SIGCONT)
		missed(t, r.address)
	})
}
