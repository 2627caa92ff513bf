package warmfile

import (
	"encoding/binary"
	"errors"
	"io"
)

// freeSlot is the word of an item's header with its length and its flags, in a slot that was never used.
const freeSlot = flagSlabbed << 48

// WithoutItems tells whether no item was ever stored in the file, and reads every word, because the slab classes of
// the pages are unknown. At its start memcached writes only free slots, addresses and classes. An item's header,
// and nearly all data, has a word whose two upper bytes are neither 0 nor the flags of a free slot.
func WithoutItems(file io.Reader) (bool, error) {
	buf := make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(file, buf)
		for at := 0; at+8 <= n; at += 8 {
			if w := binary.LittleEndian.Uint64(buf[at:]); w>>48 != 0 && w != freeSlot {
				return false, nil
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return n%8 == 0, nil
		case err != nil:
			return false, err
		}
	}
}
