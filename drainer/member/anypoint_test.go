//go:build linux

package member_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
)

// The next pod has every item of the pages that are whole, and no other. The test finds these pages and their
// items without the reader.
func TestASaveKilledAtAnyPoint(t *testing.T) {
	drainertest.ForSeeds(t, 2, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		objects := map[string]drainertest.Object{}
		for i := range 2400 {
			value := bytes.Repeat([]byte{byte('a' + i%26)}, 100+r.IntN(10_000))
			objects[fmt.Sprintf("key:%d:", i)] = drainertest.Object{Value: value, Flags: uint64(i)}
		}
		p := newPod(t)
		s := p.start("", "-m", "96", "-f", "4")
		drainertest.Store(t, s.Address(), objects)
		// One of the workers gets that far. At its first call, a worker has written nothing.
		fault{call: "pwrite64", file: unfinishedSave, n: 2 + r.IntN(6)}.on(p.volume).attach(s)
		s.Signal(syscall.SIGTERM)
		if code := s.Wait(); code == 0 {
			t.Fatalf("it was not killed: %s", s.Err.String())
		}
		pages, all, whole := p.inWholePages(objects)
		t.Logf("%d of %d pages are whole, with %d of %d items", pages, all, len(whole), len(objects))
		s = p.nextPod().start("")
		s.WaitFor(fmt.Sprintf("%d of the %d pages of the save are missing or damaged", all-pages, all))
		s.ExpectItems(whole)
		s.End("saved")
	})
}

// inWholePages returns the objects whose pages are in the unfinished save, byte for byte, in a slot of the
// layout that package snapshot documents. The pod's own file, in memory, is still there.
func (p *pod) inWholePages(objects map[string]drainertest.Object) (pages, all int, whole map[string]drainertest.Object) {
	p.t.Helper()
	file, err := os.ReadFile(filepath.Join(p.memory, contract.WarmFile))
	if err != nil {
		p.t.Fatal(err)
	}
	save, err := os.ReadFile(filepath.Join(p.volume, unfinishedSave))
	if err != nil {
		p.t.Fatal(err)
	}
	const block, page = 4 << 10, 1 << 20
	body := (16 + int(binary.LittleEndian.Uint32(save[8:])) + block - 1) / block * block
	there := map[int]bool{}
	for at := body; at+block+page <= len(save); at += block + page {
		all++
		offset := int(binary.LittleEndian.Uint64(save[at+24:]))
		if bytes.HasPrefix(save[at:], []byte("mcpage\x00\x02")) && bytes.Equal(save[at+block:][:page], file[offset:][:page]) {
			there[offset/page] = true
		}
	}
	whole = map[string]drainertest.Object{}
	for _, at := range regexp.MustCompile(`key:\d+:\x00`).FindAllIndex(file, -1) {
		if key := string(file[at[0] : at[1]-1]); there[at[0]/page] {
			whole[key] = objects[key]
		}
	}
	return len(there), all, whole
}
