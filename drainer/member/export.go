package member

import (
	"context"
	"net"
	"strconv"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
)

// export streams items that others own to the movers, until ctx ends. Without a stream, movers ask memcached
// for each item.
func (s *supervisor) export(ctx context.Context, address string) {
	if s.ExportPort == 0 {
		return
	}
	select {
	case <-s.manifest.answered:
	case <-ctx.Done():
		return
	}
	at := net.JoinHostPort(listenHost(s.Command, ""), strconv.Itoa(s.ExportPort))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		if ctx.Err() == nil {
			s.std.Logf("items can't be streamed to movers, so moves take longer: %v", err)
		}
		return
	}
	server := export.Server{
		Memcached:     export.Memcached{Dialer: s.Dialer, Address: address, PID: s.child.pid, Path: s.path(contract.WarmFile), Command: s.Command},
		VerifyClients: s.verifiesClients(),
		Logf:          s.std.Logf,
		Silence:       s.silence.now,
	}
	server.Serve(ctx, listener)
}
