package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"example.com/memcached-operator/drainer/linux"

	"example.com/memcached-operator/drainer/warmfile"
)

// Save reads a save as if it were the warm file itself. A page is checked the first time that any part of it
// is read. A missing page reads as zeros, as an unused one does; see Missing.
type Save struct {
	Header
	file  io.ReaderAt
	index *index

	mu      sync.Mutex
	checked []bool
	begun   bool // a page has been read
	// direct reads the file past the page cache; nil before the first whole page is read.
	direct io.ReaderAt
	// page is the used page that was checked last; held is its offset.
	page []byte
	held int64
}

// read checks a save, but not its pages.
func read(file io.ReaderAt, size int64) (*Save, error) {
	h, sum, end, err := readHeader(file, size)
	if err != nil {
		return nil, err
	}
	s := &Save{Header: *h, file: file, checked: make([]bool, h.pages()), held: -1}
	if s.index, err = newIndex(file, size, &s.Header, sum, end); err != nil {
		return nil, err
	}
	return s, nil
}

// CutShort tells whether the save's end is missing, because its writer was killed or the disk failed.
func (s *Save) CutShort() bool { return !s.index.complete }

// Missing tells whether the page at an offset of the warm file was used, and is missing or damaged in the
// save.
func (s *Save) Missing(offset int64) (bool, error) {
	page := int(offset / int64(s.PageSize))
	if page < 0 || page >= s.pages() || !s.uses(page) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked[page] {
		if err := s.hold(page, int64(page)*int64(s.PageSize)); err != nil {
			return false, err
		}
	}
	_, ok := s.index.place(page)
	return !ok, nil
}

// Lacks returns how many of the used pages are missing. The number is exact after all pages have been read: a
// damaged page is found when it is read.
func (s *Save) Lacks() (missing, all int) {
	if s.index.rebuild() != nil {
		return 0, int(s.usedPages())
	}
	return s.index.missing(), int(s.usedPages())
}

// Unknown returns why the missing pages can't be determined now; nil if they can.
func (s *Save) Unknown() error {
	return s.index.rebuild()
}

// Items returns how many items begin in the pages of the save; false if the save lacks pages or doesn't have
// the number.
func (s *Save) Items() (int64, bool) {
	if missing, _ := s.Lacks(); missing > 0 || s.index.err != nil {
		return 0, false
	}
	return s.index.items()
}

// Rate returns how many bytes per second were written; 0 unknown. The rate of a save of less than a second is
// unknown: the disk did not take most of that time.
func (s *Save) Rate() int64 {
	const least = 1000 // milliseconds
	if s.index.rebuild() != nil || s.index.elapsed < least {
		return 0
	}
	missing, all := s.Lacks()
	return rate(int64(all-missing)*s.index.slotBytes(), s.index.elapsed)
}

func rate(bytes int64, milliseconds uint64) int64 {
	return int64(float64(bytes) / float64(milliseconds) * 1000)
}

// ReadAt reads from the warm file that was saved; unused pages are zeros.
func (s *Save) ReadAt(b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		at := offset + int64(n)
		if at >= s.Size {
			return n, io.EOF
		}
		page, within := int(at/int64(s.PageSize)), at%int64(s.PageSize)
		part := b[n:min(int64(len(b)), int64(n)+int64(s.PageSize)-within)]
		if err := s.readWithin(part, page, within); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// ReadPage reads the page at an offset of the warm file into b, which has the size of a page, and checks it.
// ReadPage returns false if the page was not used, or is missing. ReadPage is for whole pages that are read once.
// Unlike ReadAt it doesn't copy them from the page cache, which would take as long as all the rest of a drain, nor
// from the held page. Several goroutines may call it.
func (s *Save) ReadPage(b []byte, offset int64) (bool, error) {
	page := int(offset / int64(s.PageSize))
	if offset%int64(s.PageSize) != 0 || len(b) != s.PageSize || page < 0 || page >= s.pages() {
		return true, warmfile.ReadFull(s, b, offset) // not exactly one page
	}
	if !s.uses(page) {
		return false, nil
	}
	there, err := s.index.read(s.pastCache(), page, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked[page] = s.checked[page] || err == nil
	return there && err == nil, err
}

// pastCache returns the file for reads of whole pages.
func (s *Save) pastCache() io.ReaderAt {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	if s.direct != nil {
		return s.direct
	}
	s.direct = s.file
	if file, ok := s.file.(*os.File); ok {
		// /proc/self/fd opens the same file again, whatever its name is now.
		if d, err := openDirect(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDONLY, 0); err == nil {
			s.direct = d
		}
	}
	return s.direct
}

// readWithin reads a part of one page.
func (s *Save) readWithin(b []byte, page int, within int64) error {
	if !s.uses(page) {
		clear(b)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	offset := int64(page) * int64(s.PageSize)
	if s.held == offset || !s.checked[page] {
		if err := s.hold(page, offset); err != nil {
			return err
		}
		copy(b, s.page[within:])
		return nil
	}
	place, ok := s.index.place(page)
	if !ok {
		clear(b)
		return nil
	}
	// The page was checked before, and no process writes to a save that is read. Reading the whole page again
	// for each part would take long.
	return warmfile.ReadFull(s.file, b, place+within)
}

// hold reads a whole used page into s.page, and checks it.
func (s *Save) hold(page int, offset int64) error {
	if s.held == offset {
		return nil
	}
	s.begun = true
	if s.page == nil {
		s.page = make([]byte, s.PageSize)
	}
	s.held = -1
	there, err := s.index.read(s.file, page, s.page)
	if err != nil {
		return err
	}
	if !there {
		clear(s.page)
	}
	s.held, s.checked[page] = offset, true
	return nil
}

// Close closes the file.
func (s *Save) Close() error {
	if s.begun {
		s.advise(linux.DontNeed) // the file is not read again soon
	}
	var err error
	if d, ok := s.direct.(*direct); ok {
		err = d.Close()
	}
	if c, ok := s.file.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// advise tells the kernel how the save is read. Errors don't matter.
func (s *Save) advise(advice int) {
	if file, ok := s.file.(*os.File); ok {
		_ = linux.Advise(file, 0, 0, advice)
	}
}

// Used returns the total size of the used pages, in bytes.
func (s *Save) Used() int64 { return s.usedPages() * int64(s.PageSize) }

// Open opens the save at path; the error is os.ErrNotExist if there is none.
func Open(path string) (*Save, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would block forever
		err = warmfile.Refuse(warmfile.ReasonMissing, "%s is not a file", filepath.Base(path))
	}
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := read(file, info.Size())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}
