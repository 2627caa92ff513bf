package member

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/listen"
)

// The kubelet's probe of a TCP port opens a connection and closes it. If memcached uses TLS, each probe is a
// failed handshake, which memcached counts. In that case the supervisor answers the kubelet by plain HTTP,
// and knows from its own connection whether memcached answers.

// answerProbes answers until ctx ends.
func (s *supervisor) answerProbes(ctx context.Context) {
	if s.ProbePort == 0 {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(s.ProbePort)))
	if err != nil {
		s.std.Logf("the kubelet's probe can't be answered: %v", err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+contract.ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		if !s.pulse.answers(time.Now()) {
			http.Error(w, "memcached does not answer", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET "+contract.CertificatePath, s.Dialer.CertificateHandler(func() error { return s.Dialer.Check(s.usages()...) }))
	server := listen.HTTP(mux)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listen.Bounded(listener)); !errors.Is(err, http.ErrServerClosed) {
		s.std.Logf("the kubelet's probe is no longer answered: %v", err)
	}
}
