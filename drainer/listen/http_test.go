package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"example.com/memcached-operator/test/wait"
)

// Clients that open connections and send nothing, or half of a request, keep no other client out, and the
// number of connections stays bounded.
func TestManyConnectionsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	bounded := Bounded(plain).(*bounded)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(bounded) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("it ended: %v", err)
		}
	})
	closed := make(chan error, 3*most)
	for range 3 * most {
		c, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	answer, err := http.Get("http://" + plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	bounded.mu.Lock()
	open := len(bounded.open)
	bounded.mu.Unlock()
	if open > most {
		t.Errorf("%d are open, want %d at most", open, most)
	}
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s", answer.Status)
	}
	for range 2 * most {
		if err := wait.Receive(t, "the end of the oldest ones", closed); err == nil {
			t.Error("half of a request was answered")
		}
	}
}

// failing is a listener whose first connections fail.
type failing struct {
	net.Listener
	why []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.why) > 0 {
		err := f.why[0]
		f.why = f.why[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return f.Listener.Accept()
}

// A connection that the kernel can't make does not end the server.
func TestAConnectionThatFailsEndsNoServer(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(Bounded(&failing{plain, []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE, syscall.EPROTO, syscall.EPERM}}))
	}()
	answer, err := http.Get("http://" + plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := wait.Receive(t, "the server's end", ended); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it ended: %v", err)
	}
}
