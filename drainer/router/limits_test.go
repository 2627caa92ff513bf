package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// A router that starts while a new member isn't up serves the items of the old one. The router acknowledges
// the table when the new member is connected.
func TestARouterStartsInAChangeWhoseNewMemberIsNotUp(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	port := memcachedtest.FreePort(t)
	direct := dial(t, all[0].Address())
	direct.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	later := router.Ring{Servers: []routing.Server{{Host: "127.0.0.1", Port: uint16(port)}}}
	var err error
	if later.Owner, err = routing.New("pymemcache", later.Servers); err != nil {
		t.Fatal(err)
	}
	table := &router.Table{Number: 7, State: ringchange.Prepare, Old: ring(t, all[0]), New: later}
	r := start(t, router.Config{Table: table}, all...)
	c := dial(t, r.address)
	c.want("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n")
	wait.For(t, "why it has not acknowledged", func() error {
		if n, why := r.Acknowledged(); n == 7 || !strings.Contains(why, fmt.Sprintf("127.0.0.1:%d", port)) {
			return fmt.Errorf("table %d: %q", n, why)
		}
		return nil
	})
	memcachedtest.StartAt(t, port)
	wait.For(t, "the table", func() error { return acknowledged(r, 7) })
	c.want("set b 0 0 1\r\ny\r\nget b\r\n", "STORED\r\nVALUE b 0 1\r\ny\r\nEND\r\n")
	direct.want("get b\r\n", "VALUE b 0 1\r\ny\r\nEND\r\n") // the old owner's value, in Prepare
}

// A client that announces a large block, and doesn't send it, takes no room from others.
func TestASizeThatWasOnlyAnnouncedTakesNoRoom(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1, MaxMemory: 4 << 20, MaxItem: 64 << 20}, members(t, 2)...)
	for range 8 {
		dial(t, r.address).say("set x 0 0 67108862\r\n")
	}
	c := dial(t, r.address)
	value := strings.Repeat("v", 50_000)
	for i := range 20 {
		key := fmt.Sprintf("key-%d", i)
		c.want(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value), "STORED\r\n")
		want := fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", key, len(value), value)
		c.want("get "+key+" "+key+"\r\n", want+want+"END\r\n")
	}
}

// Small values are also answered when others have filled the room.
func TestSmallAnswersPassWhenTheRoomIsFull(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1, MaxMemory: 4 << 20, MaxItem: 64 << 20}, members(t, 2)...)
	c := dial(t, r.address)
	c.want("set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n")
	for range 8 {
		dial(t, r.address).say("set x 0 0 9000000\r\n" + strings.Repeat("v", 500_000))
	}
	wait.For(t, "what the clients have sent", func() error {
		if n := held(t, r); n < 3<<20 {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
	for range 200 {
		c.want("get a b a b\r\nset a 0 0 1\r\nx\r\n", strings.Repeat("VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\n", 2)+"END\r\nSTORED\r\n")
	}
}

// A client that stops in the middle of a value is closed after a time, and the part that it has sent is
// dropped.
func TestAValueThatNeverComesIsGivenUp(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1, RequestTimeout: 500 * time.Millisecond}, members(t, 1)...)
	typist := dial(t, r.address)
	typist.say("get ")
	for _, size := range []int{20_000, 500_000} {
		c := dial(t, r.address)
		c.want("get a\r\n", "END\r\n")
		c.say(fmt.Sprintf("set a 0 0 %d\r\n%s", size, strings.Repeat("v", size/2)))
		if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
			t.Errorf("%d bytes: %q, %v", size, rest, err)
		}
	}
	typist.want("a\r\n", "END\r\n") // a person may be slow
	wait.For(t, "nothing to be held", func() error {
		if n := held(t, r); n != 0 {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
}

// Many small requests that never become complete don't fill the room forever, either.
func TestSmallRequestsThatNeverComeAreGivenUpWhenTheRoomIsFull(t *testing.T) {
	t.Parallel()
	const maxMemory = 1 << 20
	r := start(t, router.Config{Loops: 1, MaxMemory: maxMemory, RequestTimeout: 500 * time.Millisecond}, members(t, 1)...)
	for range maxMemory / 4000 {
		dial(t, r.address).say("set x 0 0 3900\r\n" + strings.Repeat("v", 3800))
	}
	value := strings.Repeat("v", 100_000)
	wait.For(t, "room for a larger value", func() error {
		c := dial(t, r.address)
		defer c.Close()
		if got := c.ask(fmt.Sprintf("set a 0 0 %d\r\n%s\r\n", len(value), value)); got != "STORED\r\n" {
			return fmt.Errorf("%q", got)
		}
		if n := held(t, r); n > maxMemory/2 {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
}

// As with memcached, a set that is refused because of its size leaves no older value behind.
func TestASetThatIsTooLargeLeavesNoOldValue(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{}, all[0])
	c := dial(t, r.address)
	huge := strings.Repeat("v", 1_100_000)
	const refused = "SERVER_ERROR object too large for cache\r\n"
	try := func() {
		t.Helper()
		for _, set := range []string{"set a 0 0 1100000\r\n", "ms a 1100000\r\n", "ms a 1100000 q\r\n", "ms YQ== 1100000 b\r\n"} {
			c.want("set a 0 0 1\r\nx\r\n"+set+huge+"\r\nget a\r\n", "STORED\r\n"+refused+"END\r\n")
		}
		c.want("set a 0 0 1\r\nx\r\nset a 0 0 1100000 noreply\r\n"+huge+"\r\nget a\r\n", "STORED\r\nEND\r\n")
		c.want("set a 0 0 1\r\nx\r\nappend a 0 0 1100000\r\n"+huge+"\r\nget a\r\n", "STORED\r\n"+refused+"VALUE a 0 1\r\nx\r\nEND\r\n")
	}
	try()
	for state := ringchange.Prepare; state <= ringchange.Move; state++ {
		enter(t, r, &router.Table{Number: int64(state), State: state, Old: ring(t, all[0]), New: ring(t, all[1])})
		try()
	}
}

// A client that has closed its sending side gets all answers.
func TestAClientThatHalfClosesGetsAllAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{}, members(t, 2)...)
	dial(t, r.address).want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	for round := range 60 {
		requests := 3000
		text, answer := strings.Repeat("get a\r\n", requests), "END\r\n"
		switch round % 3 {
		case 1:
			text, answer = strings.Repeat("set b 0 0 1\r\ny\r\n", requests), "STORED\r\n"
		case 2: // the last request is not complete
			requests = 5
			text, answer = strings.Repeat("get a\r\n", requests)+"set c 0 0 100000\r\nabc", "END\r\n"
		}
		c := dial(t, r.address)
		c.say(text)
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c.r)
		if n := strings.Count(string(got), answer); err != nil || n != requests {
			t.Fatalf("round %d: %d answers to %d requests, %v", round, n, requests, err)
		}
	}
}

// pretender answers like a memcached that reads at a certain pace.
type pretender struct {
	address string
	conns   atomic.Int64
}

// pretend calls serve for each connection, after the router has asked for the version.
func pretend(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) *pretender {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pretender{address: listener.Addr().String()}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
			running.Go(func() {
				defer c.Close()
				r := bufio.NewReaderSize(c, 16<<10)
				if line, err := r.ReadString('\n'); err != nil || line != "version\r\n" {
					return
				}
				_, _ = io.WriteString(c, "VERSION 1.6.18\r\n")
				p.conns.Add(1)
				serve(c, r)
			})
		}
	})
	return p
}

// ringOf returns a ring of these addresses.
func ringOf(t *testing.T, addresses ...string) (r router.Ring) {
	t.Helper()
	for _, a := range addresses {
		host, text, err := net.SplitHostPort(a)
		port, bad := strconv.ParseUint(text, 10, 16)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		r.Servers = append(r.Servers, routing.Server{Host: host, Port: uint16(port)})
	}
	var err error
	if r.Owner, err = routing.New("pymemcache", r.Servers); err != nil {
		t.Fatal(err)
	}
	return r
}

// A member that reads a large value slowly is not given up.
func TestAMemberThatTakesALargeValueSlowlyIsNotDead(t *testing.T) {
	t.Parallel()
	const size = 12 << 20
	slow := pretend(t, func(c net.Conn, r *bufio.Reader) {
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "set ") {
			return
		}
		for left := size + 2; left > 0; {
			n, err := r.Discard(min(left, 64<<10))
			if err != nil {
				return
			}
			left -= n
			time.Sleep(30 * time.Millisecond) // so that it takes twice the time-out in all
		}
		_, _ = io.WriteString(c, "STORED\r\n")
		_, _ = r.ReadString('\n')
	})
	r := start(t, router.Config{Table: &router.Table{New: ringOf(t, slow.address)}, MaxItem: 16 << 20, MemberTimeout: 3 * time.Second})
	c := dial(t, r.address)
	c.want(fmt.Sprintf("set big 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size)), "STORED\r\n")
	if n := slow.conns.Load(); n > 2 { // one for each loop
		t.Errorf("%d connections", n)
	}
}

// A member that reads a byte now and then is given up.
func TestAMemberThatTakesNextToNothingIsDead(t *testing.T) {
	t.Parallel()
	stuck := pretend(t, func(_ net.Conn, r *bufio.Reader) {
		for {
			if _, err := r.ReadByte(); err != nil {
				return
			}
			select {
			case <-t.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	const size = 12 << 20
	r := start(t, router.Config{Table: &router.Table{New: ringOf(t, stuck.address)}, MaxItem: 16 << 20, MemberTimeout: 400 * time.Millisecond})
	c := dial(t, r.address)
	c.want(fmt.Sprintf("set big 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size)), "SERVER_ERROR member "+stuck.address+" is not available\r\n")
}

// A client that waits for an answer is not idle.
func TestAClientThatWaitsForItsAnswerIsNotIdle(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	keys := dial(t, start(t, router.Config{}, all...).address)
	silent, alive := keyOf(t, keys, all[0]), keyOf(t, keys, all[1])
	r := start(t, router.Config{MemberTimeout: wait.Long, IdleTimeout: 300 * time.Millisecond}, all...)
	all[0].Signal(syscall.SIGSTOP)
	found := func(key string) string { return "VALUE " + key + " 0 1\r\nx\r\nEND\r\n" }
	var c *conversation
	wait.For(t, "a connection that is not idle before it asks", func() error {
		c = dial(t, r.address)
		_ = c.SetDeadline(wait.Deadline())
		_, err := io.WriteString(c, "get "+alive+"\r\nget "+silent+"\r\n")
		got := make([]byte, len(found(alive)))
		if err == nil {
			_, err = io.ReadFull(c.r, got)
		}
		if err == nil && string(got) != found(alive) {
			t.Fatalf("%q", got)
		}
		return err
	})
	// A client that connected later is closed, because it asks nothing.
	if rest, err := io.ReadAll(dial(t, r.address).r); err != nil || len(rest) > 0 {
		t.Errorf("the idle one: %q, %v", rest, err)
	}
	all[0].Signal(syscall.SIGCONT)
	if got, err := io.ReadAll(c.r); string(got) != found(silent) || err != nil { // and then it is
		t.Errorf("%q, %v", got, err)
	}
}

// A member that fails repeatedly is logged once a second, with a count.
func TestAMemberThatFailsOftenIsLoggedSeldom(t *testing.T) {
	t.Parallel()
	breaks := pretend(t, func(c net.Conn, r *bufio.Reader) { _, _ = r.ReadString('\n') })
	var mu sync.Mutex
	var log strings.Builder
	began := time.Now()
	config := router.Config{Table: &router.Table{New: ringOf(t, breaks.address)}, Loops: 1, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&log, format+"\n", args...)
	}}
	r := start(t, config)
	c := dial(t, r.address)
	wait.For(t, "failures", func() error {
		c.ask("get a\r\n")
		if n := breaks.conns.Load(); n < 50 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	lines := 0
	for line := range strings.Lines(log.String()) {
		if strings.HasPrefix(line, "member "+breaks.address) {
			lines++
		}
	}
	if most := int(time.Since(began)/time.Second) + 1; lines == 0 || lines > most {
		t.Errorf("%d lines in %v:\n%s", lines, time.Since(began), log.String())
	}
}

// keysOf returns both kinds of keys: those whose owner stays, and those that move.
func keysOf(from, to router.Ring) (stays, moves []string) {
	for i := 0; len(stays) < 20 || len(moves) < 20; i++ {
		key := fmt.Sprintf("some-%d", i)
		a, b := from.Servers[from.Owner.Owner([]byte(key))], to.Servers[to.Owner.Owner([]byte(key))]
		switch {
		case a.Address() == b.Address() && len(stays) < 20:
			stays = append(stays, key)
		case a.Address() != b.Address() && len(moves) < 20:
			moves = append(moves, key)
		}
	}
	return stays, moves
}

// commands returns the number of commands that a member has carried out.
func commands(t *testing.T, m *memcachedtest.Server) (sum int) {
	t.Helper()
	text := dial(t, m.Address()).ask("stats\r\n")
	for _, name := range []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_meta", "delete_hits", "delete_misses", "incr_hits", "incr_misses"} {
		var n int
		_, rest, found := strings.Cut(text, "STAT "+name+" ")
		if _, err := fmt.Sscan(rest, &n); !found || err != nil {
			t.Fatalf("%s: %v in %s", name, err, text)
		}
		sum += n
	}
	return sum
}

// A request for a key whose owner stays costs one command in every state.
func TestAKeyWhoseOwnerStaysTakesOneHop(t *testing.T) {
	t.Parallel()
	all := members(t, 3)
	three, two := ring(t, all...), ring(t, all[:2]...)
	r := start(t, router.Config{}, all...)
	c := dial(t, r.address)
	stays, moves := keysOf(three, two)
	number := int64(0)
	ask := func(keys []string) (sum int) {
		before := 0
		for _, m := range all {
			before += commands(t, m)
		}
		for _, key := range keys {
			c.ask("set " + key + " 0 0 1\r\n1\r\nget " + key + "\r\nincr " + key + " 1\r\ndelete " + key + "\r\nget " + key + "\r\n")
		}
		for _, m := range all {
			sum += commands(t, m)
		}
		return sum - before
	}
	const each = 5
	for state := ringchange.Stable; state <= ringchange.Finish+1; state++ {
		number++
		table := &router.Table{Number: number, State: state % (ringchange.Finish + 1), Old: three, New: two}
		if state == ringchange.Stable {
			table.New = three
		}
		enter(t, r, table)
		if got, want := ask(stays), each*len(stays); got != want {
			t.Errorf("%v: %d commands for %d requests of keys that stay", table.State, got, want)
		}
		if got, one := ask(moves), each*len(moves); table.State == ringchange.Stable && got != one || table.State != ringchange.Stable && table.State != ringchange.Finish && got <= one {
			t.Errorf("%v: %d commands for %d requests of keys that move", table.State, got, one)
		}
	}
}

// While a resolver doesn't answer, connected members are served without delay.
func TestASilentResolverDelaysNoClient(t *testing.T) {
	// The test is not parallel: all tests share the resolver.
	var silent atomic.Bool
	asked := make(chan struct{}, 1)
	usual := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		if silent.Load() {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-t.Context().Done()
		}
		return nil, errors.New("no resolver is there")
	}}
	t.Cleanup(func() { net.DefaultResolver = usual })
	all := members(t, 1)
	table := &router.Table{New: ringOf(t, all[0].Address(), "unknown.example:11211")}
	r := start(t, router.Config{ReadErrors: true, Table: table, ConnectTimeout: wait.Long})
	c := dial(t, r.address)
	known, unknown := "", ""
	for i := 0; known == "" || unknown == ""; i++ {
		key := fmt.Sprintf("some-%d", i)
		if table.New.Owner.Owner([]byte(key)) == 0 {
			known = key
		} else {
			unknown = key
		}
	}
	silent.Store(true)
	wait.Receive(t, "a look-up, which lasts as long as the test", asked)
	for range 100 {
		c.want("get "+known+"\r\n", "END\r\n")
		if got := c.ask("get " + unknown + "\r\n"); !strings.HasPrefix(got, "SERVER_ERROR member unknown.example:11211") {
			t.Fatalf("%q", got)
		}
	}
}

// The bytes that follow would have to be discarded forever.
func TestABlockThatNoMemcachedTakesEndsTheConnection(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1}, members(t, 1)...)
	for _, line := range []string{"cas  0 0 2 99999999999", "set k 0 0 99999999999", "ms k 99999999999"} {
		c := dial(t, r.address)
		c.say(line + "\r\nget k\r\n")
		rest, err := io.ReadAll(c.r)
		if err != nil || !strings.Contains(string(rest), "ERROR") || strings.Contains(string(rest), "END") {
			t.Errorf("%s: %q, %v", line, rest, err)
		}
	}
}
