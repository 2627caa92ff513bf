package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// Every connection to a member first asks for its version: a member that is too old is sent nothing else.
func TestAMemberThatIsTooOldIsAskedNothingElse(t *testing.T) {
	t.Parallel()
	const replace = "ms AG5vYm9keSBoYXMgdGhpcw0K 1 MR b"
	tests := map[string]struct {
		answers map[string]string
		asked   string
		ok      bool
	}{
		"1.5.22":           {map[string]string{"version": "VERSION 1.5.22"}, "version", false},
		"1.6.9":            {map[string]string{"version": "VERSION 1.6.9"}, "version", false},
		"1.6.12":           {map[string]string{"version": "VERSION 1.6.12"}, "version", false},
		"1.6.13":           {map[string]string{"version": "VERSION 1.6.13"}, "version", true},
		"1.6.13 of others": {map[string]string{"version": "VERSION 1.6.13_beta1"}, "version", true},
		"1.7.0":            {map[string]string{"version": "VERSION 1.7.0"}, "version", true},
		"a version that is no number, in the final form":     {map[string]string{"version": "VERSION UNKNOWN", "0": "NS", "mn": "MN"}, "version " + replace + " 0 mn", true},
		"a version that is no number, in an earlier form":    {map[string]string{"version": "VERSION UNKNOWN", replace: "CLIENT_ERROR bad data chunk", "0": "ERROR", "mn": "MN"}, "version " + replace + " 0 mn", false},
		"a version that is no number, without meta commands": {map[string]string{"version": "VERSION UNKNOWN", replace: "ERROR", "0": "ERROR", "mn": "ERROR"}, "version " + replace + " 0 mn", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			address := listen(t, func(c net.Conn) {
				var all []string
				for lines := bufio.NewScanner(c); lines.Scan(); {
					line := strings.TrimSpace(lines.Text())
					if all = append(all, line); test.answers[line] != "" {
						_, _ = io.WriteString(c, test.answers[line]+"\r\n")
					}
				}
				asked <- strings.Join(all, " ")
			})
			c, err := memcache.Dial(wait.Context(t), address)
			if ok := err == nil; ok != test.ok || !ok && !errors.Is(err, memcache.ErrTooOld) {
				t.Errorf("it is connected: %v, %v", ok, err)
			}
			if err == nil {
				_ = c.Close()
			}
			if got := wait.Receive(t, "what it was asked", asked); got != test.asked {
				t.Errorf("it was asked %q, want %q", got, test.asked)
			}
		})
	}
}

// The same holds for the memcached of Debian 11.
func TestARealMemberThatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	s := memcachedtest.StartSuite(t, "bullseye")
	w := memcache.NewWriter(memcache.Options{Address: s.Address(), UnreachableTimeout: wait.Long})
	if err := w.Connect(t.Context()); !errors.Is(err, memcache.ErrTooOld) || !errors.Is(err, memcache.ErrProtocol) {
		t.Errorf("a writer: %v", err)
	}
	if _, err := (memcache.Dialer{Settled: true}).Dial(t.Context(), s.Address()); !errors.Is(err, memcache.ErrTooOld) || !strings.Contains(err.Error(), "1.6.9") {
		t.Errorf("a mover: %v", err)
	}
}

// listen calls serve for each connection.
func listen(t *testing.T, serve func(c net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// A dial that is given up at the moment at which the member hangs up ends with an error.
func TestADialEndsAsTheMemberHangsUp(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	giveUp := make(chan context.CancelFunc, 1)
	defer close(giveUp)
	go func() {
		for cancel := range giveUp {
			if conn, err := listener.Accept(); err == nil {
				conn.Close()
			}
			cancel()
		}
	}()
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		giveUp <- cancel
		if conn, _, err := (memcache.Dialer{}).DialMember(ctx, "tcp", listener.Addr().String()); err == nil {
			conn.Close()
			t.Fatal("a member that says nothing was taken for one")
		}
	}
}
