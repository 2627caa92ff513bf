package export

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/test/tier"
)

// memcached increments numbers in place, and overwrites the rest with blanks. memcached writes the new CAS
// first. Each copy is whole nevertheless.
func TestANumberThatChangesInPlace(t *testing.T) {
	const size = 400_000
	increments := 1500
	if tier.All() {
		increments = 10_000
	}
	tr := &trial{t: t, m: memcachedtest.StartMapped(t, filepath.Join(t.TempDir(), "file"), "-m", "48", "-f", "2", "-t", "2")}
	raw := tr.m.Raw()
	blank := strings.Repeat(" ", size)
	text := []byte("0" + strings.Repeat("x", size))
	text[1] = ' '
	for i := range 3 { // with neighbours, because an item that is alone in its LRU is asked for
		raw.Must("STORED", "set neighbour"+itoa(i)+" 0 0 "+itoa(len(text)), text)
	}
	file, err := os.Open(tr.m.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var busy atomic.Bool
	var client sync.WaitGroup
	busy.Store(true)
	client.Go(func() {
		defer busy.Store(false)
		for n := range increments {
			if n%10 == 0 {
				raw.Must("STORED", "set number 0 0 "+itoa(len(text)), text)
			}
			raw.Must(itoa(n%10+1), "incr number 1", nil)
		}
	})
	defer client.Wait()
	r := tr.reader(tr.m.DialFor(t), file)
	defer r.Close()
	accepted, asked := 0, 0
	var it item.Item
	b := &Batch{}
	for page := 0; busy.Load(); page = (page + 1) % r.Pages() {
		b.rewind(mark{})
		if err := r.Read(page, everything, func(key []byte) bool { return string(key) == "number" }, b); err != nil {
			t.Fatal(err)
		}
		asked += len(b.asks)
		for rest := b.Records; len(rest) > 0; {
			if rest, err = NextItem(rest, &it); err != nil {
				t.Fatal(err)
			}
			accepted++
			digits := bytes.TrimRight(it.Value, " ")
			if !bytes.Equal(it.Value, text) && (len(digits) > 2 || string(it.Value[len(digits):]) != blank[:len(it.Value)-len(digits)]) {
				t.Fatalf("CAS %d: a number that is half written: %.40q…, %d bytes without the blanks at the end", it.CAS, it.Value, len(digits))
			}
		}
	}
	t.Logf("%d accepted, %d to be asked for", accepted, asked)
	if accepted == 0 {
		t.Error("none was read")
	}
}
