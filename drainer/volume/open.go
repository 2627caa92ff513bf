// Package volume has the files on a member's volume: the warm file or its save, the manifest, the in-use
// note, and the generations that are kept for a replay. Package volume decides which of them can be trusted,
// and makes every durable change to them.
package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// Options of Open; the zero value is right outside of tests.
type Options struct {
	// Now is the clock that items expire by.
	Now func() time.Time
	// BootID is that of the running kernel.
	BootID string
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BootID == "" {
		o.BootID = BootID()
	}
	return o
}

// BootID returns an identifier of this boot of the kernel, "" if the system has none.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Open checks the metadata in dir and opens the warm file, or its save, read-only. An error that matches
// warmfile.ErrUnrecoverable says why it can't be read.
func Open(dir string, o Options) (*warmfile.Reader, error) {
	o = o.withDefaults()
	file, size, err := openFile(dir)
	if err != nil {
		return nil, err
	}
	r, err := open(file, size, dir, o)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	marks, err := openReplayed(dir)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if marks != nil {
		r.Replayed(marks)
	}
	return r, nil
}

// Incomplete returns why memcached can't resume from the save in dir although the save's pages are whole; nil
// if no page is missing, or there is no save. err is why that is unknown now.
func Incomplete(dir string) (why, err error) {
	s, err := openSave(dir)
	if err != nil {
		return nil, nil // Open returns the error
	}
	defer s.Close()
	if !s.CutShort() {
		return nil, nil
	}
	if err := s.Unknown(); err != nil {
		return nil, fmt.Errorf("look for the pages of a save that was cut short: %w", err)
	}
	missing, all := s.Lacks()
	if missing == 0 {
		return nil, nil
	}
	return fmt.Errorf("its save was cut short: %d of %d pages are missing", missing, all), nil
}

// Ended tells whether the save in dir has its end, and its writer knew of no failure: then it has everything
// that its warm file had.
func Ended(dir string) bool {
	s, err := openSave(dir)
	if err != nil {
		return false
	}
	ended := !s.CutShort()
	mark, err := ReadInUse(dir)
	return errors.Join(s.Close()) == nil && ended && (err != nil || mark.Unsaved == "" || s.Number <= mark.Number)
}

func open(file io.ReaderAt, size int64, dir string, o Options) (*warmfile.Reader, error) {
	e, err := weigh(dir, size, o.BootID)
	if err != nil {
		return nil, err
	}
	if s, ok := file.(*snapshot.Save); ok {
		if s.PageSize != e.image.SlabPageSize {
			return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save has pages of %d bytes, its memcached had %d", s.PageSize, e.image.SlabPageSize)
		}
		if items, counted := s.Items(); counted && e.clean {
			e.image.Items, e.image.ItemsExact = items, true
		}
	}
	return warmfile.New(file, size, &e.image, e.clean, o.Now)
}
