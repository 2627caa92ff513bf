package move

import (
	"bufio"
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/memcache"
)

func TestDecodeKey(t *testing.T) {
	for encoded, want := range map[string]string{"key%3A1": "key:1", "%00%20a": "\x00 a", "plain": "plain", "%e2%82%ac": "€"} {
		if got, err := appendDecoded(nil, []byte(encoded)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", encoded, got, err, want)
		}
	}
	for _, bad := range []string{"", "a%", "a%4", "a%zz", strings.Repeat("a", 251)} {
		if got, err := appendDecoded(nil, []byte(bad)); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// The lines are from different versions.
func TestParseEntry(t *testing.T) {
	for _, line := range []string{
		"key=a%3Ab exp=2000 la=1000 cas=5 fetch=no cls=1 size=62",
		"key=a%3Ab exp=2000 la=1000 cas=5 fetch=no cls=1 size=62 flags=7",
	} {
		if e, err := parsed([]byte(line)); err != nil || string(e.Key) != "a:b" || e.ExpireAt != 2000 || e.LastAccess != 1000 {
			t.Errorf("%q: %+v, %v", line, e, err)
		}
	}
	if e, err := parsed([]byte("key=a exp=-1 la=1")); err != nil || e.ExpireAt != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, line := range []string{"", "key=a", "exp=1 la=1", "key=a exp=-2 la=1", "key=a exp=x la=1", "key=a la=1 la=2 la=3", "exp=0 exp=0 la=0", "key=a exp=0 exp=0"} {
		if e, err := parsed([]byte(line)); err == nil {
			t.Errorf("%q became %+v", line, e)
		}
	}
}

// Each file is what a memcached of that version has answered to "lru_crawler metadump all", byte for byte: before 1.5.4
// without an end.
func TestListingsOfEachVersionAreRead(t *testing.T) {
	files, err := filepath.Glob("testdata/listings/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d listings: %v", len(files), err)
	}
	want := map[string]int64{"plain": 0, "colon:slash/%": 0, "\xc3\xa9": 0, "two words": 0, strings.Repeat("k", 250): 0, "expires": 5000}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		version := filepath.Base(path)
		l := &List{}
		l.from(version)
		got, ended := map[string]int64{}, false
		for line := range bytes.Lines(append(text, "VERSION "+version+"\r\n"...)) {
			line = bytes.TrimRight(line, "\r\n")
			end, err := EndsListing(line)
			if ended = end || l.ends(line); ended || err != nil {
				break
			}
			if string(line) == "OK" {
				continue
			}
			e, err := parsed(line)
			if err != nil {
				t.Errorf("%s: %v", version, err)
				break
			}
			left := e.ExpireAt
			if left != 0 { // memcached's clock has seconds, and starts a little late
				left = (e.ExpireAt - e.LastAccess + 50) / 100 * 100
			}
			got[string(e.Key)] = left
			if sized := !memcache.IsOlder(version, firstEnd); sized != (e.Size > 0) || e.CAS == 0 {
				t.Errorf("%s: %+v", version, e)
			}
		}
		if !ended || !maps.Equal(got, want) {
			t.Errorf("%s: %v, which has ended: %t", version, got, ended)
		}
	}
}

// parsed returns the entry of a line.
func parsed(line []byte) (e Entry, err error) {
	err = e.parse(line)
	return e, err
}

// The keys and numbers are the shortest and the longest.
func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	var want []Entry
	for i := range 1000 {
		want = append(want, Entry{Key: bytes.Repeat([]byte{byte(i)}, 1+i%250), ExpireAt: math.MaxInt64 >> (i % 64), LastAccess: -int64(i), Size: 1 << (i % 63)})
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "list"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []byte
	for i := range want {
		all = want[i].appendTo(all)
	}
	if _, err := file.Write(all); err != nil {
		t.Fatal(err)
	}
	l := &List{file: file}
	for range 2 { // from the beginning each time
		n := 0
		for got, err := range l.All() {
			if err != nil {
				t.Fatal(err)
			}
			if e := &want[n]; !bytes.Equal(got.Key, e.Key) || got.ExpireAt != e.ExpireAt || got.LastAccess != e.LastAccess || got.Size != e.Size {
				t.Errorf("entry %d is %+v, want %+v", n, got, e)
			}
			n++
		}
		if n != len(want) {
			t.Errorf("%d entries, want %d", n, len(want))
		}
	}
	if err := file.Truncate(int64(len(all)) - 1); err != nil {
		t.Fatal(err)
	}
	for _, err = range l.All() {
		continue
	}
	if err == nil {
		t.Error("a list that was cut has no error")
	}
}

// A listing can have millions of items.
func TestAListingTakesNoMemoryForEachItem(t *testing.T) {
	line := []byte("key=a%3Ab%20long%20one exp=2000000000 la=1700000000 cas=5 fetch=no cls=1 size=62")
	var e Entry
	var record []byte
	source := bytes.NewReader(nil)
	r := bufio.NewReader(source)
	if n := testing.AllocsPerRun(1000, func() {
		if err := e.parse(line); err != nil {
			t.Fatal(err)
		}
		record = e.appendTo(record[:0])
		source.Reset(record)
		r.Reset(source)
		var read Entry
		if err := read.readFrom(r); err != nil || string(read.Key) != "a:b long one" {
			t.Fatalf("%+v, %v", read, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The result for any line is a possible key or an error.
func FuzzParseEntry(f *testing.F) {
	f.Add([]byte("key=a%3Ab exp=-1 la=1000 cas=5 fetch=no cls=1 size=62"))
	f.Add([]byte("OK"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parsed(line)
		if err == nil && (len(e.Key) < 1 || len(e.Key) > 250 || e.ExpireAt < 0) {
			t.Errorf("%q became %+v", line, e)
		}
	})
}

// BenchmarkParse measures the cost of an item in a listing.
func BenchmarkParse(b *testing.B) {
	line := []byte("key=key%3A00000001234 exp=-1 la=1700000000 cas=1234567 fetch=no cls=1 size=132")
	var e Entry
	for b.Loop() {
		if err := e.parse(line); err != nil {
			b.Fatal(err)
		}
	}
}
