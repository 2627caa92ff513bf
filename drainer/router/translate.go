package router

import (
	"bytes"
	"context"
	"net"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/binary"
	"example.com/memcached-operator/drainer/router/eventloop"
)

// translate starts goroutines that serve an application in the binary protocol, and talk to this client in text,
// over a pair of sockets. first are the bytes that the application has sent already.
func (c *client) translate(first []byte) {
	r := c.loop.router
	application, err := eventloop.Copy(c.fd)
	if err != nil {
		r.config.Logf("a client of the binary protocol can't be served: %v", err)
		c.gone()
		return
	}
	fd, text, err := eventloop.Pair()
	if err != nil {
		r.config.Logf("a client of the binary protocol can't be served, because no pair of sockets can be made: %v", err)
		_ = application.Close()
		c.gone()
		return
	}
	if !r.clients.Carry(eventloop.Binary, eventloop.BinaryFiles) {
		_ = application.Close()
		_ = text.Close()
		_ = unix.Close(fd)
		c.gone()
		return
	}
	counts := !c.carried // goroutines that carry the client already count it themselves
	c.talked, c.carried, c.binary = true, true, true
	first = bytes.Clone(first)
	r.goroutines.Go(func() {
		r.translate(application, first, text)
		r.clients.Carried(eventloop.Binary, eventloop.BinaryFiles)
		if counts {
			r.clients.Gone()
		}
	})
	c.loop.poller.Remove(c.fd)
	if c.open(c.loop, fd, c) != nil {
		c.gone()
	}
}

// translate serves an application until its connection or the router ends.
func (r *Router) translate(application net.Conn, first []byte, text *net.UnixConn) {
	stop := context.AfterFunc(r.serving, func() { _ = application.Close(); _ = text.Close() })
	defer stop()
	config := binary.Config{Wait: eventloop.Wait, MaxItem: r.config.MaxItem, Patience: r.config.IdleTimeout, Version: r.memberVersion}
	config.HalfClose = func(over <-chan struct{}) { eventloop.HalfClose(application, text, over, 2*r.config.LastWords) }
	if r.config.Logins != nil {
		config.Admits = r.logins.admit
	}
	w := eventloop.NewWriter(application, text)
	defer w.End()
	binary.Translate(w, first, text, config)
}
