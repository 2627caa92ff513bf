package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/pace"
)

// A volume has one user at a time: its member, or the drainer after it. Kubernetes ensures that, unless a pod
// is deleted by force: then the pod is gone while its processes still run, for seconds, or for as long as the
// kubelet doesn't answer. So each user of a volume holds a lock on it, and the next one waits. memcached
// inherits its supervisor's lock.

const (
	// lockPatience is how long the next user waits before it fails and is started again.
	lockPatience = 2 * time.Minute
	lockInterval = 50 * time.Millisecond
)

// ErrInUse means that another pod's processes still hold the lock.
var ErrInUse = errors.New("the volume is still in use by an earlier pod")

// LockToServe locks the volume for a member. If the volume's file system has no locks, the member uses the
// volume without a lock. If the member may not read the lock file, that is an error.
func LockToServe(ctx context.Context, dir string, logf func(string, ...any)) (*os.File, error) {
	path := filepath.Join(dir, contract.LockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, os.ErrPermission) {
		// The file belongs to a member that ran as another user. Opening for reading suffices for a lock,
		// except on NFS, so reading is the second attempt.
		if file, err = openNow(path); errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("lock the volume: %w: if runAsUser was changed, change it back, or let the new user read this file", err)
		}
	}
	if err != nil {
		logf("the volume can't be locked, and is used without a lock: %v", err)
		return nil, nil
	}
	return await(ctx, file, unix.LOCK_EX, logf)
}

// LockToRead locks the volume for a drainer, which may not write to it. If there is no lock file, the
// member's version made none.
func LockToRead(ctx context.Context, dir string, logf func(string, ...any)) (*os.File, error) {
	file, err := openNow(filepath.Join(dir, contract.LockFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return await(ctx, file, unix.LOCK_SH, logf)
}

// await waits for the lock on the file and returns the file. The lock lasts until the file is closed here and
// in every child that inherited it.
func await(ctx context.Context, file *os.File, how int, logf func(string, ...any)) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, ErrInUse)
	defer cancel()
	for told := false; ; {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			logf("the volume can't be locked, and is used without a lock: %v", err)
			return file, nil
		case !told:
			logf("%v: waiting until that pod's processes have ended", ErrInUse)
			told = true
		}
		if pace.Sleep(ctx, lockInterval) != nil {
			return nil, errors.Join(fmt.Errorf("wait for the volume: %w", context.Cause(ctx)), file.Close())
		}
	}
}
