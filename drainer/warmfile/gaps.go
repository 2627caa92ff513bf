package warmfile

import "errors"

// A file may lack pages, if its save was cut short or is damaged. Missing pages read as unused ones. All other
// pages are of one moment: the process that wrote the file has ended. The reader leaves out:
//
//   - an item with a chunk on a missing page;
//   - after a crash, each item that a connection or the slab mover was using. Such an item may be an incomplete
//     copy, and the original, which would show that, may be missing.

// gaps is a file whose pages may be missing.
type gaps interface {
	// Missing tells whether the page at an offset is missing.
	Missing(offset int64) (bool, error)
	// Lacks returns how many used pages are known to be missing. A damaged page is only found when it is
	// read.
	Lacks() (missing, all int)
}

// errGap means that a chunk of an item is on a missing page.
var errGap = errors.New("a chunk is missing")

// missing tells whether the page at an offset is missing.
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

// Lacking returns, after a pass over the items, an error if pages of the file are missing. The yielded items
// are right nevertheless.
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
