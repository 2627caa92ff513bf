package warmfile

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// crashed is the file of a member that was killed, to be edited into the result of a kill at a certain
// moment.
type crashed struct {
	t     *testing.T
	data  []byte
	image *Image
	want  map[string]memcachedtest.Held
}

// killedOnce is one killed member for all tests: each edits its own copy of the file.
var killedOnce struct {
	sync.Once
	crashed
}

func crash(t *testing.T) *crashed {
	t.Helper()
	memcachedtest.Binary(t) // each test is skipped without one, not only the first
	killedOnce.Do(func() { killedOnce.crashed = killMember(t) })
	image := *killedOnce.image
	return &crashed{t, bytes.Clone(killedOnce.data), &image, killedOnce.want}
}

func killMember(t *testing.T) crashed {
	t.Helper()
	m := startMember(t, "-f", "1.25") // each class has a free slot
	p := memcachedtest.NewPopulation(t, m.Server, 11)
	raw := m.Raw()
	for _, key := range []string{"before", "victim", "after", "large"} {
		p.Keys[key] = true
		value := bytes.Repeat([]byte(key), 20)
		if key == "large" {
			value = bytes.Repeat([]byte("0123456789"), 80000)
		}
		raw.Must("STORED", "set "+key+" 7 0 "+itoa(len(value)), value)
	}
	want := p.Expected()
	image := m.image()
	m.Kill()
	return crashed{t, m.read(m.Path), image, want}
}

func (c *crashed) put64(at int64, v uint64) { binary.LittleEndian.PutUint64(c.data[at:], v) }
func (c *crashed) put16(at int64, v uint16) { binary.LittleEndian.PutUint16(c.data[at:], v) }
func (c *crashed) get64(at int64) uint64    { return binary.LittleEndian.Uint64(c.data[at:]) }

// freeSlot returns a free slot of the class, in any page.
func (c *crashed) freeSlot(class uint8) int64 {
	c.t.Helper()
	sizes, err := c.image.classes()
	if err != nil {
		c.t.Fatal(err)
	}
	size, pageSize := int64(sizes[class]), int64(c.image.SlabPageSize)
	for page := int64(0); page < int64(len(c.data)); page += pageSize {
		if c.data[page+offClass]&classMask != class {
			continue
		}
		for at := page; at+size <= page+pageSize; at += size {
			if binary.LittleEndian.Uint16(c.data[at+offFlags:]) == flagSlabbed {
				return at
			}
		}
	}
	c.t.Fatalf("no free slot of class %d", class)
	return 0
}

func (c *crashed) read() {
	c.t.Helper()
	r, err := New(bytes.NewReader(c.data), int64(len(c.data)), c.image, false, time.Now)
	if err != nil {
		c.t.Fatal(err)
	}
	got, _ := memcachedtest.ReadAll(c.t, r.Items(c.t.Context()))
	memcachedtest.Compare(c.t, got, c.want)
}

// The copy of an item, linked but not yet complete, is left out, and the original is found.
func TestKilledWhileMovingAnItem(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string][]byte{
		"old bytes behind it":           bytes.Repeat([]byte("x"), 60),
		"an old value of the same size": append(bytes.Repeat([]byte("x"), 50), "\r\n\r\n\r\n\r\n\r\n"...),
	} {
		t.Run(name, func(t *testing.T) {
			c := crash(t)
			original := findItem(t, c.data, "victim")
			copied := c.freeSlot(c.data[original+offClass] & classMask)
			c.put16(original+offRefcount, 2)
			copy(c.data[copied:copied+80], c.data[original:])
			copy(c.data[copied+80:], tail)
			c.read()
		})
	}
}

// The chain already leads to a copy that isn't filled. The original chunk is whole, and is used.
func TestKilledWhileMovingAChunk(t *testing.T) {
	t.Parallel()
	c := crash(t)
	header := findItem(t, c.data, "large")
	first := int64((&scan{flagsBytes: 4}).firstChunk(c.data[header:], u16(c.data[header:], offFlags))) + header
	chunk := int64(c.get64(first+offNext) - c.image.Base)
	copied := c.freeSlot(c.data[chunk+offClass] & classMask)
	c.put16(header+offRefcount, 2)
	c.put16(copied+offFlags, 0)
	address := c.image.Base + uint64(copied)
	if prev := c.get64(chunk + offPrev); prev != c.image.Base+uint64(first) {
		t.Fatalf("the chunk's predecessor is %#x", prev)
	}
	c.put64(first+offNext, address)
	if next := c.get64(chunk + offNext); next != 0 {
		c.put64(int64(next-c.image.Base)+offPrev, address)
	}
	c.read()
}

// An item that a client was reading when memcached died is not lost.
func TestBusyItemsAreFound(t *testing.T) {
	t.Parallel()
	c := crash(t)
	for _, key := range []string{"before", "victim", "after", "large"} {
		c.put16(findItem(t, c.data, key)+offRefcount, 3)
	}
	c.read()
}

// Slots that were not made yet are no items.
func TestKilledWhileCuttingAPage(t *testing.T) {
	t.Parallel()
	c := crash(t)
	sizes, err := c.image.classes()
	if err != nil {
		t.Fatal(err)
	}
	page := int64(len(c.data) - c.image.SlabPageSize)
	clear(c.data[page:])
	for i := range int64(10) {
		at := page + i*int64(sizes[5])
		c.put16(at+offFlags, flagSlabbed)
		c.data[at+offClass] = 5
	}
	c.read()
}
