package app

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	meta "example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// TestARequestIsSentAgain also shows that no request is sent again that was answered.
func TestARequestIsSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		// answers are those of each connection. The server closes a connection after its last answer, if late
		// is set when another request has come.
		answers [][]string
		late    bool
		resent  int64
		fails   bool
	}{
		"closed when idle":             {[][]string{{"1\r\n"}, {"2\r\n"}}, false, 1, false},
		"closed with a request unread": {[][]string{{"1\r\n"}, {"2\r\n"}}, true, 1, false},
		"closed twice":                 {[][]string{{"1\r\n"}, {}, {"2\r\n"}}, true, 2, false},
		"not closed":                   {[][]string{{"1\r\n", "2\r\n"}}, true, 0, false},
		"closed in the middle":         {[][]string{{"1\r\n", "2"}}, false, 0, true},
		"closed again and again":       {[][]string{{"1\r\n"}, {}, {}, {}, {}}, true, attempts - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &redialer{dial: meta.Dialer{AnyServer: true}.DialContext}
			client := memcache.New(serve(t, test.answers, test.late))
			client.DialContext, client.Timeout = r.DialContext, wait.Long
			if n, err := client.Increment("key", 1); n != 1 || err != nil {
				t.Fatalf("the first is %d, %v", n, err)
			}
			n, err := client.Increment("key", 1)
			if failed := err != nil; failed != test.fails || !failed && n != 2 {
				t.Errorf("the second is %d, %v", n, err)
			}
			if got := r.resent.Load(); got != test.resent {
				t.Errorf("%d requests were sent again, want %d", got, test.resent)
			}
		})
	}
}

// serve answers the requests of each connection, and closes it.
func serve(t *testing.T, connections [][]string, late bool) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for _, answers := range connections {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			for _, a := range answers {
				if _, err := r.ReadString('\n'); err != nil {
					break
				}
				_, _ = io.WriteString(conn, a)
			}
			if late {
				_, _ = r.Peek(1) // a request that is never read
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}
