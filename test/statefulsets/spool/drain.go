package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"example.com/memcached-operator/test/statefulsets/drainer"
)

type drain struct {
	dir string
	// unreachable is how long a member that does not answer is waited for.
	unreachable time.Duration
	progress    drainer.Progress
	count       drainer.Count
}

// run gives each file that waits to a member that stays, and then removes it here. A file goes to the
// same member in each attempt, so that the member knows it.
func (d *drain) run(ctx context.Context, members string) error {
	to, err := survivors(members)
	if err != nil {
		return err
	}
	lock, err := drainer.Lock(filepath.Join(d.dir, ".drain.lock"), time.Minute)
	if err != nil {
		return err
	}
	defer lock.Close()
	names, err := files(d.dir, waiting)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a member that has never started has no folder
		return err
	}
	d.count.Found = len(names)
	d.progress.Print(d.count)
	for _, name := range names {
		file := filepath.Join(d.dir, waiting, name)
		member := to[int(crc32.ChecksumIEEE([]byte(name))%uint32(len(to)))]
		var isNew bool
		err := drainer.Retry(ctx, d.unreachable, func() (err error) {
			isNew, err = give(ctx, file, member)
			return err
		})
		if err == nil {
			err = os.Remove(file)
		}
		switch {
		case err != nil:
			return fmt.Errorf("give file %s to %s: %w", name, member, err)
		case isNew:
			d.count.Moved++
		default:
			d.count.Skipped++
		}
		d.progress.Print(d.count)
	}
	return nil
}

// give sends the file to the member. isNew is false if the member had it already.
func give(ctx context.Context, file, member string) (isNew bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+member+"/"+filepath.Base(file), bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	answer, err := (&http.Client{Timeout: time.Minute}).Do(request)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(answer.Body, 256))
	switch answer.StatusCode {
	case http.StatusCreated:
		return true, nil
	case http.StatusOK:
		return false, nil
	}
	return false, fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(why))
}
