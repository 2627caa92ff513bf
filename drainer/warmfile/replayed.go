package warmfile

import (
	"fmt"
	"io"
)

// A replay that was interrupted must not begin again from its start: clients may have deleted, or stored and
// lost, a key whose item had been restored. So there is a bit for each item, set before the item is sent, and
// a pass yields such items as invalidated. Their present state is in the memcached that they were sent to.

// placeOf returns the place of the item at an offset: no two items begin less than a header apart.
func placeOf(offset int64) int64 { return offset/itemHeader + 1 }

// Places returns how many places a file of that size has at most.
func Places(size int64) int64 { return placeOf(size) }

// Replayed gives the Reader the marks that MarkReplayed has written. Close closes them, if they are a Closer.
func (r *Reader) Replayed(marks io.ReaderAt) { r.replayed = marks }

// marksBlock is how many bytes of marks are read or written at once.
const marksBlock = 4 << 10

// marks is one block of the marks.
type marks struct {
	// block is the block's number, counted from 1; 0 for none.
	block int64
	bits  [marksBlock]byte
}

// load loads the block with the mark of a place, and returns the mark's position in it.
func (m *marks) load(from io.ReaderAt, place int64) (at int, bit byte, err error) {
	byteAt := place / 8
	at, bit = int(byteAt%marksBlock), 1<<(place%8)
	block := byteAt/marksBlock + 1
	if block == m.block {
		return at, bit, nil
	}
	m.block = 0
	n, err := from.ReadAt(m.bits[:], (block-1)*marksBlock)
	if err != nil && err != io.EOF {
		return 0, 0, fmt.Errorf("read which items have been replayed: %w", err)
	}
	clear(m.bits[n:])
	m.block = block
	return at, bit, nil
}

func (m *marks) has(from io.ReaderAt, place int64) (bool, error) {
	at, bit, err := m.load(from, place)
	return err == nil && m.bits[at]&bit != 0, err
}

// MarkReplayed marks places, faster if neighbouring places follow each other. When MarkReplayed returns, the
// marks survive this process. A sync makes them survive the node's kernel.
func MarkReplayed(file interface {
	io.ReaderAt
	io.WriterAt
}, places []int64) error {
	var m marks
	from, to := 0, 0 // the changed range of the block
	write := func() error {
		if from == to {
			return nil
		}
		_, err := file.WriteAt(m.bits[from:to], (m.block-1)*marksBlock+int64(from))
		from, to = 0, 0
		if err != nil {
			err = fmt.Errorf("record which items have been replayed: %w", err)
		}
		return err
	}
	for _, place := range places {
		if place == 0 {
			continue
		}
		if place/8/marksBlock+1 != m.block {
			if err := write(); err != nil {
				return err
			}
		}
		at, bit, err := m.load(file, place)
		if err != nil {
			return err
		}
		m.bits[at] |= bit
		if from == to {
			from, to = at, at+1
		}
		from, to = min(from, at), max(to, at+1)
	}
	return write()
}
