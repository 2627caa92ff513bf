package cluster

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lock makes this the only program that changes the cluster. The lock is on the state directory, which the
// holder may remove.
func lock(ctx context.Context, report *Report) (release func(), err error) {
	waiting := false
	for {
		if err := os.MkdirAll(stateDir, 0o755); err != nil {
			return nil, err
		}
		directory, err := os.Open(stateDir)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(directory.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isStill(directory) {
			return func() { directory.Close() }, nil
		}
		directory.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		if !waiting && err != nil {
			report.say("another cluster-up or cluster-down is at work; waiting for it")
			waiting = true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.New("another cluster-up or cluster-down doesn't end; `ps ax | grep bin/cluster` shows it")
		}
	}
}

// isStill tells whether the open directory is still the one at the path.
func isStill(directory *os.File) bool {
	opened, err := directory.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(stateDir)
	return err == nil && os.SameFile(opened, current)
}
