package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// perSize is the number of items of each size: enough for the order of their pages to be no chance.
const perSize = 12

// Pages are saved in that order if the save takes long, or there is too little time for it. The items have
// all sizes, and the large ones have chunks on other pages.
func TestMostRecentlyUsedAreSavedFirst(t *testing.T) {
	t.Parallel()
	m := startMember(t, memcachedtest.FewPages("-m", "64")...)
	raw := m.Raw()
	for i, size := range []int{300_000, 700_000, 100} {
		for n := range perSize {
			// A value contains its key, so that the test finds each page of it.
			key := fmt.Sprintf("<%d:%d>", i, n)
			raw.Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, size/len(key)*len(key)), []byte(strings.Repeat(key, size/len(key))))
		}
	}
	image := m.image()
	m.Save()
	meta, err := ReadMeta(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	meta.FlagsBytes, meta.Version = image.FlagsBytes, image.Version
	m.writeManifest(Manifest{State: Saved, Image: meta})
	used := setLastUse(t, m.dir)

	var said strings.Builder
	logf := func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }
	for name, test := range map[string]struct {
		left      time.Duration
		rate      int64
		hot, said bool
	}{
		"too little time":      {left: time.Minute, rate: 1 << 10, hot: true, said: true},
		"enough":               {left: time.Minute, rate: 1 << 30},
		"no rate":              {left: time.Minute},
		"a long one, no bound": {rate: 1 << 10, hot: true},
	} {
		said.Reset()
		to, o := t.TempDir(), SaveOptions{Logf: logf}
		if test.left > 0 {
			o.Until = time.Now().Add(test.left)
		}
		if _, err := writeSave(t.Context(), m.dir, filepath.Join(to, contract.SaveFile), 1, o, test.rate); err != nil {
			t.Fatal(err)
		}
		pages := inSlots(t, to)
		times := make([]uint32, len(pages))
		for i, page := range pages {
			times[i] = used[page]
		}
		switch {
		case test.hot && !slices.IsSortedFunc(times, func(a, b uint32) int { return int(b) - int(a) }):
			t.Errorf("%s: pages were written that were last used at %v", name, times)
		case !test.hot && !slices.IsSorted(pages):
			t.Errorf("%s: written were %v", name, pages)
		case test.said != strings.Contains(said.String(), "the most recently used items are saved first"):
			t.Errorf("%s: it said %q", name, said.String())
		}
	}
}

// setLastUse gives each item in the file a time of last use, and returns the latest of each page.
func setLastUse(t *testing.T, dir string) map[int]uint32 {
	t.Helper()
	path := filepath.Join(dir, contract.WarmFile)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	used := map[int]uint32{}
	for i := range 3 {
		for n := range perSize {
			key := []byte(fmt.Sprintf("<%d:%d>", i, n))
			const keyAt, timeAt, page = 48 + 8, 24, 1 << 20
			at := bytes.Index(file, append(slices.Clone(key), 0)) - keyAt
			last := uint32(100 + rand.IntN(10_000))
			binary.LittleEndian.PutUint32(file[at+timeAt:], last)
			for p := range len(file) / page {
				if bytes.Contains(file[p*page:][:page], key) {
					used[p] = max(used[p], last)
				}
			}
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return used
}

// inSlots returns the pages of the save in dir, in the order of its slots.
func inSlots(t *testing.T, dir string) (pages []int) {
	t.Helper()
	p := piecesOf(t, dir)
	for at := p.body; at < p.end; at += p.slot {
		pages = append(pages, int(binary.LittleEndian.Uint64(p.sound[at+24:])>>20))
	}
	if len(pages) < perSize {
		t.Fatal("the save has only " + strconv.Itoa(len(pages)) + " pages")
	}
	return pages
}

// A save may be cut short if it takes long, whatever the grace period is, or if it may not end in time.
func TestWhichSavesMayBeCutShort(t *testing.T) {
	t.Parallel()
	m := startMember(t, memcachedtest.FewPages()...)
	m.Raw().Must("STORED", "set a 0 0 1", []byte("b"))
	m.Save()
	in, header, err := survey(m.dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	size, err := header.SaveBytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		takes, left int64 // in seconds; 0 is unlimited
		long, said  bool
	}{
		"a short save":                {takes: 1, left: 3600},
		"a long one":                  {takes: 20, left: 3600, long: true},
		"one too long":                {takes: 20, left: 30, long: true, said: true},
		"a short one, too long":       {takes: 2, left: 3, long: true, said: true},
		"a short one after a crash":   {takes: 1},
		"a long one after a crash":    {takes: 20, long: true},
		"at a rate that is not known": {left: 1},
	} {
		said := false
		o := SaveOptions{Logf: func(string, ...any) { said = true }}
		if test.left > 0 {
			o.Until = time.Now().Add(time.Duration(test.left) * time.Second)
		}
		rate := int64(0)
		if test.takes > 0 {
			rate = size / test.takes
		}
		if long := o.long(header, rate); long != test.long || said != test.said {
			t.Errorf("%s: %v, and said: %v", name, long, said)
		}
	}
}
