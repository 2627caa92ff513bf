package warmfile

import (
	"encoding/binary"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
)

// Its first slot had a chunked item's header, and by now has other bytes at the offset of the class. None of
// them is taken for a class.
func TestAPageThatDoesNotTellItsClass(t *testing.T) {
	m, err := ParseMeta([]byte(memcachedtest.Meta))
	if err != nil {
		t.Fatal(err)
	}
	m.FlagsBytes = item.SmallFlags
	l, err := m.Live(m.Clock)
	if err != nil {
		t.Fatal(err)
	}
	page, buf := make([]byte, SlabPageSize), make([]byte, SlabPageSize)
	const keyLength = 3
	binary.LittleEndian.PutUint16(page[offRefcount:], 1)
	binary.LittleEndian.PutUint16(page[offFlags:], flagLinked|flagChunked|flagCAS)
	page[offClass], page[offKeyLen] = l.largest, keyLength
	orig := &page[HeadBytes+keyLength+1+offChunkOrig]
	for text := range 256 {
		*orig = byte(text)
		class, ok := l.Class(page, Head{State: u64(page, WordState), Class: u64(page, WordClass)}, buf)
		want := 0
		if text <= int(l.largest) {
			want = text
		}
		if int(class) != want || ok != (want != 0) {
			t.Errorf("%d is class %d, %t", text, class, ok)
		}
	}
}
