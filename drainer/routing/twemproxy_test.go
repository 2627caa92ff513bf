package routing

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// This asks a running twemproxy, whose servers answer a get with their own number. One server in three has no
// alias, and one of those has memcached's own port.
func TestOwnersMatchTwemproxy(t *testing.T) {
	const binary = "/usr/sbin/nutcracker"
	_, err := exec.LookPath(binary)
	tier.Needs(t, "twemproxy", err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	keys := randomKeys(rand.New(rand.NewPCG(seed, 0)), manyKeys, "any", maxKey)
	if !tier.All() {
		keys = keys[:fewKeys]
	}
	for _, n := range []int{2, 10, 47, 120} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			if n != 10 {
				tier.Second(t, "TestOwnersMatchTwemproxy/10")
			}
			var config strings.Builder
			port := memcachedtest.FreePort(t)
			fmt.Fprintf(&config, "p:\n  listen: 127.0.0.1:%d\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 86400000\n  servers:\n", port)
			var servers []Server
			for i := range n {
				s := Server{Host: fmt.Sprintf("127.77.9.%d", i+1), Port: DefaultPort}
				s.Port = numberServer(t, s.Host, i)
				fmt.Fprintf(&config, "   - %s:%d:1", s.Host, s.Port)
				if i%3 != 0 {
					s.Name = member(i)
					config.WriteString(" " + s.Name)
				}
				config.WriteString("\n")
				servers = append(servers, s)
			}
			path := filepath.Join(t.TempDir(), "nutcracker.yml")
			if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary, "-c", path, "-s", strconv.Itoa(memcachedtest.FreePort(t)))
			if err := cmd.Start(); err != nil {
				t.Fatalf("Debian's package nutcracker is needed: %v", err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			compare(t, "twemproxy", []question{{servers, 0, len(keys)}}, keys, [][]int{askProxy(t, port, keys)})
		})
	}
}

// numberServer answers each get with number, and listens on memcached's port of host if i is 0 and the port is
// free.
func numberServer(t *testing.T, host string, number int) uint16 {
	t.Helper()
	address := host + ":0"
	if number == 0 {
		address = fmt.Sprintf("%s:%d", host, DefaultPort)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerNumber(conn, strconv.Itoa(number))
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func answerNumber(conn net.Conn, number string) {
	defer conn.Close()
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		key := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("get ")))
		fmt.Fprintf(out, "VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(number), number)
		if in.Buffered() == 0 {
			if out.Flush() != nil {
				return
			}
		}
	}
}

// askProxy gets keys in batches and reads which server answered.
func askProxy(t *testing.T, port int, keys [][]byte) []int {
	t.Helper()
	var conn net.Conn
	wait.For(t, "twemproxy to listen", func() (err error) {
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	defer conn.Close()
	_ = conn.SetDeadline(wait.Deadline())
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	var owners []int
	for len(keys) > 0 {
		batch := keys[:min(200, len(keys))]
		keys = keys[len(batch):]
		for _, key := range batch {
			fmt.Fprintf(out, "get %s\r\n", key)
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
		for range batch {
			var answer [3]string
			var err error
			for i := range answer {
				if answer[i], err = in.ReadString('\n'); err != nil {
					t.Fatalf("twemproxy answered %q: %v", answer, err)
				}
			}
			n, err := strconv.Atoi(strings.TrimSpace(answer[1]))
			if err != nil {
				t.Fatalf("twemproxy answered %q", answer)
			}
			owners = append(owners, n)
		}
	}
	return owners
}
