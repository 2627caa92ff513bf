package router

import (
	"bytes"
	"testing"
)

func TestBuffersAreUsedAgainBySize(t *testing.T) {
	var b buffers
	text := bytes.Repeat([]byte("x"), 10_000)
	var buffer []byte
	for range 6 { // 60 kB: the largest that is kept
		buffer = b.add(buffer, text)
	}
	if len(buffer) != 60_000 || cap(buffer) != keptBuffer {
		t.Fatalf("60,000 bytes were added: length %d, capacity %d", len(buffer), cap(buffer))
	}
	b.put(buffer)
	if small := b.get(1); cap(small) != bufferSizes[0] {
		t.Errorf("a large buffer was given to one who needs a byte: %d", cap(small))
	}
	if allocations := testing.AllocsPerRun(100, func() {
		var buffer []byte
		for range 6 {
			buffer = b.add(buffer, text)
		}
		b.put(buffer)
	}); allocations > 0 {
		t.Errorf("%v allocations for buffers that were there", allocations)
	}
	b.put(make([]byte, 0, 2*keptBuffer))
	const last = len(bufferSizes) - 1
	for range 2 * keptBuffers[last] {
		b.put(make([]byte, 0, keptBuffer))
	}
	if len(b[last]) != keptBuffers[last] {
		t.Errorf("%d large buffers are kept", len(b[last]))
	}
}
