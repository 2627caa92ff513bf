//go:build linux

package router_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/wait"
)

// The kernel's buffers count in the memory of the router's container, and not in --max-memory.
func TestTheKernelKeepsLittleForAClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{Loops: 1}, members(t, 1)...)
	c := dial(t, r.address)
	c.want("set k 0 0 500000\r\n"+strings.Repeat("v", 500000)+"\r\n", "STORED\r\n")
	c.say(strings.Repeat("get k\r\n", 50))
	wait.For(t, "answers that the kernel doesn't take", func() error {
		if held := r.Report().Held; held < 500000 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
	const most = 1 << 20 // mostUnsent, and the bytes that are being sent
	if got := unacknowledged(t, r.address, c.LocalAddr().String()); got == 0 || got > most {
		t.Errorf("the kernel keeps %d bytes, want %d at most", got, most)
	}
}

// unacknowledged returns how many bytes the kernel keeps for the connection between two addresses of
// 127.0.0.1.
func unacknowledged(t *testing.T, from, to string) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	hex := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("0100007F:%04X", n)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[1] != hex(from) || f[2] != hex(to) {
			continue
		}
		queue, _, _ := strings.Cut(f[4], ":")
		n, err := strconv.ParseInt(queue, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("there is no connection from %s to %s", from, to)
	return 0
}
