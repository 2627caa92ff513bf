package router_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/wait"
)

// The memory of the goroutines that carry connections is bounded: half of the memory limits the connections
// with TLS and with the binary protocol, and plain ones are served in addition.
func TestTheMemoryOfConnectionsIsBounded(t *testing.T) {
	t.Parallel()
	const maxMemory = 1 << 20
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, contract.CertFile), filepath.Join(dir, contract.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	all := members(t, 1)
	secured := start(t, router.Config{Loops: 1, MaxMemory: maxMemory, TLS: func() (*tls.Config, error) { return config, nil }}, all...)
	plain := start(t, router.Config{Loops: 1, MaxMemory: maxMemory}, all...)
	for name, test := range map[string]struct {
		r       *running
		most    int
		connect func() (*conversation, error)
	}{
		"TLS": {secured, maxMemory / 2 / eventloop.TLS, func() (*conversation, error) {
			conn, err := tls.Dial("tcp", secured.address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return nil, err
			}
			return over(t, conn), nil
		}},
		"binary": {plain, maxMemory / 2 / eventloop.Binary, func() (*conversation, error) {
			c := dial(t, plain.address)
			c.say(packet{opcode: opVersion}.bytes())
			_, err := readPacket(c.r)
			return c, err
		}},
	} {
		var open []*conversation
		for len(open) <= test.most {
			c, err := test.connect()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		if len(open) != test.most {
			t.Errorf("%s: %d are connected, want %d", name, len(open), test.most)
		}
		wait.For(t, "what they take to be counted", func() error {
			if held := test.r.Report().Held; held < maxMemory/2*8/10 {
				return fmt.Errorf("%d", held)
			}
			return nil
		})
		for _, c := range open {
			_ = c.Close()
		}
		wait.For(t, "another one to be taken", func() error {
			c, err := test.connect()
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	dial(t, plain.address).want("get a\r\n", "END\r\n")
}

// An event loop waits for no file: the logins are read by another goroutine, however many logins are tried.
func TestALoginReadsNoFile(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	var fails atomic.Bool
	r := start(t, router.Config{Loops: 1, Logins: func() ([]contract.Login, error) {
		reads.Add(1)
		if fails.Load() {
			return nil, errors.New("no such file")
		}
		return logins()
	}}, members(t, 1)...)
	c := dial(t, r.address)
	before := reads.Load()
	text := ""
	for range 500 {
		text += "set login 0 0 9\r\napp wrong\r\n"
	}
	c.say(text + "set login 0 0 10\r\napp secret\r\nmn\r\n")
	c.until("STORED")
	if n := reads.Load() - before; n > 250 {
		t.Errorf("500 attempts read the logins %d times", n)
	}
	fails.Store(true)
	wait.For(t, "no login to be accepted", func() error {
		d := dial(t, r.address)
		d.say("set login 0 0 10\r\napp secret\r\n")
		if line, _ := d.r.ReadString('\n'); line == "STORED\r\n" {
			return errors.New(line)
		}
		return nil
	})
}
