package memcachedtest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// Endless begins an answer that is repeated until the other end closes the connection.
const Endless = "\x00endless"

// Fake listens until the test ends, and gives its own answer to each line: what another version of memcached has
// answered, or what none would. A data block is a line, too.
func Fake(tb testing.TB, answer func(line string) string) *Server {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReaderSize(conn, 64<<10); ; {
					line, err := r.ReadString('\n')
					if err != nil || !say(conn, answer(strings.TrimRight(line, "\r\n"))) {
						return
					}
				}
			}()
		}
	}()
	return &Server{Port: listener.Addr().(*net.TCPAddr).Port, tb: tb}
}

// say sends an answer, and tells whether the connection takes more.
func say(conn net.Conn, answer string) bool {
	text, endless := strings.CutPrefix(answer, Endless)
	if !endless {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
	text = strings.Repeat(text, 1000)
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return false
		}
	}
}
