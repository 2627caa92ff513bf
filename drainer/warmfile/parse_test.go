package warmfile

import (
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

func TestAMetaIsParsedOrRefused(t *testing.T) {
	m, err := ParseMeta([]byte(memcachedtest.Meta))
	if err != nil {
		t.Fatal(err)
	}
	if m.MaxBytes != 64<<20 || m.ProcessStarted != 1795202756 || m.StopTime != 1795202824 ||
		m.Base != 0x7fdef0800000 || !m.UseCAS || m.OldestLive != 3 || m.OldestCAS != 7 || m.SlabConfig != "1.25" {
		t.Errorf("ParseMeta = %+v", m)
	}
	without := func(key string) string {
		i := strings.Index(memcachedtest.Meta, "K"+key+" ")
		if i < 0 {
			return memcachedtest.Meta
		}
		return memcachedtest.Meta[:i] + memcachedtest.Meta[i+strings.Index(memcachedtest.Meta[i:], "\n")+1:]
	}
	with := func(key, value string) string {
		return strings.Replace(without(key), "Tmain\n", "Tmain\nK"+key+" "+value+"\n", 1)
	}
	for name, ok := range map[string]string{
		"1.6.25 and later":  without("oldest_cas"),
		"a key of tomorrow": with("new_key", "x y z"),
	} {
		if _, err := ParseMeta([]byte(ok)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]string{
		"empty":                "",
		"no tag":               memcachedtest.Meta[6:],
		"another tag":          "Tother\n" + memcachedtest.Meta[6:],
		"cut inside a line":    memcachedtest.Meta[:len(memcachedtest.Meta)-5],
		"a line missing":       without("oldest_live"),
		"a line twice":         memcachedtest.Meta + "Khashpower 18\n",
		"a line without K":     memcachedtest.Meta + "hashpower 18\n",
		"an empty line":        memcachedtest.Meta + "\n",
		"a key without value":  memcachedtest.Meta + "Knothing\n",
		"page size 0":          with("slab_page_size", "0"),
		"huge page size":       with("slab_page_size", "1073741824"),
		"largest chunk 0":      with("slab_chunk_size_max", "0"),
		"chunk over page":      with("slab_chunk_size_max", "2097152"),
		"no whole pages":       with("maxbytes", "67108865"),
		"maxbytes overflows":   with("maxbytes", "99999999999999999999"),
		"negative":             with("chunk_size", "-1"),
		"use_cas maybe":        with("use_cas", "maybe"),
		"process_started 0":    with("process_started", "0"),
		"a huge hash table":    with("hashpower", "33"),
		"hashpower overflows":  with("hashpower", "9223372036854775807"),
		"current_cas word":     with("current_cas", "x"),
		"logger_gid negative":  with("logger_gid", "-1"),
		"base 0":               with("mmap_oldbase", "0x0"),
		"base word":            with("mmap_oldbase", "0xzz"),
		"oldest_live too much": with("oldest_live", "4294967296"),
	} {
		if m, err := ParseMeta([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// If slab_config shows no classes, and the server has told none, no reader guesses them.
func TestAFileWithUnknownSlabClassesIsNotRead(t *testing.T) {
	for _, config := range []string{"1", "nan", "inf", "x", "100-x", "2x"} {
		image, err := ParseMeta([]byte(memcachedtest.Meta))
		if err != nil {
			t.Fatal(err)
		}
		image.SlabConfig = config
		if _, err := New(strings.NewReader(""), 0, image, true, time.Now); !IsReason(err, ReasonCorrupt) {
			t.Errorf("%q: %v", config, err)
		}
		image.Classes = []int{96, image.SlabChunkMax}
		if _, err := New(strings.NewReader(""), 0, image, true, time.Now); err != nil {
			t.Errorf("%q, and told: %v", config, err)
		}
	}
}

// The sizes are those that memcached 1.6.18 prints with -vv.
func TestClassesHaveTheSizesThatMemcachedPrints(t *testing.T) {
	tests := map[string]struct {
		image Image
		want  string
		n     int
	}{
		"default":         {Image{SlabConfig: "1.25", ChunkSize: 48, SlabChunkMax: 512 << 10}, "96 120 152 192 240 304 384 480 600 752", 39},
		"listed":          {Image{SlabConfig: "100-200-1000", ChunkSize: 48, SlabChunkMax: 512 << 10}, "104 200 1000 524288", 4},
		"told":            {Image{SlabConfig: "?", SlabChunkMax: 1000, SlabPageSize: 2000, Classes: []int{100, 1000}}, "100 1000", 2},
		"a slow growth":   {Image{SlabConfig: "1.0001", ChunkSize: 48, SlabChunkMax: 512 << 10}, "96 96 96", maxClass},
		"nothing smaller": {Image{SlabConfig: "2", ChunkSize: 1000, SlabChunkMax: 1100}, "1100", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sizes, err := test.image.classes()
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, n := range sizes[1:] {
				words = append(words, itoa(n))
			}
			if got := strings.Join(words, " "); !strings.HasPrefix(got, test.want) || len(words) != test.n {
				t.Errorf("%d classes %s, want %d: %s", len(words), got, test.n, test.want)
			}
		})
	}
}

func TestFlushesByCAS(t *testing.T) {
	for version, want := range map[string]bool{"1.5.18": true, "1.6.9": true, "1.6.24": true, "1.6.24_beta1": true,
		"1.6.25": false, "1.6.45": false, "1.7.0": false, "2.0.0": false, "": true, "1.6": true, "x.y.z": true} {
		if got := flushesByCAS(version); got != want {
			t.Errorf("flushesByCAS(%q) = %t", version, got)
		}
	}
}

func TestTheSlabConfigIsFoundInTheCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"memcached -m 64": "1.25", "memcached -f 1.250": "1.250", "memcached -f2": "2",
		"memcached --slab-growth-factor=1.1": "1.1", "memcached --slab-growth-factor 1.3": "1.3",
		"memcached -o modern,slab_sizes=100-200,x -f 2": "100-200",
	} {
		if got := SlabConfig(strings.Fields(line)); got != want {
			t.Errorf("SlabConfig(%q) = %q, want %q", line, got, want)
		}
	}
}
