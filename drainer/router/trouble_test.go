package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/wait"
)

// keyOf returns a key that this member owns. keyOf finds the key by storing keys through the router.
func keyOf(t *testing.T, routed *conversation, m *memcachedtest.Server) string {
	t.Helper()
	direct := dial(t, m.Address())
	for i := range 1000 {
		key := fmt.Sprintf("of-%d", i)
		routed.want("set "+key+" 0 0 1\r\nx\r\n", "STORED\r\n")
		if direct.ask("get "+key+"\r\n") != "END\r\n" {
			return key
		}
	}
	t.Fatal("no key of that member")
	return ""
}

// A dead member's keys get an error at once, and all others are served. When the member is back, its keys are
// served.
func TestADeadMembersKeysGetAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	routed := dial(t, start(t, router.Config{ReadErrors: true}, all...).address)
	dead, alive := keyOf(t, routed, all[0]), keyOf(t, routed, all[1])
	all[0].Kill()
	wait.For(t, "an error", func() error {
		if got := routed.ask("get " + dead + "\r\n"); !strings.HasPrefix(got, "SERVER_ERROR member "+all[0].Address()) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	routed.want("get "+alive+"\r\n", "VALUE "+alive+" 0 1\r\nx\r\nEND\r\n")
	failed := "SERVER_ERROR member " + all[0].Address() + " is not available\r\n"
	// A read of many keys ends at the first error, as memcached's own.
	value := "VALUE " + alive + " 0 1\r\nx\r\n"
	routed.want("get "+alive+" "+dead+" "+alive+"\r\nget "+alive+"\r\n", value+failed+value+"END\r\n")
	routed.want("set "+dead+" 0 0 1\r\nx\r\nset "+dead+" 0 0 1 noreply\r\nx\r\nmg "+dead+" v q\r\nflush_all\r\n", failed+failed+failed)
	all[0].Restart()
	wait.For(t, "the member", func() error {
		if got := routed.ask("get " + dead + "\r\n"); got != "END\r\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	routed.want("flush_all\r\n", "OK\r\n")
}

// A silent member's requests get an error after a time; those of other members don't wait.
func TestASilentMembersRequestsDelayNoOthers(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{ReadErrors: true, MemberTimeout: 10 * time.Second, ConnectTimeout: 10 * time.Second}, all...)
	routed, other := dial(t, r.address), dial(t, r.address)
	silent, alive := keyOf(t, routed, all[0]), keyOf(t, routed, all[1])
	all[0].Signal(syscall.SIGSTOP)
	routed.say("get " + silent + "\r\nmn\r\n")
	other.want("get "+alive+"\r\n", "VALUE "+alive+" 0 1\r\nx\r\nEND\r\n")
	if got := routed.until("MN"); !strings.HasPrefix(got, "SERVER_ERROR") {
		t.Errorf("%q", got)
	}
	all[0].Signal(syscall.SIGCONT)
	wait.For(t, "the member", func() error {
		if got := routed.ask("get " + silent + "\r\n"); got != "VALUE "+silent+" 0 1\r\nx\r\nEND\r\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// held returns how many bytes the router keeps for clients.
func held(t *testing.T, r *running) int {
	t.Helper()
	return r.Report().Held
}

// For a client that asks and doesn't read, the router keeps no more than its bound. Other clients are served.
// When the client reads, its answers are complete, or errors.
func TestASlowReaderTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	const maxMemory = 16 << 20
	r := start(t, router.Config{ReadErrors: true, Loops: 1, MaxMemory: maxMemory}, all...)
	slow, other := dial(t, r.address), dial(t, r.address)
	value := strings.Repeat("v", 1_000_000)
	other.want("set large 0 0 1000000\r\n"+value+"\r\n", "STORED\r\n")
	const requests = 120
	go func() {
		for range requests / 10 {
			if _, err := io.WriteString(slow, strings.Repeat("get large\r\n", 10)); err != nil {
				return
			}
		}
	}()
	wait.For(t, "answers that are not read", func() error {
		if n := held(t, r); n < len(value) { // it stops reading from that client; how much the client has asked for by then is random
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
	most := 0
	for range 50 {
		other.want("get nothing\r\n", "END\r\n")
		most = max(most, held(t, r))
	}
	if most > maxMemory+2<<20 {
		t.Errorf("the router held %d bytes", most)
	}
	whole, refused := 0, 0
	want := "VALUE large 0 1000000\r\n" + value + "\r\nEND\r\n"
	answer := make([]byte, len(want))
	for range requests {
		line, err := slow.r.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(line, []byte("SERVER_ERROR out of memory")) {
			refused++
			continue
		}
		n := copy(answer, line)
		if _, err := io.ReadFull(slow.r, answer[n:]); err != nil || string(answer) != want {
			t.Fatalf("answer %d is not the value: %v", whole+refused, err)
		}
		whole++
	}
	t.Logf("%d values, %d errors, %d bytes held", whole, refused, most)
	if whole < requests/10 {
		t.Errorf("%d of %d requests were answered", whole, requests)
	}
}

// Many clients read values of 1 MiB at once; beyond the bound, they get an error.
func TestLargeValuesPassWithinTheBound(t *testing.T) {
	t.Parallel()
	all := members(t, 2, "-I", "8m", "-m", "256")
	r := start(t, router.Config{Loops: 1, MaxMemory: 20 << 20, MaxItem: 4 << 20}, all...)
	c := dial(t, r.address)
	value := strings.Repeat("v", 3<<20)
	c.want(fmt.Sprintf("set a 7 0 %d\r\n%s\r\n", len(value), value), "STORED\r\n")
	c.want("get a b a\r\n", strings.Repeat(fmt.Sprintf("VALUE a 7 %d\r\n%s\r\n", len(value), value), 2)+"END\r\n")
	c.want(fmt.Sprintf("ms a %d\r\n%s\r\n", len(value), value), "HD\r\n")
	c.want(fmt.Sprintf("set b 0 0 %d\r\n%s\r\nget b\r\n", 5<<20, strings.Repeat("v", 5<<20)), "SERVER_ERROR object too large for cache\r\nEND\r\n")
	// Eight clients send almost all of a value, and there is room for six.
	const last = 100
	var half []*conversation
	for i := range 8 {
		h := dial(t, r.address)
		h.say(fmt.Sprintf("set h%d 0 0 %d\r\n%s", i, len(value), value[last:]))
		half = append(half, h)
	}
	wait.For(t, "what the clients have sent", func() error {
		if n := held(t, r); n < 6*len(value) {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
	stored := 0
	for _, h := range half {
		switch got := h.ask(value[:last] + "\r\n"); got {
		case "STORED\r\n":
			stored++
		case "SERVER_ERROR out of memory storing object\r\n":
		default:
			t.Errorf("%.100q", got)
		}
	}
	if stored < 6 || stored == len(half) {
		t.Errorf("%d values were stored, want 6 or 7", stored)
	}
}

// There are more requests than a client's window, and a read of thousands of keys.
func TestManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, router.Config{}, members(t, 3)...).address)
	const n = 5000
	var sets, gets, want strings.Builder
	gets.WriteString("gat 100")
	for i := range n {
		fmt.Fprintf(&sets, "set key-%d 0 0 4\r\n%04d\r\n", i, i)
		fmt.Fprintf(&gets, " key-%d", i)
		fmt.Fprintf(&want, "VALUE key-%d 0 4\r\n%04d\r\n", i, i)
	}
	c.want(sets.String(), strings.Repeat("STORED\r\n", n))
	keys := strings.TrimPrefix(gets.String(), "gat 100")
	c.want("get"+keys+"\r\nget key-7\r\n", want.String()+"END\r\nVALUE key-7 0 4\r\n0007\r\nEND\r\n")
	const few = 100 // the keys of one line
	fewKeys, _, _ := strings.Cut(keys, fmt.Sprintf(" key-%d ", few))
	values, _, _ := strings.Cut(want.String(), fmt.Sprintf("VALUE key-%d ", few))
	c.want("gat 100"+fewKeys+"\r\n", values+"END\r\n")
}

// After a line that is too long it is unknown whether a data block follows, so nothing is carried out any
// more.
func TestNothingIsCarriedOutAfterALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{}, all...)
	dial(t, r.address).want("set keep 0 0 1\r\nx\r\n", "STORED\r\n")
	for _, line := range []string{
		"set " + strings.Repeat("k", 2100) + " 0 0 13", "ms " + strings.Repeat("k", 2100) + " 13", "set a 0 0 13" + strings.Repeat(" ", 2100),
		"set " + strings.Repeat("k", 100_000) + " 0 0 13",
	} {
		c := dial(t, r.address)
		_ = c.SetDeadline(wait.Deadline())
		_, _ = io.WriteString(c, line+"\r\ndelete keep\r\n\r\n") // the connection may be closed meanwhile
		if got, err := io.ReadAll(c); string(got) != "CLIENT_ERROR line too long\r\n" && len(got) > 0 {
			t.Errorf("%.20s… of %d bytes: %q, %v", line, len(line), got, err)
		}
	}
	// The line's end has not come yet.
	c := dial(t, r.address)
	_ = c.SetDeadline(wait.Deadline())
	_, _ = io.WriteString(c, "set "+strings.Repeat("k", 2100))
	const answer = "CLIENT_ERROR line too long\r\n"
	if got, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
		t.Fatalf("%d bytes, %v", got, err)
	}
	_, _ = io.WriteString(c, " 0 0 13\r\ndelete keep\r\n\r\n")
	if got, err := io.ReadAll(c); len(got) > 0 {
		t.Errorf("a line without an end: %q, %v", got, err)
	}
	dial(t, r.address).want("get keep\r\n", "VALUE keep 0 1\r\nx\r\nEND\r\n")
}

// It doesn't matter which member is faster.
func TestAnswersComeInTheOrderOfTheRequests(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{MemberTimeout: time.Minute}, all...)
	c := dial(t, r.address)
	slow, fast := keyOf(t, c, all[0]), keyOf(t, c, all[1])
	all[0].Signal(syscall.SIGSTOP)
	text := "get " + slow + "\r\nset " + fast + " 0 0 1\r\n1\r\nget " + fast + " " + slow + " " + fast + "\r\nincr " + fast + " 1\r\nmn\r\nversion\r\nget " + fast + "\r\nset last 0 0 1\r\nx\r\nquit\r\n"
	c.say(text)
	direct := dial(t, all[1].Address())
	wait.For(t, "the fast member", func() error {
		if got := direct.ask("get " + fast + "\r\n"); got != "VALUE "+fast+" 0 1\r\n2\r\nEND\r\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	all[0].Signal(syscall.SIGCONT)
	got, err := io.ReadAll(c.r)
	if err != nil {
		t.Fatal(err)
	}
	version := "VERSION "
	value := func(key, v string) string { return "VALUE " + key + " 0 1\r\n" + v + "\r\n" }
	want := value(slow, "x") + "END\r\nSTORED\r\n" + value(fast, "1") + value(slow, "x") + value(fast, "1") + "END\r\n2\r\nMN\r\n"
	if !strings.HasPrefix(string(got), want+version) || !strings.HasSuffix(string(got), value(fast, "2")+"END\r\nSTORED\r\n") {
		t.Errorf("%q", got)
	}
}

// A router that is told to end answers the requests that it has got, and closes connections between requests.
func TestARouterThatEndsAnswersWhatItWasAsked(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{MemberTimeout: time.Minute, DrainTimeout: time.Minute}, all...)
	idle, busy, half := dial(t, r.address), dial(t, r.address), dial(t, r.address)
	const first, requests, part = "get a\r\nmn\r\n", "set a 0 0 1\r\nx\r\nget a\r\n", "set b 0 0 5\r\nab"
	for _, c := range []*conversation{idle, half} {
		c.say(first)
		c.until("MN")
	}
	all[0].Signal(syscall.SIGSTOP)
	busy.say(requests)
	half.say(part)
	wait.For(t, "the requests, and the part of one, to arrive", func() error {
		if n, bytes := r.Unanswered(), r.Report().Received; n != 2 || bytes != uint64(2*len(first)+len(requests)+len(part)) {
			return fmt.Errorf("%d requests are unanswered, %d bytes have come", n, bytes)
		}
		return nil
	})
	r.stop()
	if rest, err := io.ReadAll(idle.r); err != nil || len(rest) > 0 {
		t.Errorf("the idle one: %q, %v", rest, err)
	}
	if r.Ready() == nil {
		t.Error("it is still ready")
	}
	all[0].Signal(syscall.SIGCONT)
	if got, err := io.ReadAll(busy.r); err != nil || string(got) != "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("the busy one: %q, %v", got, err)
	}
	wait.For(t, "it to take no more connections", func() error {
		conn, err := net.Dial("tcp", r.address)
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("it takes one"), conn.Close())
	})
	half.say("cde\r\n")
	if got, err := io.ReadAll(half.r); err != nil || string(got) != "STORED\r\n" {
		t.Errorf("the one in the middle of a request: %q, %v", got, err)
	}
	select {
	case err := <-r.ended:
		if r.ended <- nil; err != nil {
			t.Error(err)
		}
	case <-wait.Over():
		t.Error("it doesn't end")
	}
}

func TestTooManyAndIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{MaxConnections: 2, IdleTimeout: 300 * time.Millisecond}, all...)
	wait.For(t, "a client that is not idle before it asks", func() error {
		first := dial(t, r.address)
		_ = first.SetDeadline(wait.Deadline())
		_, sent := io.WriteString(first, "get a\r\n")
		if got, err := io.ReadAll(first.r); sent != nil || err != nil || string(got) != "END\r\n" {
			return fmt.Errorf("it is told %q: %w", got, errors.Join(sent, err))
		}
		return nil
	})
	r = start(t, router.Config{MaxConnections: 2}, all...)
	for range 2 {
		dial(t, r.address).want("get a\r\n", "END\r\n")
	}
	third := dial(t, r.address)
	if got, err := io.ReadAll(third.r); err != nil || string(got) != "ERROR Too many open connections\r\n" {
		t.Errorf("the third: %q, %v", got, err)
	}
}

// No descriptor is left open.
func TestManyClientsComeAndGo(t *testing.T) {
	all := members(t, 2)
	ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
	defer cancel()
	r := start(t, router.Config{}, all...)
	before := openFiles(t)
	failed := make(chan error, 8)
	for w := range cap(failed) {
		go func() {
			var err error
			for i := 0; i < 25 && err == nil; i++ {
				err = comeAndGo(ctx, r.address, fmt.Sprintf("key-%d-%d", w, i), i)
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	wait.For(t, "the connections to be closed", func() error {
		if n := openFiles(t); n > before {
			return fmt.Errorf("%d descriptors are open, %d were before", n, before)
		}
		return nil
	})
	wait.For(t, "nothing to be held", func() error {
		if n := held(t, r); n != 0 {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
}

// comeAndGo is a client that may leave in the middle of a request, or of an answer.
func comeAndGo(ctx context.Context, address, key string, i int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(wait.Deadline())
	text := "set " + key + " 0 0 100000\r\n" + strings.Repeat("v", 100_000) + "\r\nget " + key + " " + key + "\r\n"
	if i%3 == 0 {
		text = text[:len(text)*(i+1)/101]
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	if i%3 != 1 {
		return nil
	}
	want := "STORED\r\n" + strings.Repeat("VALUE "+key+" 0 100000\r\n"+strings.Repeat("v", 100_000)+"\r\n", 2) + "END\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if string(got) != want {
		return errors.New(key + ": another answer")
	}
	return nil
}

// The key that is asked for most is reported, among many that are asked for once.
func TestTheKeyThatIsAskedForMostIsTold(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1}, members(t, 2)...)
	c := dial(t, r.address)
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "get cold-%d\r\nget hot\r\nget cool-%d\r\n", i, i%1000)
	}
	c.want(text.String(), strings.Repeat("END\r\n", 12000))
	wait.For(t, "the hot key", func() error {
		hot := r.HotKeys()
		if len(hot) == 0 || hot[0].Text != "hot" || hot[0].Count < 2000 || len(hot) > 20 {
			return fmt.Errorf("%+v", hot)
		}
		return nil
	})
}
