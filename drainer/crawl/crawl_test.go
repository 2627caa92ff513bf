package crawl

import (
	"strings"
	"testing"
)

func TestDecodeKey(t *testing.T) {
	for encoded, want := range map[string]string{"key%3A1": "key:1", "%00%20a": "\x00 a", "plain": "plain", "%e2%82%ac": "€"} {
		if got, err := decodeKey([]byte(encoded)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", encoded, got, err, want)
		}
	}
	for _, bad := range []string{"", "a%", "a%4", "a%zz", strings.Repeat("a", 251)} {
		if got, err := decodeKey([]byte(bad)); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// TestParseEntry: the lines of different versions.
func TestParseEntry(t *testing.T) {
	for _, line := range []string{
		"key=a%3Ab exp=2000 la=1000 cas=5 fetch=no cls=1 size=62",
		"key=a%3Ab exp=2000 la=1000 cas=5 fetch=no cls=1 size=62 flags=7",
	} {
		if e, err := parseEntry([]byte(line)); err != nil || string(e.Key) != "a:b" || e.ExpireAt != 2000 || e.LastAccess != 1000 {
			t.Errorf("%q: %+v, %v", line, e, err)
		}
	}
	if e, err := parseEntry([]byte("key=a exp=-1 la=1")); err != nil || e.ExpireAt != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, line := range []string{"", "key=a", "exp=1 la=1", "key=a exp=-2 la=1", "key=a exp=x la=1", "key=a la=1 la=2 la=3", "exp=0 exp=0 la=0", "key=a exp=0 exp=0"} {
		if e, err := parseEntry([]byte(line)); err == nil {
			t.Errorf("%q became %+v", line, e)
		}
	}
}

// FuzzParseEntry: whatever a line holds, it becomes a possible key or an error.
func FuzzParseEntry(f *testing.F) {
	f.Add([]byte("key=a%3Ab exp=-1 la=1000 cas=5 fetch=no cls=1 size=62"))
	f.Add([]byte("OK"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseEntry(line)
		if err == nil && (len(e.Key) < 1 || len(e.Key) > 250 || e.ExpireAt < 0) {
			t.Errorf("%q became %+v", line, e)
		}
	})
}
