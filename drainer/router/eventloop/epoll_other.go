//go:build !linux

package eventloop

import (
	"errors"
	"time"
)

// epoll is missing here, so that nothing below is ever called.
type epoll struct{}

func newEpoll() (epoll, error) {
	return epoll{}, errors.New("the router runs on Linux only: its event loops need epoll")
}

func (*epoll) wakeUp()       {}
func (*epoll) woken()        {}
func (*epoll) add(int) error { return nil }
func (*epoll) remove(int)    {}
func (*epoll) close()        {}

// Change what a socket is waited for.
func (p *Poller) Change(int, bool, bool) {}

// Wait for sockets.
func (p *Poller) Wait(List, time.Duration, func()) {}

// List of events for Wait.
type List struct{}

// NewList returns one.
func NewList() List { return List{} }
