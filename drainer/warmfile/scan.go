package warmfile

import (
	"fmt"

	"example.com/memcached-operator/drainer/item"
)

// scan has one goroutine's results from the pages that it sees.
type scan struct {
	*Reader
	yield func(*item.Item, error) bool
	item  item.Item
	flush flushRule
	now   int64
	// flagsBytes is how many bytes client flags take; 0 if unknown. For the first item with flags, findFlags finds
	// the number; unknown is the error if it can't.
	flagsBytes int
	findFlags  func() (int, error)
	unknown    error

	seen
	// scanned is the page that is being scanned.
	scanned *item.Page
	// marks is a part of Reader.replayed.
	marks marks
	// value is the buffer for a value that is assembled from chunks.
	value []byte
}

// fail yields the error, which ends the scan.
func (s *scan) fail(reason Reason, offset int64, format string, args ...any) bool {
	s.yield(nil, &Error{Reason: reason, Offset: offset, Expected: fmt.Sprintf(format, args...)})
	return false
}

// page yields the items of one used page, and returns false when the scan is over: after an error, or when the
// consumer wants no more.
func (s *scan) page(offset int64, b []byte) bool {
	if now := s.Reader.now().Unix(); now != s.now {
		s.now = now
		s.flush = newFlushRule(&s.image, s.clean, s.started, now)
	}
	class, ok := s.classOf(b)
	if s.unknown != nil {
		s.yield(nil, s.unknown)
		return false
	}
	if !ok {
		return s.fail(ReasonCorrupt, offset, "a page of one slab class, found class %d in the first slot and others behind it", b[offClass]&classMask)
	}
	size := s.sizes[class]
	s.usedPages++
	s.slots += int64(len(b) / size)
	for at := 0; at+size <= len(b); at += size {
		slot := b[at : at+size : at+size]
		flags := u16(slot, offFlags)
		if flags&flagLinked == 0 {
			if !idle(slot, flags, class, s.largest) {
				return s.fail(ReasonCorrupt, offset+int64(at), "a free slot of class %d, found flags %#x and class byte %#x", class, flags, slot[offClass])
			}
			if flags == flagChunk && !s.clean && !s.noteChunk(offset+int64(at), slot) {
				return false
			}
			continue
		}
		if !s.linkedSlot(offset+int64(at), slot, flags, class) {
			return false
		}
	}
	return true
}

// linkedSlot yields the item in slot, if there is one.
func (s *scan) linkedSlot(offset int64, slot []byte, flags uint16, class uint8) bool {
	busy := s.busy(slot)
	if busy && s.unfinishedCopy(offset, slot) {
		return true
	}
	h, problem := s.header(slot, flags, class)
	if s.unknown != nil {
		s.yield(nil, s.unknown)
		return false
	}
	if problem != nil {
		problem.Offset = offset
		s.yield(nil, problem)
		return false
	}
	s.linked++
	if !s.fill(offset, slot, flags, h) {
		return false
	}
	if flags&flagChunked == 0 {
		s.item.Page = s.scanned
		s.item.Value = slot[h.value : h.value+h.bytes-2]
		return s.yield(&s.item, nil)
	}
	if busy {
		// The item's chunks may be moving. Only finish knows the places of all chunks.
		s.linked--
		return s.moving.wait(s, offset)
	}
	return s.chunked(offset, slot, h)
}

// busy tells whether a connection or the slab mover was using the linked item in slot when memcached died.
func (s *scan) busy(slot []byte) bool {
	return !s.clean && u16(slot, offFlags)&flagLinked != 0 && u16(slot, offRefcount) != 1
}

// clientFlags returns how many bytes client flags take in an item that has flags; 0 if that can't be found.
func (s *scan) clientFlags() int {
	if s.flagsBytes == 0 && s.unknown == nil && s.findFlags != nil {
		s.flagsBytes, s.unknown = s.findFlags()
	}
	return s.flagsBytes
}

// header has the offsets of an item's parts in its slot.
type header struct {
	key, value, bytes int
}

// header checks a linked item against everything that its slot shows.
func (s *scan) header(slot []byte, flags uint16, class uint8) (header, *Error) {
	if flags&^linkedFlags != 0 {
		what := "flags of a linked item, found %#x"
		if flags&flagExternal != 0 {
			what = "a value in the file, found one in extstore (flags %#x)"
		}
		return header{}, refuse(ReasonUnknownLayout, what, flags)
	}
	if (flags&flagCAS != 0) != s.image.UseCAS {
		return header{}, refuse(ReasonUnknownLayout, "use_cas=%t, found flags %#x", s.image.UseCAS, flags)
	}
	h := header{key: itemHeader, bytes: int(int32(u32(slot, offBytes)))}
	if flags&flagCAS != 0 {
		h.key += 8
	}
	h.value = h.key + int(slot[offKeyLen]) + 1
	if flags&flagClient != 0 {
		h.value += s.clientFlags()
	}
	switch {
	case slot[offKeyLen] == 0 || slot[offKeyLen] > 250:
		return h, refuse(ReasonCorrupt, "a key of 1 to 250 bytes, found %d", slot[offKeyLen])
	case h.bytes < 2 || h.bytes > s.image.ItemSizeMax:
		return h, refuse(ReasonCorrupt, "a value of 2 to %d bytes, found %d", s.image.ItemSizeMax, h.bytes)
	case flags&flagChunked != 0:
		return h, s.chunkedHeader(slot, h, class)
	case slot[offClass]&classMask != class:
		return h, refuse(ReasonCorrupt, "an item of slab class %d, found %d", class, slot[offClass]&classMask)
	case h.value+h.bytes > len(slot):
		return h, refuse(ReasonCorrupt, "an item of at most %d bytes, found %d", len(slot), h.value+h.bytes)
	case slot[h.value+h.bytes-2] != '\r' || slot[h.value+h.bytes-1] != '\n':
		return h, refuse(ReasonUnknownLayout, "a value that ends in \\r\\n, found %q", slot[h.value+h.bytes-2:h.value+h.bytes])
	}
	return h, nil
}

// fill sets all of the item but its value, and returns false when the scan is over.
func (s *scan) fill(offset int64, slot []byte, flags uint16, h header) bool {
	nkey := int(slot[offKeyLen])
	accessed := u32(slot, offTime)
	s.item = item.Item{
		Key:        slot[h.key : h.key+nkey],
		LastAccess: s.started + int64(accessed),
		BinaryKey:  flags&flagKeyBinary != 0,
		Place:      placeOf(offset),
	}
	switch {
	case flags&flagClient == 0:
	case s.flagsBytes == item.LargeFlags:
		s.flagged, s.item.Flags = true, u64(slot, h.value-item.LargeFlags)
	default:
		s.flagged, s.item.Flags = true, uint64(u32(slot, h.value-item.SmallFlags))
	}
	if flags&flagCAS != 0 {
		s.item.CAS = u64(slot, itemHeader)
	}
	if expire := u32(slot, offExpire); expire != 0 {
		s.item.ExpireAt = s.started + int64(expire)
	}
	s.judge(accessed, flags, h)
	if s.replayed == nil || s.item.State != item.Live {
		return true
	}
	replayed, err := s.marks.has(s.replayed, s.item.Place)
	if err != nil {
		s.yield(nil, err)
		return false
	}
	if replayed {
		s.item.State = item.Invalidated
	}
	return true
}

// judge sets the item's state.
func (s *scan) judge(accessed uint32, flags uint16, h header) {
	flushed := s.flush.applies(accessed, s.item.CAS)
	switch {
	case s.item.ExpireAt != 0 && s.item.ExpireAt <= s.now:
		s.item.State = item.Expired
	case flags&flagStale != 0:
		s.item.State = item.Invalidated
	case flags&flagToken != 0 && h.bytes == 2:
		// This is a placeholder: a meta get with N made it, and the client that was to store a value hasn't
		// yet. A plain get would read an empty value.
		s.item.State = item.Invalidated
	case flushed && !s.flush.pending:
		s.item.State = item.Invalidated
	case flushed && (s.item.ExpireAt == 0 || s.item.ExpireAt > s.flush.at):
		s.item.ExpireAt = s.flush.at
	}
}

// finish makes the checks for which the whole file is needed.
func (s *scan) finish() bool {
	if !s.moving.finish(s) {
		return false
	}
	items := s.image.Items
	if s.Lacking() != nil {
		return true
	}
	switch {
	case s.usedPages == 0:
		// memcached gives every slab class a page before its first item.
		return s.fail(ReasonWiped, 0, "at least one slab page, found none: the file was never used, or was wiped")
	case s.image.ItemsExact && s.linked != items:
		return s.failCount("%d items, as were counted after the save, found %d", items, s.linked)
	case !s.image.ItemsExact && s.slots < items/10*9:
		// Deletes and expiry free slots, but the number of slots stays. Only a handful of pages can have changed
		// their class since the server's last answer.
		return s.failCount("room for the %d items that the server last counted, found %d slots", items, s.slots)
	}
	return true
}

func (s *scan) failCount(format string, args ...any) bool {
	s.yield(nil, refuse(ReasonCountMismatch, format, args...))
	return false
}
