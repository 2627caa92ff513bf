package warmfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
)

// With -update, and MEMCACHED_LARGE, the test writes testdata again.
var update = flag.Bool("update", false, "make testdata again")

// slots is the number of slots on a page of the smallest slab class.
const slots = SlabPageSize / 8192

// held returns the items in the files of testdata. A memcached 1.6.45 that was built with
// --enable-large-client-flags has saved them.
func held(file string) map[string]memcachedtest.Held {
	all := map[string]memcachedtest.Held{}
	if file == "first" {
		// A page is filled from its end: its first slot gets the chunked item.
		for i := range slots - 1 {
			all[fmt.Sprintf("filler:%d", i)] = memcachedtest.Held{Value: "value"}
		}
		all["last"] = memcachedtest.Held{Value: strings.Repeat("x", 60_000), Flags: 1 << 40}
		return all
	}
	for i := range 300 {
		// The value ends as one that is four bytes shorter would with flags of 32 bits.
		all[fmt.Sprintf("header:%d", i)] = memcachedtest.Held{Value: fmt.Sprintf("HTTP/1.1 200 OK\r\nAge: %d\r\n\r\n", i), Flags: uint64(i + 1)}
	}
	if file == "headers" {
		return all
	}
	for i, flags := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<64 - 1} {
		all[fmt.Sprintf("flags:%d", i)] = memcachedtest.Held{Value: "value", Flags: flags}
		all[fmt.Sprintf("chunked:%d", i)] = memcachedtest.Held{Value: strings.Repeat("x", 60_000+i), Flags: flags}
	}
	return all
}

// largeFile returns a file of testdata, and its .meta.
func largeFile(t *testing.T, name string) ([]byte, *Image) {
	t.Helper()
	path := filepath.Join("testdata", "large-client-flags-"+name)
	if *update {
		saveLarge(t, path, held(name))
	}
	meta, err := os.ReadFile(path + ".meta")
	if err != nil {
		t.Fatal(err)
	}
	image, err := ParseMeta(meta)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Open(path + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data, image
}

func saveLarge(t *testing.T, path string, all map[string]memcachedtest.Held) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	s := memcachedtest.StartLarge(t, "-e", file, "-m", "8", "-o", "no_lru_crawler,no_lru_maintainer,slab_chunk_max=32,slab_sizes=8192-16384")
	raw := s.Raw()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		h := all[key]
		raw.Must("STORED", fmt.Sprintf("set %s %d 0 %d", key, h.Flags, len(h.Value)), []byte(h.Value))
	}
	s.Save()
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	data, err := os.ReadFile(file)
	if err == nil {
		_, err = w.Write(data)
	}
	meta, metaErr := os.ReadFile(file + ".meta")
	if err = errors.Join(err, w.Close(), metaErr, os.MkdirAll("testdata", 0o755),
		os.WriteFile(path+".gz", packed.Bytes(), 0o644), os.WriteFile(path+".meta", meta, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// The file of a build with 64-bit client flags is read exactly, after a save and after a crash, if its build
// is known, or if one item shows it.
func TestLargeClientFlagsAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		file       string
		flagsBytes int
	}{
		"known":                           {"all", item.LargeFlags},
		"known, and no item shows it":     {"headers", item.LargeFlags},
		"shown":                           {"all", 0},
		"a chunked item is the first one": {"first", item.LargeFlags},
		"the same, and it shows it":       {"first", 0},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean %t", name, clean), func(t *testing.T) {
				data, image := largeFile(t, test.file)
				image.FlagsBytes = test.flagsBytes
				if flags := u16(data, offFlags); test.file == "first" && flags&(flagLinked|flagChunked|flagClient) != flagLinked|flagChunked|flagClient {
					t.Fatalf("the first item has flags %#x", flags)
				}
				r, err := New(bytes.NewReader(data), int64(len(data)), image, clean, time.Now)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := memcachedtest.ReadAll(t, r.Items(t.Context()))
				memcachedtest.Compare(t, got, held(test.file))
			})
		}
	}
}

// If nothing shows the layout of the items, or something shows a wrong one, the file is refused.
func TestNoLayoutIsGuessed(t *testing.T) {
	for name, test := range map[string]struct {
		file       string
		flagsBytes int
		want       string
	}{
		"every item fits both": {"headers", 0, "every item fits both"},
		"it is said wrongly":   {"all", item.SmallFlags, "a value that ends in"},
	} {
		data, image := largeFile(t, test.file)
		image.FlagsBytes = test.flagsBytes
		if _, err := readFile(t, data, image, true); !errors.Is(err, ErrUnknownLayout) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The file of a usual build is also read if the build is unknown. A file without flags fits any build.
func TestSmallFlagsAreShown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags string
		want  int
	}{"with flags": {"5", item.SmallFlags}, "without": {"0", 0}} {
		m := startMember(t)
		raw := m.Raw()
		for i := range 500 {
			raw.Must("STORED", "set key"+itoa(i)+" "+test.flags+" 0 10", []byte("01234567\r\n"))
		}
		raw.Must("STORED", "set large "+test.flags+" 0 600000", make([]byte, 600000))
		m.Save()
		image := m.saved()
		image.FlagsBytes = 0
		data := m.read(m.Path)
		r, err := New(bytes.NewReader(data), int64(len(data)), image, true, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.FlagsBytes(t.Context()); err != nil || n != test.want {
			t.Errorf("%s: %d, %v; want %d", name, n, err, test.want)
		}
		if n, err := r.Count(t.Context()); err != nil || n != 501 {
			t.Errorf("%s: %d items, %v", name, n, err)
		}
	}
}
