//go:build !linux

package eventloop

import (
	"errors"
	"time"
)

// epoll doesn't exist on other systems: New returns an error, and the methods below are never called.
type epoll struct{}

func newEpoll() (epoll, error) {
	return epoll{}, errors.New("the router runs on Linux only: its event loops need epoll")
}

func (*epoll) wakeUp()       {}
func (*epoll) woken()        {}
func (*epoll) add(int) error { return nil }
func (*epoll) remove(int)    {}
func (*epoll) close()        {}

// Change is never called.
func (p *Poller) Change(int, bool, bool) {}

// Wait is never called.
func (p *Poller) Wait(List, time.Duration, func()) {}

// List is a buffer of events for Wait.
type List struct{}

// NewList returns an empty buffer.
func NewList() List { return List{} }
