//go:build linux

package router_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/wait"
)

// arrived waits until all that was sent has arrived, read or not.
func arrived(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "what was sent to arrive", func() error {
		var unsent int
		var failed error
		if err := raw.Control(func(fd uintptr) { unsent, failed = linux.Unsent(int(fd)) }); err != nil {
			return err
		}
		if failed == nil && unsent > 0 {
			failed = fmt.Errorf("%d bytes are on their way", unsent)
		}
		return failed
	})
}

// A router that is told to end also answers what it has not read yet.
func TestARouterThatEndsAnswersWhatHasArrived(t *testing.T) {
	t.Parallel()
	const requests = 4000 // more than the router reads before it has answered some of them
	all := members(t, 1)
	r := start(t, router.Config{Loops: 1, MemberTimeout: time.Minute, DrainTimeout: time.Minute}, all...)
	idle, busy := dial(t, r.address), dial(t, r.address)
	idle.ask("get a\r\n")
	busy.ask("get a\r\n")
	all[0].Signal(syscall.SIGSTOP)
	busy.say(strings.Repeat("get a\r\n", requests))
	wait.For(t, "the first requests to arrive", func() error {
		if n := r.Unanswered(); n == 0 || n >= requests {
			return fmt.Errorf("%d requests are unanswered", n)
		}
		return nil
	})
	arrived(t, busy.Conn)
	r.stop()
	if rest, err := io.ReadAll(idle.r); err != nil || len(rest) > 0 { // it has begun to close connections
		t.Errorf("the idle one: %q, %v", rest, err)
	}
	all[0].Signal(syscall.SIGCONT)
	if got, err := io.ReadAll(busy.r); err != nil || strings.Count(string(got), "END\r\n") != requests {
		t.Errorf("%d answers, want %d: %v", strings.Count(string(got), "END\r\n"), requests, err)
	}
}

// A router that has ended its side of a connection carries out no later request, and resets no connection: a reset can
// take the last answer.
func TestWhatComesTooLateForARouterIsNotReset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secure := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, contract.CertFile), filepath.Join(dir, contract.KeyFile))
		return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, err
	}
	first, late := "get a\r\nmn\r\n", "set a 0 0 1\r\nx\r\n"
	binaryFirst, binaryLate := packet{opcode: opNoop}.bytes(), stored(opSet, "a", "x", 0, 0, 0).bytes()
	for name, test := range map[string]struct {
		tls         func() (*tls.Config, error)
		first, late string
		answers     int
	}{
		"plain":          {nil, first, late, len("END\r\nMN\r\n")},
		"TLS":            {secure, first, late, len("END\r\nMN\r\n")},
		"binary":         {nil, binaryFirst, binaryLate, len(binaryFirst)},
		"binary and TLS": {secure, binaryFirst, binaryLate, len(binaryFirst)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := members(t, 1)
			config := router.Config{TLS: test.tls, LastWords: time.Hour, DrainTimeout: time.Hour}
			if test.tls != nil {
				config.LastWords = 5 * time.Second // TLS has no end of one side that the connection below it shows
			}
			r := start(t, config, all...)
			plain, err := net.Dial("tcp", r.address)
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			conn := plain
			if test.tls != nil {
				conn = tls.Client(plain, &tls.Config{InsecureSkipVerify: true})
			}
			_ = conn.SetDeadline(wait.Deadline())
			c := over(t, conn)
			c.say(test.first)
			if _, err := io.ReadFull(c.r, make([]byte, test.answers)); err != nil {
				t.Fatal(err)
			}
			r.stop()
			if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
				t.Fatalf("%q, %v", rest, err)
			}
			for range 2 {
				c.say(test.late)
				arrived(t, plain)
			}
			if n, err := plain.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
				t.Errorf("%d bytes, %v", n, err)
			}
			_ = conn.Close()
			select {
			case err := <-r.ended:
				if r.ended <- nil; err != nil {
					t.Error(err)
				}
			case <-wait.Over():
				t.Error("it waits for a client that has gone")
			}
			direct := dial(t, all[0].Address())
			direct.want("get a\r\n", "END\r\n")
		})
	}
}

// Until it is their turn, clients of a router that ends are served, new ones, too. It ends when they have gone.
func TestARouterThatEndsServesOnUntilItsClientsGo(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1, Spread: time.Hour}, members(t, 1)...)
	first := dial(t, r.address)
	first.want("get a\r\n", "END\r\n")
	r.stop()
	wait.For(t, "it to be not ready", func() error {
		if r.Ready() == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	second := dial(t, r.address)
	for range 5000 { // so many that the loop looks at its connections meanwhile
		first.want("get a\r\n", "END\r\n")
		second.want("get a\r\n", "END\r\n")
	}
	first.Close()
	second.Close()
	select {
	case err := <-r.ended:
		if r.ended <- nil; err != nil {
			t.Error(err)
		}
	case <-wait.Over():
		t.Error("it waits, and no client is left")
	}
}
