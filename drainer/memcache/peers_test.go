package memcache_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// The peers are the clients that have sent a command recently; the three with the most connections are named
// by address. This connection isn't one of them.
func TestThePeersThatCallMostAreNamed(t *testing.T) {
	s := memcachedtest.Start(t)
	own, err := memcache.Dial(t.Context(), s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	expect := func(want string) {
		t.Helper()
		wait.For(t, "the peers", func() error {
			peers, err := own.Peers(time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := peers.String(); got != want {
				return &net.AddrError{Err: "want " + want, Addr: got}
			}
			return nil
		})
	}
	expect("")
	for address, n := range map[string]int{"127.0.0.2": 1, "127.0.0.3": 3, "127.0.0.4": 2, "127.0.0.5": 1, "127.0.0.6": 1} {
		for range n {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
			conn, err := d.DialContext(t.Context(), "tcp", s.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	expect("; connections: 127.0.0.3 (3), 127.0.0.4 (2), 127.0.0.2 (1) and 2 more addresses")
	numbers, one := []int{}, 0
	if _, err := own.Peers(time.Hour, func(conn int) bool { numbers = append(numbers, conn); return false }); err != nil {
		t.Fatal(err)
	}
	for _, number := range numbers {
		peers, err := own.Peers(time.Hour, func(conn int) bool { return conn == number })
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(peers.String(), " (1)") {
			one++
		}
	}
	if one != 8 {
		t.Errorf("%d of 8 connections are accepted by their numbers", one)
	}
}

// An answer that isn't one is an error, and an invalid address is left out.
func TestPeersOfAServerThatSaysAnything(t *testing.T) {
	for answer, want := range map[string]string{
		"STAT 1:addr tcp:[fe80::1]:5\r\nSTAT 1:secs_since_last_cmd 3\r\nEND\r\n":                                                                 "",
		"STAT 1:addr tcp:10.0.0.1\r\nSTAT 1:secs_since_last_cmd 3\r\nSTAT x\r\nSTAT  \r\nSTAT 1:addr\r\nSTAT 1:secs_since_last_cmd 3\r\nEND\r\n": "",
		"ERROR\r\n": "unexpected answer",
		"STAT 1:addr " + strings.Repeat("x", 1<<20): "unexpected answer",
	} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			if conn, err := listener.Accept(); err == nil {
				defer conn.Close()
				_, _ = conn.Write([]byte(answer))
				_, _ = conn.Read(make([]byte, 100))
			}
		}()
		conn, err := memcache.Dialer{AnyServer: true}.Dial(t.Context(), listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = conn.Peers(time.Minute, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", answer, err)
		}
	}
}

// A bounded number of addresses is kept, for any answer of a server.
func TestPeersWithoutEnd(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		w := bufio.NewWriter(conn)
		for i := range 1 << 14 {
			fmt.Fprintf(w, "STAT %d:addr tcp6:[fe80::%x%%%s]:1\r\nSTAT %d:secs_since_last_cmd 0\r\n", i, i+1, strings.Repeat("z", 100), i)
		}
		fmt.Fprint(w, "END\r\n")
		_ = w.Flush()
		_, _ = conn.Read(make([]byte, 100))
	}()
	conn, err := memcache.Dialer{AnyServer: true}.Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peers, err := conn.Peers(time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "; connections: fe80::1 (1), fe80::2 (1), fe80::3 (1) and more than 4093 more addresses"
	if got := peers.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
