package eventloop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// Pauses between two attempts to connect to a member; a random time of up to the same length is added.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// Members connects to members.
type Members struct {
	Dialer memcache.Dialer
	// Timeout bounds the time to connect, with TLS and the login.
	Timeout time.Duration
	// Logf logs a line for people.
	Logf func(format string, args ...any)
}

// Loop is how a loop learns of the connections to one member.
type Loop struct {
	// Connected is called with a socket to a member that reports that version; it returns false if the loop
	// has ended.
	Connected func(fd int, version string) bool
	// Failed is called with why there is no connection.
	Failed func(why string)
	// Places has the addresses of the loop's members; nil if two members may have the same one.
	Places *Places
	// Avoid is called with the address of another member that may not be asked for now.
	Avoid func(address, why string)
}

// Keep gives a loop a connection to a member, and another one when it is lost, until ctx ends.
func (m *Members) Keep(ctx context.Context, address string, lost <-chan struct{}, loop Loop) {
	said := ""
	holder := &Holder{address}
	defer loop.Places.Leave(holder)
	for wait := firstPause; ctx.Err() == nil; {
		fd, version, err := m.connect(ctx, holder, &loop)
		if err != nil {
			why := err.Error()
			if why != said && ctx.Err() == nil {
				m.Logf("can't connect to member %s: %s", address, why)
				said = why
			}
			loop.Failed(why)
			_ = pace.Sleep(ctx, wait+rand.N(wait))
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

// connect returns a socket for the loop.
func (m *Members) connect(ctx context.Context, holder *Holder, loop *Loop) (fd int, version string, err error) {
	connecting, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	conn, version, err := m.Dialer.DialMember(connecting, "tcp", holder.Address)
	if err != nil {
		loop.Places.Leave(holder)
		return -1, "", err
	}
	if twin, why := loop.Places.Take(holder, conn.RemoteAddr().String(), time.Now()); why != "" {
		if twin != "" {
			loop.Avoid(twin, why)
		}
		return -1, "", errors.Join(errors.New(why), conn.Close())
	}
	fd, err = HandOver(ctx, conn, m.Timeout)
	return fd, version, err
}
