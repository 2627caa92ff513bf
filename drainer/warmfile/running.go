package warmfile

import (
	"cmp"
	"fmt"

	"example.com/memcached-operator/drainer/item"
)

// Live is the layout of the file of a running memcached, and judges slots that may change while package export
// reads them.
type Live struct {
	image      Image
	sizes      []int
	largest    uint8
	flagsBytes int
	flush      flushRule
	now        int64
}

// Live returns the layout at the Unix time now, by memcached's own clock. The image has memcached's latest
// answers.
func (m *Image) Live(now int64) (*Live, error) {
	sizes, err := m.classes()
	if err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if size%chunkAlign != 0 {
			return nil, fmt.Errorf("a slab class of %d bytes, which is no multiple of %d", size, chunkAlign)
		}
	}
	switch {
	case m.FlagsBytes == 0:
		return nil, fmt.Errorf("memcached %s doesn't say how many bytes client flags have", m.Version)
	case !m.UseCAS:
		return nil, fmt.Errorf("memcached keeps no CAS (-C)")
	}
	return &Live{image: *m, sizes: sizes, largest: uint8(len(sizes) - 1), flagsBytes: m.FlagsBytes,
		flush: newFlushRule(m, true, m.ProcessStarted, now), now: now}, nil
}

// Size returns the size of the slots of a class, in bytes.
func (l *Live) Size(class uint8) int { return l.sizes[class] }

// The words of a slot, each of which is read atomically, by their offsets in bytes.
const (
	WordNext  = offNext
	WordPrev  = offPrev
	WordTimes = offTime
	WordState = offBytes
	WordClass = offClass
	WordCAS   = itemHeader
	// HeadBytes is the size of all of these words.
	HeadBytes = itemHeader + 8
)

// Head has the words of a slot, which may have been read at different moments.
type Head struct{ Times, State, Class, CAS uint64 }

// Linked tells whether a slot has a live item, given its WordState.
func Linked(state uint64) bool { return stateFlags(state)&flagLinked != 0 }

func stateFlags(state uint64) uint16 { return uint16(state >> 48) }

// Accessed returns the last access, in seconds of memcached's own clock.
func (h Head) Accessed() uint32 { return uint32(h.Times) }

// Settled returns the parts of State and Class that change only with the item. Settled leaves out whether the item
// was read, and its LRU.
func (h Head) Settled() (state, class uint64) {
	return h.State &^ (uint64(flagFetched|flagActive) << 48), h.Class & (0xff<<8 | classMask)
}

// refcount is 1 while neither a connection nor the slab mover has the item.
func (h Head) refcount() uint16 { return uint16(h.State >> 32) }

func (h Head) bytes() int { return int(int32(uint32(h.State))) }

// KeyLength is in bytes; it is at most 250.
func (h Head) KeyLength() int { return int(uint8(h.Class >> 8)) }

// Reading says how a slot's item is to be read.
type Reading uint8

// The ways to read an item.
const (
	// Nothing: there is no item, or clients can't get it any more.
	Nothing Reading = iota
	// Copied: the item is read from the file.
	Copied
	// Asked: memcached has to be asked for the key, because the item is in use, is not completely in the
	// slot, or may be flushed.
	Asked
	// Unreadable: even the key can't be read.
	Unreadable
)

// Parts are offsets within a slot, in bytes. The value is without its line end.
type Parts struct{ Key, KeyEnd, Flags, Value, ValueEnd int }

// Read judges the head of a slot of that class, and returns the offsets of the item's parts.
func (l *Live) Read(h Head, class uint8) (Reading, Parts) {
	flags, size := stateFlags(h.State), l.sizes[class]
	p := Parts{Key: HeadBytes}
	p.KeyEnd = p.Key + h.KeyLength()
	p.Value = p.KeyEnd + 1
	if flags&flagClient != 0 {
		p.Flags = p.Value
		p.Value += l.flagsBytes
	}
	p.ValueEnd = p.Value + h.bytes() - 2
	switch {
	case flags&flagLinked == 0:
		return Nothing, p
	case flags&flagCAS == 0, h.KeyLength() == 0, h.KeyLength() > 250, p.KeyEnd >= size:
		return Unreadable, p
	case l.expired(h):
		return Nothing, p
	case flags&^linkedFlags != 0, flags&flagChunked != 0, uint8(h.Class)&classMask != class,
		h.refcount() != 1, h.CAS == 0, h.bytes() < 2, p.ValueEnd+2 > size:
		return Asked, p
	case l.maybeFlushed(h):
		return Asked, p
	case l.flushed(h):
		return Nothing, p
	}
	return Copied, p
}

func (l *Live) expired(h Head) bool {
	at := uint32(h.Times >> 32)
	return at != 0 && l.image.ProcessStarted+int64(at) <= l.now
}

func (l *Live) flushed(h Head) bool {
	return l.flush.oldestLive != 0 && !l.flush.pending && h.Accessed() <= l.flush.oldestLive
}

// maybeFlushed tells whether only memcached knows if the item is flushed: up to 1.6.24 a flush also removes a
// part of the items of its own second.
func (l *Live) maybeFlushed(h Head) bool {
	return l.flush.oldestLive != 0 && !l.flush.pending && h.Accessed() == l.flush.oldestLive+1
}

// ExpireAt returns when the item expires, by memcached's clock, in Unix seconds; 0 if never.
func (l *Live) ExpireAt(h Head) int64 {
	at := int64(0)
	if expire := uint32(h.Times >> 32); expire != 0 {
		at = l.image.ProcessStarted + int64(expire)
	}
	if l.flush.pending && h.Accessed() <= l.flush.oldestLive && (at == 0 || at > l.flush.at) {
		return l.flush.at
	}
	return at
}

// LastAccess returns the last access by memcached's clock, in Unix seconds.
func (l *Live) LastAccess(h Head) int64 { return l.image.ProcessStarted + int64(h.Accessed()) }

// State returns item.Invalidated if a client has marked the item as stale, or if the item is a placeholder whose
// client hasn't stored a value yet.
func (l *Live) State(h Head) item.State {
	flags := stateFlags(h.State)
	if flags&flagStale != 0 || flags&flagToken != 0 && h.bytes() == 2 {
		return item.Invalidated
	}
	return item.Live
}

// BinaryKey tells whether the key was sent base64-encoded.
func (l *Live) BinaryKey(h Head) bool { return stateFlags(h.State)&flagKeyBinary != 0 }

// ClientFlags returns the client flags in the slot.
func (l *Live) ClientFlags(slot []byte, p Parts) uint64 {
	switch {
	case p.Flags == 0:
		return 0
	case l.flagsBytes == item.LargeFlags:
		return u64(slot, p.Flags)
	}
	return uint64(u32(slot, p.Flags))
}

// Class returns the class of a page that may change while it is read; 0 if the page has none. ok is false if the
// page doesn't show its class now. buf has room for a page.
func (l *Live) Class(page []byte, first Head, buf []byte) (class uint8, ok bool) {
	flags, own := stateFlags(first.State), uint8(first.Class)&classMask
	switch {
	case own == 0 && flags&^flagSlabbed == 0 && first.KeyLength() == 0:
		return 0, true
	case own < 1 || own > l.largest:
	case flags&flagLinked != 0 && flags&flagChunked == 0, flags == flagChunk, flags&flagSlabbed != 0 && own != l.largest:
		return own, true
	}
	copy(buf, page)
	s := scan{Reader: &Reader{image: l.image, sizes: l.sizes, largest: l.largest}, flagsBytes: l.flagsBytes}
	if class, ok = s.classOf(buf[:len(page)]); !ok {
		return 0, false // the class may be any
	}
	return class, true
}

// Newer returns the layout with memcached's latest answers, and whether clients have flushed again since l.
// oldest is the answer about the last flush, in seconds of memcached's own clock; now is 0 if unknown.
func (l *Live) Newer(oldest int64, now int64) (newer *Live, flushed bool) {
	n := *l
	n.now = cmp.Or(now, l.now)
	if uint32(oldest) == l.image.OldestLive && (n.flush.pending == l.flush.pending) {
		return &n, false
	}
	n.image.OldestLive, n.image.Clock = uint32(oldest), n.now
	n.flush = newFlushRule(&n.image, true, n.image.ProcessStarted, n.now)
	return &n, true
}
