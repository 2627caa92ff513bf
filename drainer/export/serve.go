package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/listen"
	"example.com/memcached-operator/drainer/memcache"
)

const (
	// mostConns bounds the open connections. begin is how long a connection may take to send its request. If
	// there are too many, the one that has been silent for longest is closed, so that a mover gets in.
	mostConns = 8
	begin     = 10 * time.Second
	// complainEvery, and the length of a line, bound the log: any client may connect, and an error may quote
	// much of a client's text.
	complainEvery = time.Second
)

// Server streams the items of one memcached. There is one stream at a time: a new one ends the previous one,
// whose mover may be gone.
type Server struct {
	Memcached
	// VerifyClients means that the mover must have a certificate, as memcached's clients must.
	VerifyClients bool
	Logf          func(format string, args ...any)
	// Silence, if not nil, returns the silence of memcached's clients; nil if that is not known.
	Silence func() *Silence

	mu     sync.Mutex
	newest context.CancelFunc
	done   chan struct{} // closed at the newest stream's end
	// silent are connections that have not sent their request yet, the oldest first.
	silent     []net.Conn
	complained time.Time
}

// Serve serves movers until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	free := make(chan struct{}, mostConns)
	_ = listen.Each(ctx, listener, func(conn net.Conn) { // no other goroutine closes the listener
		select {
		case free <- struct{}{}:
		default:
			s.closeSilent()
			select {
			case free <- struct{}{}:
			case <-time.After(time.Second):
				conn.Close()
				return
			}
		}
		s.isSilent(conn, true)
		conns.Go(func() {
			defer func() { <-free }()
			defer s.isSilent(conn, false)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := s.serve(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
				s.complain(conn, err)
			}
		})
	})
}

func (s *Server) complain(conn net.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.complained) >= complainEvery {
		s.complained = time.Now()
		s.Logf("a stream to %s ended early: %.300v", conn.RemoteAddr(), err)
	}
}

// closeSilent closes the connection that has been silent for longest.
func (s *Server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.silent) > 0 {
		s.silent[0].Close()
	}
}

// isSilent records whether a connection has yet to send its request.
func (s *Server) isSilent(conn net.Conn, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = slices.DeleteFunc(s.silent, func(c net.Conn) bool { return c == conn })
	if silent {
		s.silent = append(s.silent, conn)
	}
}

// serve serves one mover.
func (s *Server) serve(ctx context.Context, conn net.Conn) error {
	accepted := conn
	if err := conn.SetDeadline(time.Now().Add(begin)); err != nil {
		return err
	}
	if s.Dialer.TLSDir != "" {
		config, err := s.Dialer.ServerTLS(s.VerifyClients)
		if err != nil {
			return err
		}
		conn = tls.Server(conn, config)
	}
	r := bufio.NewReaderSize(conn, MaxLine)
	request, err := s.greet(conn, r)
	s.isSilent(accepted, false)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, release := s.alone(ctx)
	defer release()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return s.stream(ctx, request, conn, r)
}

// alone ends the previous stream, and waits for its end.
func (s *Server) alone(ctx context.Context) (own context.Context, release func()) {
	own, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.mu.Lock()
	before, beforeDone := s.newest, s.done
	s.newest, s.done = cancel, done
	s.mu.Unlock()
	if before != nil {
		before()
		<-beforeDone
	}
	return own, func() {
		cancel()
		close(done)
	}
}

// greet answers until the mover has logged in and sent its request.
func (s *Server) greet(conn net.Conn, r *bufio.Reader) (*Request, error) {
	welcome := s.Dialer.AuthFile == ""
	const mostLines = 8
	for range mostLines {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		asked, isExport := bytes.CutPrefix(line, []byte(Export))
		answer := "ERROR"
		switch {
		case isExport && welcome:
			var request Request
			if err := json.Unmarshal(asked, &request); err != nil {
				return nil, errors.Join(fmt.Errorf("a malformed request: %w", err), write(conn, "CLIENT_ERROR "+err.Error()))
			}
			return &request, nil
		case bytes.HasPrefix(line, []byte("set ")) && !welcome:
			if welcome, err = memcache.Admit(strings.Fields(string(line)), r, s.Dialer.Logins); err != nil {
				return nil, err
			}
			if answer = "STORED"; !welcome {
				return nil, errors.Join(errors.New("a login was refused"), write(conn, "CLIENT_ERROR authentication failure"))
			}
		case !welcome:
			answer = "CLIENT_ERROR unauthenticated"
		case string(line) == "version":
			answer = "VERSION export"
		}
		if err := write(conn, answer); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("a mover has sent no request")
}

func write(conn net.Conn, line string) error {
	_, err := io.WriteString(conn, line+"\r\n")
	return err
}

// stream answers a request, and then makes a pass for each line that asks for one.
func (s *Server) stream(ctx context.Context, request *Request, conn net.Conn, r *bufio.Reader) error {
	st, err := newStream(ctx, s.Memcached, request, conn)
	if err != nil {
		return errors.Join(err, write(conn, "SERVER_ERROR "+strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	defer st.close()
	answer := Hello{Version: st.image.Version, Expected: st.survey.expected}
	if s.Silence != nil {
		answer.Silence = s.Silence()
	}
	hello, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	if err := write(conn, OK+string(hello)); err != nil {
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if string(bytes.TrimRight(line, "\r\n")) != Pass {
			return fmt.Errorf("a mover has sent an unknown request: %.40q", line)
		}
		if err := st.pass(ctx); err != nil {
			return err
		}
	}
}
