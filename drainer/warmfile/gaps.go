package warmfile

import "errors"

// A file may lack pages: a save that was cut short, or is damaged. They read as unused
// ones. What is in all others is right: the file is that of a process that has ended, so
// no item in it is older than another one. Left out are
//
//   - an item whose chunks are on a page that is missing;
//   - after a crash, each item that a connection or the slab mover had. It may be a copy
//     that is not complete, and the original, which would show that, may be missing.

// gaps is a file of which pages may be missing.
type gaps interface {
	// Missing tells whether the page at an offset is.
	Missing(offset int64) (bool, error)
	// Lacks is how many used pages are missing, so far as is known: a damaged one is only
	// found when it is read.
	Lacks() (missing, all int)
}

// errGap: a chunk of an item is on a page that is missing.
var errGap = errors.New("a chunk is missing")

// missing tells whether the page at an offset is.
func (s *scan) missing(offset int64) (bool, error) {
	if s.gaps == nil {
		return false, nil
	}
	return s.gaps.Missing(offset)
}

// leaveOut counts an item that is not yielded.
func (s *scan) leaveOut() bool {
	s.linked++
	s.leftOut++
	return true
}

// Lacking returns, after a pass over the items, an error if pages of the file are missing,
// and nil if none is. The items that were yielded are right all the same.
func (r *Reader) Lacking() error {
	if r.gaps == nil {
		return nil
	}
	missing, all := r.gaps.Lacks()
	if missing == 0 {
		return nil
	}
	return Refuse(ReasonSaveIncomplete, "%d of the %d pages of the save are missing or damaged, with about %d of its items; %d others are in part on such pages",
		missing, all, max(0, r.image.Items-r.latest.linked), r.latest.leftOut)
}
