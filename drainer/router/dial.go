package router

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/socket"
)

// Pauses between two tries to connect to a member, with as much again at random.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// keepConnected gives a loop a connection to a member, and another one when it is lost.
func (r *Router) keepConnected(ctx context.Context, l *loop, m *member, address string, lost <-chan struct{}) {
	said := ""
	for wait := firstPause; ctx.Err() == nil; {
		fd, version, err := r.connect(ctx, address)
		if err != nil {
			why := err.Error()
			if why != said && ctx.Err() == nil {
				r.config.Logf("connect to member %s: %s", address, why)
				said = why
			}
			l.poller.Post(func() { m.down = why })
			pause(ctx, wait+rand.N(wait))
			wait = min(2*wait, lastPause)
			continue
		}
		if said != "" {
			r.config.Logf("connected to member %s", address)
			said = ""
		}
		if !l.poller.Post(func() { m.attach(l, fd, version) }) {
			_ = unix.Close(fd)
			return
		}
		select {
		case <-lost:
		case <-ctx.Done():
		}
		wait = firstPause
	}
}

// connect returns a socket that a loop may have.
func (r *Router) connect(ctx context.Context, address string) (fd int, version string, err error) {
	connecting, cancel := context.WithTimeout(ctx, r.config.ConnectTimeout)
	defer cancel()
	conn, err := r.config.Dialer.DialContext(connecting, "tcp", address)
	if err != nil {
		return -1, "", err
	}
	if version, err = r.askVersion(conn); err != nil {
		_ = conn.Close()
		return -1, "", fmt.Errorf("ask for its version: %w", err)
	}
	fd, err = socket.HandOver(ctx, conn)
	return fd, version, err
}

// askVersion makes sure that there is a memcached that answers.
func (r *Router) askVersion(conn net.Conn) (version string, err error) {
	_ = conn.SetDeadline(time.Now().Add(r.config.ConnectTimeout))
	if _, err := io.WriteString(conn, "version\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReaderSize(conn, 256).ReadSlice('\n')
	if err != nil {
		return "", err
	}
	answer := string(line)
	version, ok := strings.CutPrefix(answer, "VERSION ")
	if !ok {
		return "", fmt.Errorf("it answered %.80q", answer)
	}
	r.version.Store(&answer)
	return version, conn.SetDeadline(time.Time{})
}
