package cli_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/wait"
)

// A router that may have few open files keeps some: clients, however many, keep it from no member, no table and no
// question of the kubelet.
func TestClientsLeaveOpenFilesForMembersAndTables(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secured), func(t *testing.T) {
			t.Parallel()
			const most = 300
			a, b := memcachedtest.Start(t), memcachedtest.Start(t)
			path := filepath.Join(t.TempDir(), "ring")
			table := func(number int64, members ...*memcachedtest.Server) {
				ring := contract.Ring{Client: "gomemcache"}
				for _, m := range members {
					ring.Servers = append(ring.Servers, m.Address())
				}
				writeRing(t, path, contract.RingTable{Number: number, State: contract.RingStable, New: ring})
			}
			table(1, a)
			args := []string{"--threads=2", "--linger=0s", "--failed-reads=error", "--ring-file=" + path}
			if secured {
				dir := t.TempDir()
				for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
					if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				args = append(args, "--client-tls-dir="+dir)
			}
			r := routeWith(t, fmt.Sprintf("%s=%d", filesVariable, most), args...)
			r.WaitFor(fmt.Sprintf("the process may have %d open files", most))
			var taken []net.Conn
			get := func(c net.Conn) error {
				if _, err := io.WriteString(c, "get k\r\n"); err != nil {
					return err
				}
				line, err := bufio.NewReader(c).ReadString('\n')
				if err == nil && line != "END\r\n" {
					err = errors.New(line)
				}
				return err
			}
			for range most + 50 {
				conn, err := net.DialTimeout("tcp", r.address, wait.Long)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				_ = conn.SetDeadline(wait.Deadline())
				if secured {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				if get(conn) == nil {
					taken = append(taken, conn)
				}
			}
			if n := len(taken); n < 30 || n >= most {
				t.Errorf("%d of %d connections are taken", n, most)
			}
			a.Kill()
			a.Restart()
			wait.For(t, "the member to be asked again", func() error { return get(taken[0]) })
			table(2, a, b)
			r.says(t, "the next table", 2, false)
			wait.For(t, "the new member to be reached", func() error {
				_, err := r.get("/ready")
				return err
			})
		})
	}
}
