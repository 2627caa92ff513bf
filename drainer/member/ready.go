package member

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/listen"
)

// A member is warm when its memcached has answered and nothing is left to replay. From then on the supervisor
// listens on a socket, as the sign for it: unlike a file, a socket ends with the process, and a Unix socket
// takes no port. The kubelet runs "drainer ready" until that has succeeded once.

// readySocket returns a name in the abstract namespace, which is the pod's.
func readySocket(port int) string { return "@memcached-operator-warm-" + strconv.Itoa(port) }

// announce shows that the member is warm, until ctx ends.
func (s *supervisor) announce(ctx context.Context) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", readySocket(s.Port))
	if err != nil {
		s.std.Logf("the kubelet can't be told that the member is warm: %v", err)
		return
	}
	if err := listen.Each(ctx, listener, func(conn net.Conn) { conn.Close() }); err != nil {
		s.std.Logf("the kubelet is no longer told that the member is warm: %v", err)
	}
}

// Ready returns an error unless the member on the port is warm.
func Ready(ctx context.Context, port int) error {
	const patience = time.Second
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", readySocket(port))
	if err != nil {
		return fmt.Errorf("the member is not warm yet: %w", err)
	}
	return conn.Close()
}
