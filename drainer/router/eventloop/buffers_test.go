package eventloop

import (
	"bytes"
	"testing"
)

func TestBuffersAreUsedAgainBySize(t *testing.T) {
	var b Buffers
	text := bytes.Repeat([]byte("x"), 10_000)
	var buffer []byte
	for range 6 { // 60 kB: the largest size that is kept
		buffer = b.Add(buffer, text)
	}
	if len(buffer) != 60_000 || cap(buffer) != Largest {
		t.Fatalf("60,000 bytes were added: length %d, capacity %d", len(buffer), cap(buffer))
	}
	b.Put(buffer)
	if small := b.Get(1); cap(small) != sizes[0] {
		t.Errorf("a large buffer was given to one who needs a byte: %d", cap(small))
	}
	if allocations := testing.AllocsPerRun(100, func() {
		var buffer []byte
		for range 6 {
			buffer = b.Add(buffer, text)
		}
		b.Put(buffer)
	}); allocations > 0 {
		t.Errorf("%v allocations for buffers that were there", allocations)
	}
	b.Put(make([]byte, 0, 2*Largest))
	const last = len(sizes) - 1
	for range 2 * most[last] {
		b.Put(make([]byte, 0, Largest))
	}
	if len(b[last]) != most[last] {
		t.Errorf("%d large buffers are kept", len(b[last]))
	}
}
