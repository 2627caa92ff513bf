package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// spool is the folder of one member. Each file is in one of two folders: it waits, or it is consumed.
type spool struct {
	dir string
	mu  sync.Mutex
}

const (
	waiting  = "waiting"
	consumed = "consumed"
	// partial has files that are being written.
	partial = "partial"
)

// maxFile is the largest file that a member takes, in bytes.
const maxFile = 16 << 20

func open(dir string) (*spool, error) {
	for _, name := range []string{waiting, consumed, partial} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	return &spool{dir: dir}, nil
}

func (s *spool) path(folder, name string) string { return filepath.Join(s.dir, folder, name) }

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// ServeHTTP takes a file with PUT /NAME, and lists both folders with GET /.
func (s *spool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch name := r.URL.Path[1:]; {
	case r.Method == http.MethodGet && name == "":
		lists := map[string][]string{waiting: nil, consumed: nil}
		for folder := range lists {
			names, err := files(s.dir, folder)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			lists[folder] = names
		}
		_ = json.NewEncoder(w).Encode(lists)
	case r.Method == http.MethodPut && validName.MatchString(name):
		isNew, err := s.take(name, http.MaxBytesReader(w, r.Body, maxFile))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case isNew:
			w.WriteHeader(http.StatusCreated)
		}
	default:
		http.Error(w, "PUT /NAME or GET /", http.StatusBadRequest)
	}
}

// take stores a file, unless the member has it already. When take returns, the file outlives a crash
// of the node.
func (s *spool) take(name string, content io.Reader) (isNew bool, err error) {
	text, err := io.ReadAll(content)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, folder := range []string{waiting, consumed} {
		if _, err := os.Stat(s.path(folder, name)); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	f, err := os.Create(s.path(partial, name))
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(waiting, name))
	}
	if err != nil {
		return false, err
	}
	return true, syncFolder(filepath.Join(s.dir, waiting))
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// work consumes a file now and then.
func (s *spool) work(ctx context.Context, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		names, err := files(s.dir, waiting)
		if err == nil && len(names) > 0 {
			err = os.Rename(s.path(waiting, names[0]), s.path(consumed, names[0]))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// files are the names in one of the folders of a volume, in order.
func files(dir, folder string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
