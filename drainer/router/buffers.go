package router

import "slices"

// buffers are those of a loop that nobody uses now, by size. Larger ones than keptBuffer are left to
// the garbage collector.
type buffers [len(bufferSizes)][][]byte

const (
	bufferSize = 4 << 10
	keptBuffer = 64 << 10
)

// bufferSizes, in bytes, and how many of a size are kept at most. Thousands of small answers may wait
// for earlier ones.
var (
	bufferSizes = [...]int{256, bufferSize, 16 << 10, keptBuffer}
	keptBuffers = [len(bufferSizes)]int{4096, 256, 128, 64}
)

// get returns an empty buffer with room for n bytes.
func (b *buffers) get(n int) []byte {
	for i, size := range bufferSizes {
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

// put takes a buffer back, as one of the largest size that it has room for.
func (b *buffers) put(buffer []byte) {
	if cap(buffer) > keptBuffer {
		return
	}
	for i, size := range slices.Backward(bufferSizes[:]) {
		if cap(buffer) >= size {
			if len(b[i]) < keptBuffers[i] {
				b[i] = append(b[i], buffer[:0])
			}
			return
		}
	}
}

// add appends more to a buffer, and exchanges it if that is too small.
func (b *buffers) add(buffer, more []byte) []byte {
	if len(buffer)+len(more) <= cap(buffer) {
		return append(buffer, more...)
	}
	larger := append(b.get(len(buffer)+len(more)), buffer...)
	b.put(buffer)
	return append(larger, more...)
}
