//go:build linux

package volume

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/wait"
)

// A pipe in place of a file on the volume blocks neither a drain nor the end of a member: opening it, or
// reading from it while another process may write to it, would block forever.
func TestAPipeInPlaceOfAFileBlocksNoReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{contract.LockFile, contract.ListFile} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	locked := make(chan error, 1)
	go func() {
		lock, err := LockToRead(context.Background(), dir, t.Logf)
		if err == nil {
			err = lock.Close()
		}
		locked <- err
	}()
	if err := wait.Receive(t, "the lock", locked); err != nil {
		t.Errorf("lock the volume: %v", err)
	}
	for _, written := range []bool{false, true} {
		if written {
			writer, err := os.OpenFile(filepath.Join(dir, contract.ListFile), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
		}
		read := make(chan error, 1)
		go func() {
			_, err := KeptList(dir)
			read <- err
		}()
		if err := wait.Receive(t, "the kept list", read); err == nil {
			t.Error("a pipe was read as a list")
		}
	}
}
