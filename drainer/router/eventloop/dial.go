package eventloop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/memcache"
)

// Pauses between two tries to connect to a member, with as much again at random.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// Members that are dialled.
type Members struct {
	Dialer memcache.Dialer
	// Timeout bounds a connection, with TLS and the login.
	Timeout time.Duration
	// Logf writes a line for people.
	Logf func(format string, args ...any)
}

// Loop is told of the connections to one member.
type Loop struct {
	// Connected has a socket to a member that says it is of that version; false if the loop has ended.
	Connected func(fd int, version string) bool
	// Failed says why there is none.
	Failed func(why string)
	// Places of the loop's members; nil if two may be at one.
	Places *Places
	// Doubted is the address of another member that may not be asked for now.
	Doubted func(address, why string)
}

// Keep gives a loop a connection to a member, and another one when it is lost, until ctx ends.
func (m *Members) Keep(ctx context.Context, address string, lost <-chan struct{}, loop Loop) {
	said := ""
	defer loop.Places.Leave(address)
	for wait := firstPause; ctx.Err() == nil; {
		fd, version, err := m.connect(ctx, address, &loop)
		if err != nil {
			why := err.Error()
			if why != said && ctx.Err() == nil {
				m.Logf("connect to member %s: %s", address, why)
				said = why
			}
			loop.Failed(why)
			select {
			case <-ctx.Done():
			case <-time.After(wait + rand.N(wait)):
			}
			wait = min(2*wait, lastPause)
			continue
		}
		if said != "" {
			m.Logf("connected to member %s", address)
			said = ""
		}
		if !loop.Connected(fd, version) {
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
func (m *Members) connect(ctx context.Context, address string, loop *Loop) (fd int, version string, err error) {
	connecting, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	conn, version, err := m.Dialer.DialMember(connecting, "tcp", address)
	if err != nil {
		loop.Places.Leave(address)
		return -1, "", err
	}
	if twin, why := loop.Places.Take(address, conn.RemoteAddr().String(), time.Now()); why != "" {
		if twin != "" {
			loop.Doubted(twin, why)
		}
		return -1, "", errors.Join(errors.New(why), conn.Close())
	}
	fd, err = HandOver(ctx, conn)
	return fd, version, err
}
