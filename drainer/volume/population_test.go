package volume

import (
	"iter"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 12) }

// member is a memcached with a warm file.
type member struct {
	*memcachedtest.Mapped
	t   testing.TB
	dir string
}

func startMember(t testing.TB, args ...string) *member {
	t.Helper()
	dir := t.TempDir()
	return &member{memcachedtest.StartMapped(t, filepath.Join(dir, contract.WarmFile), args...), t, dir}
}

// crash kills memcached, and leaves a manifest like the supervisor's.
func (m *member) crash() {
	m.t.Helper()
	m.writeManifest(Manifest{State: Running, Image: m.image()})
	m.Kill()
}

func (m *member) image() *warmfile.Image {
	m.t.Helper()
	image := &warmfile.Image{}
	if err := image.Ask(m.Dial(), m.PID(), m.Path, m.Args); err != nil {
		m.t.Fatal(err)
	}
	return image
}

func (m *member) writeManifest(manifest Manifest) {
	m.t.Helper()
	writeManifest(m.t, m.dir, manifest)
}

func writeManifest(t testing.TB, dir string, manifest Manifest) {
	t.Helper()
	if manifest.BootID == "" {
		manifest.BootID = BootID()
	}
	b, err := manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, contract.Manifest), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wait returns when the server's clock has moved on by more than a second.
func (m *member) wait() {
	m.t.Helper()
	m.WaitSecond(m.t)
}

func newPopulation(m *member, seed uint64) *memcachedtest.Population {
	return memcachedtest.NewPopulation(m.t, m.Server, seed)
}

// readAll returns the live items and the number of all items.
func readAll(t testing.TB, dir string) (map[string]memcachedtest.Held, int64) {
	t.Helper()
	r, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	live, n := memcachedtest.ReadAll(t, r.Items(t.Context()))
	if r.Done() != r.Size() {
		t.Errorf("read %d of %d bytes", r.Done(), r.Size())
	}
	const readers = 3
	if together, count := readTogether(t, r.Shares(t.Context(), readers)); count != n || !maps.Equal(together, live) {
		t.Errorf("%d goroutines read %d items, %d of them live, one reads %d and %d", readers, count, len(together), n, len(live))
	}
	return live, n
}

// readTogether reads the shares at the same time.
func readTogether(t testing.TB, shares []iter.Seq2[*item.Item, error]) (live map[string]memcachedtest.Held, n int64) {
	live = map[string]memcachedtest.Held{}
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, items := range shares {
		reading.Go(func() {
			for it, err := range items {
				mu.Lock()
				if n++; err != nil {
					t.Error(err)
				} else if it.State == item.Live {
					live[string(it.Key)] = memcachedtest.Held{Value: string(it.Value), Flags: it.Flags, ExpireAt: it.ExpireAt}
				}
				mu.Unlock()
			}
		})
	}
	reading.Wait()
	return live, n
}
