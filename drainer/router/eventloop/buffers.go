package eventloop

import "slices"

// Buffers are the free buffers. Buffers larger than Largest are left to the garbage collector.
type Buffers [len(sizes)][][]byte

const (
	// Usual is the size of most buffers, in bytes.
	Usual = 4 << 10
	// Largest is the size of the largest buffer that is kept, in bytes.
	Largest = 64 << 10
)

// sizes are in bytes; the other list has how many of each size are kept at most. Thousands of small answers
// may wait for earlier ones.
var (
	sizes = [...]int{256, Usual, 16 << 10, Largest}
	most  = [len(sizes)]int{4096, 256, 128, 64}
)

// Get returns an empty buffer with room for n bytes.
func (b *Buffers) Get(n int) []byte {
	for i, size := range sizes {
		if n > size {
			continue
		}
		if last := len(b[i]) - 1; last >= 0 {
			buffer := b[i][last]
			b[i] = b[i][:last]
			return buffer
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n+n/2)
}

// Put takes a buffer back; it is reused for the largest size that it has room for.
func (b *Buffers) Put(buffer []byte) {
	if cap(buffer) > Largest {
		return
	}
	for i, size := range slices.Backward(sizes[:]) {
		if cap(buffer) >= size {
			if len(b[i]) < most[i] {
				b[i] = append(b[i], buffer[:0])
			}
			return
		}
	}
}

// Add appends more to a buffer, and replaces the buffer if it is too small.
func (b *Buffers) Add(buffer, more []byte) []byte {
	if len(buffer)+len(more) <= cap(buffer) {
		return append(buffer, more...)
	}
	larger := append(b.Get(len(buffer)+len(more)), buffer...)
	b.Put(buffer)
	return append(larger, more...)
}
