package member

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// A member is warm when its memcached has answered and nothing that can be replayed is
// left. From then on the supervisor listens on a socket, which says so: unlike a file,
// it ends with the process, and it takes no port. The kubelet asks by "drainer ready"
// until that has succeeded once.

// readySocket is in the abstract namespace, which is the pod's.
func readySocket(port int) string { return "@memcached-operator-warm-" + strconv.Itoa(port) }

// announce says that the member is warm, until ctx ends.
func (s *supervisor) announce(ctx context.Context) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", readySocket(s.Port))
	if err != nil {
		s.std.Logf("nobody can be told that the member is warm: %v", err)
		return
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// Ready fails until the member on the port is warm.
func Ready(ctx context.Context, port int) error {
	const patience = time.Second
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", readySocket(port))
	if err != nil {
		return fmt.Errorf("the member is not warm yet: %w", err)
	}
	return conn.Close()
}
