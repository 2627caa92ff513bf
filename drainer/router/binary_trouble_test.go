package router_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// logins returns the tests' logins.
func logins() ([]contract.Login, error) {
	return []contract.Login{{User: "app", Password: "secret"}, {User: "other", Password: "word"}}, nil
}

func login(opcode byte, mechanism, data string) packet {
	return packet{opcode: opcode, key: mechanism, value: data}
}

// A client gets no answer before a login by SASL PLAIN, and the password is not stored.
func TestABinaryClientLogsIn(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{Logins: logins}, all...)
	c := dial(t, r.address)
	want := func(p packet, status uint16, value string) {
		t.Helper()
		if got := c.one(p); got.status != status || got.value != value || got.opcode != p.opcode {
			t.Errorf("%v: %v, want status %#x and %q", p, got, status, value)
		}
	}
	// said() ends with a noop, which ends the connection before a login.
	ask := func(p packet) packet {
		t.Helper()
		c.say(p.bytes())
		got, err := readPacket(c.r)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		return got
	}
	for _, test := range []struct {
		request packet
		status  uint16
		value   string
	}{
		{packet{opcode: opVersion}, 0, "1.6.18"},
		{packet{opcode: opMechanisms}, 0, "PLAIN"},
		{login(opLogin, "PLAIN", "\x00app\x00wrong"), 0x20, "Auth failure."},
		{login(opLogin, "PLAIN", "app secret"), 0x20, "Auth failure."},
		{login(opLogin, "PLAIN", "other\x00app\x00secret"), 0x20, "Auth failure."},
		{login(opLogin, "PLAIN", "\x00app\x00secret more"), 0x20, "Auth failure."},
		{login(opLogin, "PLAIN", "\x00app\r\n\x00secret"), 0x20, "Auth failure."},
		{login(opLogin, "CRAM-MD5", "\x00app\x00secret"), 0x20, "Auth failure."},
		{login(opLoginStep, "PLAIN", "\x00app\x00secret"), 0x20, "Auth failure."},
		{login(opLogin, strings.Repeat("x", 33), ""), 4, "Invalid arguments"},
		{login(opLogin, "PLAIN", strings.Repeat("x", 100_000)), 0x82, "Out of memory"},
		{login(opLogin, "PLAIN", ""), 0x21, ""},
		{login(opLoginStep, "PLAIN", "app\x00app\x00secret"), 0, "Authenticated"},
	} {
		if got := ask(test.request); got.status != test.status || test.value != "1.6.18" && got.value != test.value {
			t.Errorf("%v: %v, want status %#x and %q", test.request, got, test.status, test.value)
		}
	}
	want(stored(opSet, "a", "x", 0, 0, 0), 0, "")
	want(login(opLogin, "PLAIN", "\x00other\x00word"), 0, "Authenticated")
	want(packet{opcode: opGet, key: "a"}, 0, "x")
	if got := all[0].Items(t); got != 1 {
		t.Errorf("%d items are stored, want 1", got)
	}
	if all, closed := c.said(login(opLogin, "PLAIN", "\x00other\x00wrong").bytes()); len(all) != 2 || all[1].status != 0x20 || !closed {
		t.Errorf("a request after a wrong password: %v, closed: %v", all, closed)
	}
	for _, p := range []packet{stored(opSet, "a", "y", 0, 0, 0), {opcode: opGetQ, key: "a"}, {opcode: opStat}, {opcode: opQuit}, {opcode: 0x50}} {
		c = dial(t, r.address)
		if all, closed := c.said(p.bytes()); len(all) != 1 || all[0].status != 0x20 || !closed {
			t.Errorf("%v without a login: %v, closed: %v", p, all, closed)
		}
	}
	c = dial(t, r.address)
	if got := ask(login(opLogin, "PLAIN", "\x00app\x00secret")); got.status != 0 {
		t.Errorf("%v", got)
	}
	want(packet{opcode: opGet, key: "a"}, 0, "x")
}

// The client also uses TLS, and a login.
func TestABinaryClientSpeaksTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, contract.CertFile), filepath.Join(dir, contract.KeyFile))
		return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, err
	}
	r := start(t, router.Config{TLS: config, Logins: logins}, members(t, 2)...)
	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := over(t, conn)
	value := strings.Repeat("v", 900_000)
	all, closed := c.said(login(opLogin, "PLAIN", "\x00app\x00secret").bytes() + stored(opSetQ, "a", value, 3, 0, 0).bytes() + packet{opcode: opGetK, key: "a"}.bytes())
	if len(all) != 2 || closed || all[0].status != 0 || all[1].value != value || all[1].extras != u32(3) {
		t.Errorf("%v, closed: %v", all, closed)
	}
}

// The keys of a dead member get a temporary error. A quiet read gets none, because clients can't tell an error from
// the end of a list of hits.
func TestADeadMembersKeysAreAnErrorToABinaryClient(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{ReadErrors: true}, all...)
	routed, c := dial(t, r.address), dial(t, r.address)
	dead, alive := keyOf(t, routed, all[0]), keyOf(t, routed, all[1])
	all[0].Kill()
	wait.For(t, "an error", func() error {
		if got := c.one(packet{opcode: opGet, key: dead}); got.status != 0x86 || got.value != "member "+all[0].Address()+" is not available" {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	got, closed := c.said(packet{opcode: opGetKQ, key: dead}.bytes() + packet{opcode: opGetKQ, key: alive, opaque: 5}.bytes() +
		stored(opSetQ, dead, "y", 0, 0, 0).bytes() + stored(opSetQ, alive, "y", 0, 0, 0).bytes())
	if len(got) != 2 || closed || got[0].opaque != 5 || got[0].value != "x" || got[1].opcode != opSetQ || got[1].status != 0x86 {
		t.Errorf("%v, closed: %v", got, closed)
	}
}

// There are more requests than a client's window, and the answers are read only when all are sent.
func TestManyBinaryRequestsAtOnce(t *testing.T) {
	tier.Second(t, "TestManyRequestsAtOnce")
	t.Parallel()
	c := dial(t, start(t, router.Config{}, members(t, 3)...).address)
	const n = 5000
	var text strings.Builder
	for i := range n {
		text.WriteString(stored(opSetQ, fmt.Sprintf("key-%d", i), fmt.Sprint(i), uint32(i), 0, 0).bytes())
	}
	for i := range n {
		text.WriteString(packet{opcode: opGetKQ, key: fmt.Sprintf("key-%d", i), opaque: uint32(i)}.bytes())
		text.WriteString(packet{opcode: opGetKQ, key: "nothing"}.bytes())
	}
	all, closed := c.said(text.String())
	if len(all) != n || closed {
		t.Fatalf("%d answers, want %d, closed: %v", len(all), n, closed)
	}
	for i, p := range all {
		if p.key != fmt.Sprintf("key-%d", i) || p.value != fmt.Sprint(i) || p.extras != u32(uint32(i)) || p.opaque != uint32(i) {
			t.Fatalf("answer %d is %v", i, p)
		}
	}
}

func TestABinaryClientReadsTheRoutersStatistics(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, router.Config{}, members(t, 1)...).address)
	all, closed := c.said(packet{opcode: opStat, opaque: 7}.bytes())
	names := map[string]string{}
	for _, p := range all {
		if p.opcode != opStat || p.opaque != 7 || p.status != 0 {
			t.Errorf("%v", p)
		}
		names[p.key] = p.value
	}
	if last := all[len(all)-1]; closed || last.key != "" || last.value != "" || names["pid"] != fmt.Sprint(os.Getpid()) || names["curr_connections"] != "1" {
		t.Errorf("%v, closed: %v", all, closed)
	}
}

// An invalid request is answered with an error; its body is discarded or the connection closed, and nothing
// of it is left.
func TestHostileBinaryClientsLeaveNothingBehind(t *testing.T) {
	all := members(t, 2)
	r := start(t, router.Config{MaxItem: 2 << 20, MaxConnections: 20}, all...)
	before := dial(t, r.address)
	before.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	goroutines := runtime.NumGoroutine()
	descriptors := openFiles(t)
	// head returns the head of a request with these lengths.
	head := func(opcode byte, key, extras, body uint32) string {
		b := []byte{0x80, opcode, byte(key >> 8), byte(key), byte(extras), 0, 0, 0}
		return string(b) + u32(body, 1, 0, 0)
	}
	const invalid, tooLarge, unknown = 4, 3, 0x81
	for name, test := range map[string]struct {
		sent     string
		statuses []uint16
		closed   bool
	}{
		"a body of 4 GiB":             {head(opSet, 1, 8, 1<<32-1) + "12345678a", []uint16{invalid}, true},
		"an unknown one of 4 GiB":     {head(0x70, 0, 0, 1<<32-1), []uint16{invalid}, true},
		"a value that is too large":   {head(opSet, 1, 8, 9+2<<20) + "12345678a" + strings.Repeat("v", 2<<20) + packet{opcode: opGet, key: "b"}.bytes(), []uint16{tooLarge, 1}, false},
		"an append too large":         {head(opAppendQ, 1, 0, 1+3<<20) + "a" + strings.Repeat("v", 3<<20), []uint16{tooLarge}, false},
		"an unknown one with a body":  {head(0x70, 3, 5, 108) + strings.Repeat("\x80", 108), []uint16{unknown}, false},
		"a key longer than its body":  {head(opGet, 200, 0, 100) + strings.Repeat("k", 200), []uint16{unknown}, true},
		"extras longer than its body": {head(opIncrement, 1, 20, 5) + strings.Repeat("k", 21), []uint16{unknown}, true},
		"the longest key":             {head(opGet, 65535, 255, 65790) + strings.Repeat("k", 65790), []uint16{invalid}, true},
		"a touch with a value":        {head(opTouch, 1, 4, 29) + "1234a" + packet{opcode: opNoop}.bytes(), []uint16{invalid}, true},
		"statistics with a value":     {head(opStat, 5, 0, 9) + "a\r\nmn1234", []uint16{invalid}, true},
		"a command as a kind":         {packet{opcode: opStat, key: "a\r\nmn\r\nflush_all\r\n"}.bytes(), []uint16{1}, false},
		"a key that text can't carry": {packet{opcode: opGet, key: strings.Repeat("\n", 187)}.bytes() + packet{opcode: opGetKQ, key: strings.Repeat("\n", 187)}.bytes(), []uint16{invalid}, false},
		"noise":                       {"\x80" + strings.Repeat("\xff\x00noise", 20_000), []uint16{invalid}, true},
		"no more than a byte":         {"\x80", nil, true},
	} {
		c := dial(t, r.address)
		text := test.sent
		if !test.closed {
			text += packet{opcode: opQuitQ}.bytes()
		}
		_ = c.SetDeadline(wait.Deadline())
		_, _ = io.WriteString(c.Conn, text)
		if name == "no more than a byte" {
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}
		var got []uint16
		for {
			p, err := readPacket(c.r)
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil {
				break
			}
			got = append(got, p.status)
		}
		_ = c.Close()
		if fmt.Sprint(got) != fmt.Sprint(test.statuses) {
			t.Errorf("%s: statuses %v, want %v", name, got, test.statuses)
		}
	}
	// Some clients disconnect in the middle of a request, or of an answer.
	whole := stored(opSet, "large", strings.Repeat("v", 1_000_000), 0, 0, 0).bytes() + strings.Repeat(packet{opcode: opGet, key: "large"}.bytes(), 30)
	for i := range 60 {
		c := dial(t, r.address)
		part := whole[:len(whole)*(i+1)/60]
		_ = c.SetDeadline(wait.Deadline())
		_, _ = io.WriteString(c.Conn, part)
		_ = c.Close()
	}
	wait.For(t, "all of them to be gone", func() error {
		if g, d, h := runtime.NumGoroutine(), openFiles(t), held(t, r); g > goroutines || d > descriptors || h != 0 {
			return fmt.Errorf("%d goroutines, %d before; %d descriptors, %d before; %d bytes are held", g, goroutines, d, descriptors, h)
		}
		return nil
	})
	if got := before.ask("get a\r\nstats\r\n"); !strings.Contains(got, "curr_connections 1\r\n") {
		t.Errorf("%q", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// A client that asks and doesn't read takes bounded memory; its answers are complete, or errors, when it
// reads.
func TestASlowBinaryReaderTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	const maxMemory = 16 << 20
	r := start(t, router.Config{ReadErrors: true, Loops: 1, MaxMemory: maxMemory}, members(t, 2)...)
	slow, other := dial(t, r.address), dial(t, r.address)
	value := strings.Repeat("v", 1_000_000)
	other.want("set large 0 0 1000000\r\n"+value+"\r\n", "STORED\r\n")
	const requests = 300
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(slow, strings.Repeat(packet{opcode: opGet, key: "large"}.bytes(), requests))
		sent <- err
	}()
	wait.For(t, "answers that are not read", func() error {
		if n := held(t, r); n < len(value) {
			return fmt.Errorf("%d bytes are held", n)
		}
		return nil
	})
	most := 0
	for range 200 {
		other.want("get nothing\r\n", "END\r\n")
		most = max(most, held(t, r))
	}
	if most > maxMemory+2<<20 {
		t.Errorf("the router held %d bytes", most)
	}
	_ = slow.SetDeadline(wait.Deadline())
	whole := 0
	for i := range requests {
		p, err := readPacket(slow.r)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		switch {
		case p.status == 0 && p.value == value:
			whole++
		case p.status != 0x82:
			t.Fatalf("answer %d: %v", i, p)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if whole < requests/10 {
		t.Errorf("%d of %d requests were answered", whole, requests)
	}
}

// Binary clients count as connections, and idle ones are closed. A client that reads no answers is idle, too.
func TestTooManyAndIdleBinaryConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{IdleTimeout: 300 * time.Millisecond}, all...)
	wait.For(t, "a client that is not idle before it asks", func() error {
		c := dial(t, r.address)
		_ = c.SetDeadline(wait.Deadline())
		_, sent := io.WriteString(c, packet{opcode: opGet, key: "a"}.bytes())
		if got, err := io.ReadAll(c.r); sent != nil || err != nil || len(got) == 0 {
			return fmt.Errorf("it is told %q: %w", got, errors.Join(sent, err))
		}
		return nil
	})
	silent := dial(t, r.address)
	_ = silent.SetDeadline(wait.Deadline())
	_, _ = io.WriteString(silent, stored(opSetQ, "large", strings.Repeat("v", 1_000_000), 0, 0, 0).bytes()+strings.Repeat(packet{opcode: opGet, key: "large"}.bytes(), 50)+packet{opcode: opQuit}.bytes())
	wait.For(t, "the silent one to be closed", func() error {
		c := dial(t, r.address)
		defer c.Close()
		_ = c.SetDeadline(wait.Deadline())
		_, _ = io.WriteString(c, "stats\r\nquit\r\n")
		if got, err := io.ReadAll(c.r); err != nil || !strings.Contains(string(got), "curr_connections 1\r\n") {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})

	r = start(t, router.Config{MaxConnections: 2}, all...)
	first, second := dial(t, r.address), dial(t, r.address)
	first.one(packet{opcode: opGet, key: "a"})
	second.one(packet{opcode: opGet, key: "a"})
	third := dial(t, r.address)
	if got, err := io.ReadAll(third.r); err != nil || string(got) != "ERROR Too many open connections\r\n" {
		t.Errorf("the third: %q, %v", got, err)
	}
	if all, closed := first.said(packet{opcode: opQuit}.bytes()); len(all) != 1 || !closed {
		t.Errorf("quit: %v, closed: %v", all, closed)
	}
	wait.For(t, "a place", func() error {
		c := dial(t, r.address)
		defer c.Close()
		_ = c.SetDeadline(wait.Deadline())
		if _, err := io.WriteString(c.Conn, packet{opcode: opNoop}.bytes()); err != nil {
			return err
		}
		_, err := readPacket(c.r)
		return err
	})
}

// A router that is told to end sends binary clients the answers to all of their requests, even if they read
// them later.
func TestARouterThatEndsAnswersBinaryClients(t *testing.T) {
	tier.Second(t, "TestARouterThatEndsAnswersWhatItWasAsked")
	t.Parallel()
	all := members(t, 1)
	r := start(t, router.Config{MemberTimeout: time.Minute, DrainTimeout: time.Minute}, all...)
	idle, busy, late := dial(t, r.address), dial(t, r.address), dial(t, r.address)
	idle.one(packet{opcode: opGet, key: "a"})
	value := strings.Repeat("v", 900_000)
	late.one(stored(opSet, "large", value, 0, 0, 0))
	busy.one(packet{opcode: opGet, key: "a"})
	all[0].Signal(syscall.SIGSTOP)
	const times = 8
	late.say(strings.Repeat(packet{opcode: opGet, key: "large"}.bytes(), times))
	busy.say(stored(opSet, "a", "x", 0, 0, 0).bytes() + packet{opcode: opGetK, key: "a"}.bytes())
	wait.For(t, "the requests to arrive", func() error {
		if n := r.Unanswered(); n != times+2 {
			return fmt.Errorf("%d requests are unanswered", n)
		}
		return nil
	})
	r.stop()
	if rest, err := io.ReadAll(idle.r); err != nil || len(rest) > 0 {
		t.Errorf("the idle one: %q, %v", rest, err)
	}
	all[0].Signal(syscall.SIGCONT)
	set, err := readPacket(busy.r)
	get, err2 := readPacket(busy.r)
	if errors.Join(err, err2) != nil || set.status != 0 || get.value != "x" {
		t.Errorf("the busy one: %v, %v, %v, %v", set, err, get, err2)
	}
	if rest, err := io.ReadAll(busy.r); err != nil || len(rest) > 0 {
		t.Errorf("the busy one is not closed: %q, %v", rest, err)
	}
	for i := range times {
		if p, err := readPacket(late.r); err != nil || p.value != value {
			t.Fatalf("answer %d to the one that reads late: %v, %v", i, p, err)
		}
	}
	if rest, err := io.ReadAll(late.r); err != nil || len(rest) > 0 {
		t.Errorf("the late one is not closed: %q, %v", rest, err)
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
