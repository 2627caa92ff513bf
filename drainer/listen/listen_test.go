package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"example.com/memcached-operator/test/wait"
)

// Failures of the kernel end no loop; the end of ctx and a closed listener do.
func TestALoopEndsWithItsContextOrItsListener(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(l net.Listener, cancel context.CancelFunc)
		want error
	}{
		"the context":  {func(_ net.Listener, cancel context.CancelFunc) { cancel() }, nil},
		"the listener": {func(l net.Listener, _ context.CancelFunc) { _ = l.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- Each(ctx, &failing{plain, []error{syscall.ENFILE, syscall.ENOBUFS}}, func(conn net.Conn) {
					_, _ = io.WriteString(conn, "ok")
					_ = conn.Close()
				})
			}()
			conn, err := net.Dial("tcp", plain.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(wait.Deadline())
			if said, err := io.ReadAll(conn); err != nil || string(said) != "ok" {
				t.Errorf("%q, %v", said, err)
			}
			test.end(plain, cancel)
			if err := wait.Receive(t, "the loop's end", ended); !errors.Is(err, test.want) {
				t.Errorf("it ended with %v, want %v", err, test.want)
			}
			if _, err := plain.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is still open: %v", err)
			}
		})
	}
}
