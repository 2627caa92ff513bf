package warmfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 12) }

// member is a memcached with a warm file.
type member struct {
	*memcachedtest.Mapped
	t testing.TB
}

func startMember(t testing.TB, args ...string) *member {
	t.Helper()
	return &member{memcachedtest.StartMapped(t, filepath.Join(t.TempDir(), "file"), memcachedtest.FewPages(append([]string{"-m", "48"}, args...)...)...), t}
}

// image returns the running server's description.
func (m *member) image() *Image {
	m.t.Helper()
	image := &Image{}
	if err := image.Ask(m.Dial(), m.PID(), m.Path, m.Args); err != nil {
		m.t.Fatal(err)
	}
	return image
}

// saved returns the .meta that the server left beside its file.
func (m *member) saved() *Image {
	m.t.Helper()
	image, err := ParseMeta(m.read(m.Path + ".meta"))
	if err != nil {
		m.t.Fatal(err)
	}
	return image
}

func (m *member) read(path string) []byte {
	m.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return data
}

// readFile reads all items of a file.
func readFile(t testing.TB, data []byte, image *Image, clean bool) (items []item.Item, err error) {
	t.Helper()
	r, err := New(bytes.NewReader(data), int64(len(data)), image, clean, time.Now)
	if err != nil {
		return nil, err
	}
	for it, err := range r.Items(t.Context()) {
		if err != nil {
			return items, err
		}
		items = append(items, *it)
	}
	return items, nil
}

// findItem returns the offset of the linked item with the key.
func findItem(t testing.TB, file []byte, key string) int64 {
	t.Helper()
	for at := 0; at < len(file); {
		i := bytes.Index(file[at:], []byte(key))
		if i < 0 {
			break
		}
		start := at + i - itemHeader - 8
		if start >= 0 && file[start+offFlags]&flagLinked != 0 && int(file[start+offKeyLen]) == len(key) {
			return int64(start)
		}
		at += i + 1
	}
	t.Fatalf("no item %q in the file", key)
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }
