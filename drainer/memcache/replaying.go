package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
)

// A member that ended without a save starts empty, and its supervisor puts its items
// back by add. An older value that another add brings before them would stay. So such
// a memcached is told from others for as long as that takes, by a setting that goes
// with the process: it is there before the first connection, no client can flush or
// evict it, and a crash takes it away. The automatic crawler looks at so many items
// of a slab class at most, which is to say at all of them.
const (
	replaySetting = "lru_crawler_tocrawl"
	replayMark    = "4294967291"
)

// ErrReplaying means that a member puts back what it held before a crash, and must
// not be given, or asked for, anything that could be older than what is to come.
var ErrReplaying = errors.New("it puts back what it held before it ended without a save")

// ReplayingArgs are arguments for a memcached whose items are put back. An argument
// behind them that gives the same setting another value wins: nobody waits then.
func ReplayingArgs() []string { return []string{"-o", replaySetting + "=" + replayMark} }

// replaying returns ErrReplaying where the server says so.
func (c *Conn) replaying() error {
	settings, err := c.Stats("settings")
	if err == nil && settings[replaySetting] == replayMark {
		err = ErrReplaying
	}
	return err
}

// Replayed lets the server be like any other, from now on.
func (c *Conn) Replayed() error {
	if err := c.replaying(); !errors.Is(err, ErrReplaying) {
		return err
	}
	answer, err := c.roundTrip("lru_crawler tocrawl 0\r\n")
	if err == nil && string(answer) != "OK" {
		err = fmt.Errorf("%w to lru_crawler tocrawl: %.80q", ErrProtocol, answer)
	}
	return err
}

// settled returns ErrReplaying where the server puts items back; ctx bounds the
// question.
func settled(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := (&Conn{conn: conn, r: bufio.NewReader(conn)}).replaying()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
}
