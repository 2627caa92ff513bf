package memcache

import (
	"errors"
	"fmt"
)

// A member that ended without a save starts empty, and its supervisor restores its items by add. If another
// add brought an older value first, that value would stay. So a setting marks such a memcached until the end
// of its replay. The mark is set before the first connection, no client can flush or evict it, and it ends
// with the process. The setting is how many items of a slab class the automatic crawler looks at; the mark's
// value is so large that it means all of them.
const (
	replaySetting = "lru_crawler_tocrawl"
	replayMark    = "4294967291"
)

// ErrReplaying means that a member is restoring its items after a crash. Until the end of the replay, nothing
// may be moved to the member or from it: moved items could be older than those that are still to be restored.
var ErrReplaying = errors.New("it puts back what it held before it ended without a save")

// ReplayingArgs returns the arguments for a memcached whose items are restored. If a later argument sets
// another value, drains and moves don't wait.
func ReplayingArgs() []string { return []string{"-o", replaySetting + "=" + replayMark} }

// replaying returns ErrReplaying if the server has the mark.
func (c *Conn) replaying() error {
	settings, err := c.Stats("settings")
	if err == nil && settings[replaySetting] == replayMark {
		err = ErrReplaying
	}
	return err
}

// Replayed removes the mark from the server.
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
