package warmfile

import (
	"encoding/binary"
	"errors"
	"io"
)

// freeSlot is the word of an item's header with its length and its flags, in a slot that was never used.
const freeSlot = flagSlabbed << 48

// WithoutItems tells whether no item was ever stored in the file. The slab classes of its pages are unknown,
// so it reads every word. An item's header, and nearly all data, has a word whose upper bytes have other
// flags than a free slot's. Everything else that memcached writes at its start is addresses and classes.
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
