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

// Save reads one as if it were the warm file itself. A page is checked the first
// time that anything of it is read. One that is missing reads as zeros, as an unused one
// does; see Missing.
type Save struct {
	Header
	file  io.ReaderAt
	index *index

	mu      sync.Mutex
	checked []bool
	begun   bool // a page has been read
	// direct is the file past the page cache; nil before the first whole page is read.
	direct io.ReaderAt
	// page is the used page that was checked last, at offset held.
	page []byte
	held int64
}

// read checks a save, without its pages.
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

// CutShort tells whether the save's end is missing: whoever wrote it was killed, or the
// disk failed.
func (s *Save) CutShort() bool { return !s.index.complete }

// Missing tells whether the page at an offset of the warm file was used, and is not in
// the save or is damaged there.
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

// Lacks is how many of the used pages are missing, after all have been read; those that
// are damaged are only found then.
func (s *Save) Lacks() (missing, all int) {
	if s.index.rebuild() != nil {
		return 0, int(s.usedPages())
	}
	return s.index.missing(), int(s.usedPages())
}

// Unknown is why nobody can tell now which pages are missing; nil if it can be told.
func (s *Save) Unknown() error {
	return s.index.rebuild()
}

// Items is how many items begin in the pages of the save, if it has them all; false if it
// hasn't, or doesn't tell.
func (s *Save) Items() (int64, bool) {
	if missing, _ := s.Lacks(); missing > 0 || s.index.err != nil {
		return 0, false
	}
	return s.index.items()
}

// Rate is how many bytes a second were written; 0 unknown. A save that took no second
// doesn't tell: it is not the disk that such a one waits for.
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

// ReadAt reads from the warm file that was saved; an unused page is zeros.
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

// ReadPage reads the page at an offset of the warm file into b, which is as large, and checks
// it; false if it was not used, or is missing. It is ReadAt for whoever reads whole pages
// once: without copies from the page cache, which take as long as everything else that a
// drain does, and from the page that is held. Several goroutines may read.
func (s *Save) ReadPage(b []byte, offset int64) (bool, error) {
	page := int(offset / int64(s.PageSize))
	if offset%int64(s.PageSize) != 0 || len(b) != s.PageSize || page < 0 || page >= s.pages() {
		return true, warmfile.ReadFull(s, b, offset) // not one whole page
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

// pastCache is the file for reads of whole pages.
func (s *Save) pastCache() io.ReaderAt {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	if s.direct != nil {
		return s.direct
	}
	s.direct = s.file
	if file, ok := s.file.(*os.File); ok {
		// Another descriptor of the same file, whatever its name is now.
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
	// The page was checked before. Nobody writes to a save that is read, and to read a whole
	// page for each part of it would take long.
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
		s.advise(linux.DontNeed) // nobody reads it soon
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

// advise tells the kernel how the save is read. It is only advice.
func (s *Save) advise(advice int) {
	if file, ok := s.file.(*os.File); ok {
		_ = linux.Advise(file, 0, 0, advice)
	}
}

// Used is the size of the used pages, in bytes.
func (s *Save) Used() int64 { return s.usedPages() * int64(s.PageSize) }

// Open opens the save at path; os.ErrNotExist if there is none.
func Open(path string) (*Save, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for ever
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
