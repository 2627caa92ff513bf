package warmfile

import (
	"bytes"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// gapped is a file without the pages at some offsets.
type gapped struct {
	*bytes.Reader
	missing map[int64]bool
}

const gapPage = 1 << 20

// without returns the file without these pages.
func without(data []byte, offsets ...int64) gapped {
	g := gapped{missing: map[int64]bool{}}
	data = bytes.Clone(data)
	for _, offset := range offsets {
		page := offset / gapPage * gapPage
		g.missing[page] = true
		clear(data[page : page+gapPage])
	}
	g.Reader = bytes.NewReader(data)
	return g
}

func (g gapped) Missing(offset int64) (bool, error) { return g.missing[offset/gapPage*gapPage], nil }
func (g gapped) Lacks() (missing, all int)          { return len(g.missing), 64 }

// readWithout reads the file without the pages at some offsets. Every item is unchanged, and the reader
// reports that pages are missing. The item lost is not there, the others are.
func (c *crashed) readWithout(lost string, others []string, offsets ...int64) {
	c.t.Helper()
	g := without(c.data, offsets...)
	r, err := New(g, g.Size(), c.image, false, time.Now)
	if err != nil {
		c.t.Fatal(err)
	}
	got, _ := memcachedtest.ReadAll(c.t, r.Items(c.t.Context()))
	for key, held := range got {
		if held != c.want[key] {
			c.t.Errorf("%q has %.40q, want %.40q", key, held.Value, c.want[key].Value)
		}
	}
	if _, there := got[lost]; there {
		c.t.Errorf("%q is there", lost)
	}
	for _, key := range others {
		if _, there := got[key]; !there {
			c.t.Errorf("%q is not there", key)
		}
	}
	if err := r.Lacking(); !IsReason(err, ReasonSaveIncomplete) {
		c.t.Errorf("it is told: %v", err)
	}
}

// pageOf makes the file's last page an empty one of the class, and returns its offset.
func (c *crashed) pageOf(class uint8) int64 {
	c.t.Helper()
	sizes, err := c.image.classes()
	if err != nil {
		c.t.Fatal(err)
	}
	page := int64(len(c.data) - gapPage)
	clear(c.data[page:])
	for at := page; at+int64(sizes[class]) <= int64(len(c.data)); at += int64(sizes[class]) {
		c.put16(at+offFlags, flagSlabbed)
		c.data[at+offClass] = class
	}
	return page
}

// A copy is left out if it may not be complete. The file is from a crash while memcached moved the item.
func TestACopyWhoseOriginalMayBeMissing(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"its neighbours are missing, too": false, "its neighbours lead to what is missing": true} {
		t.Run(name, func(t *testing.T) {
			c := crash(t)
			original := findItem(t, c.data, "victim")
			c.put16(original+offRefcount, 2)
			copied := c.pageOf(c.data[original+offClass] & classMask)
			copy(c.data[copied:copied+80], c.data[original:])
			copy(c.data[copied+80:], "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n")
			if elsewhere {
				neighbour := findItem(t, c.data, "large")
				c.put64(copied+offNext, c.image.Base+uint64(neighbour))
				c.put64(neighbour+offPrev, c.image.Base+uint64(original))
			}
			c.readWithout("victim", []string{"large"}, original)
		})
	}
}

// The item is left out: the chunk is gone, or only its copy is there, which may not be filled.
func TestAnItemWithAMissingChunk(t *testing.T) {
	t.Parallel()
	for name, moved := range map[string]bool{"the chunk is gone": false, "it was being moved": true} {
		t.Run(name, func(t *testing.T) {
			c := crash(t)
			header := findItem(t, c.data, "large")
			first := int64((&scan{flagsBytes: 4}).firstChunk(c.data[header:], u16(c.data[header:], offFlags))) + header
			chunk := int64(c.get64(first+offNext) - c.image.Base)
			if moved {
				c.put16(header+offRefcount, 2)
				copied := c.pageOf(c.data[chunk+offClass] & classMask)
				copy(c.data[copied:copied+chunkHeader], c.data[chunk:])
				c.put64(first+offNext, c.image.Base+uint64(copied))
				if next := c.get64(chunk + offNext); next != 0 {
					c.put64(int64(next-c.image.Base)+offPrev, c.image.Base+uint64(copied))
				}
			}
			c.readWithout("large", []string{"before", "victim", "after"}, chunk)
		})
	}
}
