//go:build linux

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
)

// asAnotherUser calls f as a user that doesn't own the volume's files, and that isn't root. A test that
// doesn't run as root owns the files; then the files give their owner no more rights than others.
func asAnotherUser(t *testing.T, lockFile string, f func()) {
	t.Helper()
	const another = 65534
	if os.Getuid() != 0 {
		info, err := os.Stat(lockFile)
		if err != nil {
			t.Fatal(err)
		}
		others := info.Mode().Perm() & 0o7
		if err := os.Chmod(lockFile, others<<6|others<<3|others); err != nil {
			t.Fatal(err)
		}
		f()
		return
	}
	for dir := filepath.Dir(lockFile); len(dir) > len(filepath.Dir(os.TempDir())); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil {
			err = os.Chmod(dir, info.Mode().Perm()|0o111)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(another); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// If spec.podTemplate.securityContext.runAsUser is changed, the lock file belongs to the previous user. The next
// member waits for the lock nevertheless.
func TestAMemberOfAnotherUserWaitsForTheLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, contract.LockFile)
	first, err := LockToServe(t.Context(), dir, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	asAnotherUser(t, path, func() {
		ctx, cancel := context.WithCancel(t.Context())
		var said []any
		second, err := LockToServe(ctx, dir, func(_ string, args ...any) {
			said = append(said, args...)
			cancel()
		})
		if err == nil {
			t.Errorf("it has the volume beside the first one (file %v): %v", second != nil, said)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if second, err = LockToServe(t.Context(), dir, t.Logf); err != nil {
			t.Errorf("the first one has ended: %v", err)
			return
		}
		other, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("the volume is not locked: %v", err)
		}
		if err := errors.Join(other.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A lock file that the member may not read may be locked by another process. The member doesn't start.
func TestAMemberThatMayNotReadTheLockFileDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, contract.LockFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asAnotherUser(t, path, func() {
		if _, err := LockToServe(t.Context(), dir, t.Logf); !errors.Is(err, os.ErrPermission) {
			t.Errorf("it starts: %v", err)
		}
	})
}
