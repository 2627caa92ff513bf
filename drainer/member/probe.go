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
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+contract.ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !s.pulse.answers(time.Now()):
			http.Error(w, "memcached does not answer", http.StatusServiceUnavailable)
		case s.aside():
			http.Error(w, "the member is out of the ring, and may be evicted", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET "+contract.CertificatePath, s.Dialer.CertificateHandler(func() error { return s.Dialer.Check(s.usages()...) }))
	if s.StepFile != "" {
		mux.HandleFunc("GET "+contract.StepPath, s.answerStep)
	}
	s.serveHTTP(ctx, s.ProbePort, "the kubelet's probe", mux)
}

// serveHTTP serves at a port until ctx ends, or not at all if the port is 0. what names the service, for the
// log.
func (s *supervisor) serveHTTP(ctx context.Context, port int, what string, handler http.Handler) {
	if port == 0 {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		s.std.Logf("%s can't be answered: %v", what, err)
		return
	}
	server := listen.HTTP(handler)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listen.Bounded(listener)); !errors.Is(err, http.ErrServerClosed) {
		s.std.Logf("%s is no longer answered: %v", what, err)
	}
}
