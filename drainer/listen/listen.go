// Package listen accepts connections: it outlives errors of the kernel that last a moment, and serves HTTP
// within bounds.
package listen

import (
	"context"
	"errors"
	"net"
	"time"
)

// rest is how long a listener that fails is left alone.
const rest = 100 * time.Millisecond

// Accept returns the next connection. Accept fails only when the listener is closed. Other errors of a connection pass
// (its client is gone, there is no memory or no open file for it): failed, which may be nil, is told of them, and
// Accept tries again.
func Accept(l net.Listener, failed func(error)) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if failed != nil {
			failed(err)
		}
		time.Sleep(rest)
	}
}

// Each calls do with each connection until ctx ends, and closes the listener then. Each returns an error if the
// listener was closed before that.
func Each(ctx context.Context, l net.Listener, do func(net.Conn)) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := Accept(l, nil)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		do(conn)
	}
}
