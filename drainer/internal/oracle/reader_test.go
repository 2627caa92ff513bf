package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 8) }

func startMember(t *testing.T, args ...string) (*memcachedtest.Server, string) {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"-m", "200"}, args...)
	return memcachedtest.StartMapped(t, filepath.Join(dir, contract.WarmFile), args...).Server, dir
}

func open(t *testing.T, dir string, o Options) *Reader {
	t.Helper()
	if o.Scratch == "" {
		o.Scratch = t.TempDir()
	}
	o.Memcached = memcachedtest.Binary(t)
	r, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := os.ReadDir(o.Scratch); len(left) > 0 {
			t.Errorf("left behind in the scratch space: %v", left)
		}
	})
	return r
}

// From the same saved file, the direct reader and memcached itself give the same items: every byte, flag,
// time and number. The population has all changes of items, including flushes.
func TestTheReaderAgreesWithMemcached(t *testing.T) {
	for name, test := range memcachedtest.Settings() {
		for _, flush := range []string{"", "flush_all", "flush_all 1000"} {
			if flush != "" && name != "default" && name != "no CAS" {
				continue
			}
			t.Run(strings.TrimSpace(name+" "+flush), func(t *testing.T) {
				if name != "default" || flush != "flush_all" {
					tier.Second(t, "TestTheReaderAgreesWithMemcached")
				}
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				s, dir := startMember(t, test.Args...)
				p := memcachedtest.NewPopulation(t, s, seed)
				steps := 400
				if test.Most > 1<<20 {
					steps = 100
				}
				p.Populate(steps, test)
				if flush != "" {
					s.Raw().Must("OK", flush, nil)
					s.WaitSecond(t) // without CAS, items of the same second can't be told apart
					for range steps / 2 {
						p.Step(test.Most)
					}
				}
				s.WaitSecond(t) // until the short-lived items have expired
				s.Save()
				agree(t, dir)
				saved := t.TempDir()
				if err := volume.Pack(t.Context(), dir, filepath.Join(saved, contract.SaveFile), 1); err != nil {
					t.Fatal(err)
				}
				agree(t, saved)
			})
		}
	}
}

// agree reads dir both ways and compares.
func agree(t *testing.T, dir string) {
	t.Helper()
	direct, err := volume.Open(dir, volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	a, b := collect(t, direct), collect(t, open(t, dir, Options{}))
	if a.all != b.all {
		t.Errorf("%d items in the file, memcached took up %d", a.all, b.all)
	}
	problems := 0
	report := func(format string, args ...any) {
		if problems++; problems <= 5 {
			t.Errorf(format, args...)
		}
	}
	for key, x := range a.live {
		y, ok := b.live[key]
		if !ok {
			report("only the direct reader finds %.60q", key)
			continue
		}
		if !bytes.Equal(x.Value, y.Value) {
			report("%.60q: values of %d and %d bytes differ", key, len(x.Value), len(y.Value))
		}
		if strings.ContainsAny(key, " \x00\r\n") {
			x.BinaryKey = y.BinaryKey // it has to be encoded, whatever was recorded
		}
		x.Key, x.Value, y.Key, y.Value, x.Page, x.Place = nil, nil, nil, nil, nil, 0
		if fmt.Sprint(x) != fmt.Sprint(y) {
			report("%.60q: %+v and %+v differ", key, x, y)
		}
	}
	for key := range b.live {
		if _, ok := a.live[key]; !ok {
			report("only the restart reader finds %.60q", key)
		}
	}
	if len(a.live) == 0 || problems > 0 {
		t.Errorf("%d differences between %d and %d live items", problems, len(a.live), len(b.live))
	}
}

type collected struct {
	live map[string]item.Item
	all  int64
}

func collect(t *testing.T, r interface {
	Items(ctx context.Context) iter.Seq2[*item.Item, error]
}) collected {
	t.Helper()
	c := collected{live: map[string]item.Item{}}
	for it, err := range r.Items(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		c.all++
		if it.State != item.Live {
			continue
		}
		copied := *it
		copied.Key, copied.Value = nil, bytes.Clone(it.Value)
		c.live[string(it.Key)] = copied
	}
	return c
}

// saved returns the directory of a member that saved n small items.
func saved(t *testing.T, n int) string {
	t.Helper()
	s, dir := startMember(t)
	raw := s.Raw()
	for i := range n {
		raw.Must("STORED", "set key"+strconv.Itoa(i)+" 0 0 5", []byte("value"))
	}
	s.Save()
	return dir
}

// The lack of room is found before anything is copied, and the error has the sizes.
func TestTooLittleScratch(t *testing.T) {
	t.Parallel()
	dir, scratch := saved(t, 1000), t.TempDir()
	_, err := Open(dir, Options{Scratch: scratch, Memcached: memcachedtest.Binary(t), free: func(string) (int64, error) { return 3 << 20, nil }})
	var room *RoomError
	if !errors.As(err, &room) || errors.Is(err, warmfile.ErrUnrecoverable) {
		t.Fatalf("%v", err)
	}
	size, err := allocated(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("needs %d MiB in %s for a copy of the warm file, 3 MiB are free", (size+1<<20-1)>>20, scratch)
	if size < 4<<20 || !strings.Contains(room.Error(), want) {
		t.Errorf("%q, want %q", room, want)
	}
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("%v was made before", left)
	}
}

// A file from which memcached would not resume is refused before anything is copied or started.
func TestNeedsASave(t *testing.T) {
	t.Parallel()
	dir := saved(t, 100)
	good, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, meta := range map[string][]byte{
		"no .meta":            nil,
		"empty":               {},
		"cut in a line":       good[:len(good)/2],
		"without its end":     good[:len(good)-1],
		"of another file":     bytes.Replace(good, []byte("maxbytes 209715200"), []byte("maxbytes 104857600"), 1),
		"a size that is none": bytes.Replace(good, []byte("chunk_size 48"), []byte("chunk_size x"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, contract.MetaFile)
			err := os.WriteFile(path, meta, 0o600)
			if meta == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir, Options{Scratch: t.TempDir(), Memcached: "/bin/false"}); !errors.Is(err, warmfile.ErrUnrecoverable) {
				t.Errorf("Open = %v", err)
			}
		})
	}
}

// A memcached that starts empty is recognised by its time of start.
func TestAMemcachedThatStartsEmptyIsNeverBelieved(t *testing.T) {
	t.Parallel()
	dir := saved(t, 100)
	r := open(t, dir, Options{})
	r.image.ChunkSize += 8                      // so that memcached runs with another -n
	r.image.Items, r.image.ItemsExact = 0, true // so that no count shows it, either
	mustReject(t, r)
}

// first returns the first thing that a reader yields, nothing if it ends at once.
func first(t *testing.T, r *Reader) (it *item.Item, err error) {
	t.Helper()
	for it, err = range r.Items(t.Context()) {
		return it, err
	}
	return nil, nil
}

func mustReject(t *testing.T, r *Reader) {
	t.Helper()
	it, err := first(t, r)
	var refusal *warmfile.Error
	if !errors.As(err, &refusal) || refusal.Reason != reasonRejected {
		t.Errorf("%v, %v", it, err)
	}
}

// An empty memcached is believed only if the items were counted after the save, and there were none.
func TestNothingTakenUp(t *testing.T) {
	t.Parallel()
	r := open(t, saved(t, 0), Options{})
	mustReject(t, r)
	r.image.ItemsExact = true
	if it, err := first(t, r); it != nil || err != nil {
		t.Errorf("counted, none: %v, %v", it, err)
	}
}

// A program that isn't memcached, or dies at once, gives an error in words.
func TestAProgramThatIsNoMemcachedIsAnErrorInWords(t *testing.T) {
	t.Parallel()
	dir := saved(t, 1)
	if _, err := Open(dir, Options{Scratch: t.TempDir(), Memcached: "no-such-memcached"}); err == nil || !strings.Contains(err.Error(), "no-such-memcached") {
		t.Errorf("Open = %v", err)
	}
	r := open(t, dir, Options{})
	r.program = "/bin/false"
	for _, err := range r.Items(t.Context()) {
		if err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%v", err)
		}
	}
}

// A save that is in the future by this node's clock is resumed from, with unchanged times of expiry. A save
// of this very second is waited for.
func TestASaveFromTheFutureIsTakenUp(t *testing.T) {
	t.Parallel()
	s, dir := startMember(t)
	s.Raw().Must("STORED", "set key 5 3000 5", []byte("value"))
	s.Save()
	direct, err := volume.Open(dir, volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	want := collect(t, direct).live["key"].ExpireAt
	if got := collect(t, open(t, dir, Options{})).live["key"].ExpireAt; got != want || want == 0 {
		t.Errorf("in the second of the save: it expires at %d, want %d", got, want)
	}
	meta, err := volume.ReadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, contract.MetaFile)
	data, err := os.ReadFile(path)
	if err == nil {
		later := strconv.FormatInt(meta.StopTime+1000, 10)
		data = bytes.Replace(data, []byte("stop_time "+strconv.FormatInt(meta.StopTime, 10)), []byte("stop_time "+later), 1)
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, open(t, dir, Options{})).live["key"].ExpireAt; got != want {
		t.Errorf("1000 s ahead: it expires at %d, want %d", got, want)
	}
}

// If memcached counts an item that it doesn't list, or lists one twice, that is an error.
func TestListIsReconciled(t *testing.T) {
	t.Parallel()
	dir := saved(t, 100)
	r := open(t, dir, Options{})
	for name, change := range map[string]func([]*move.Entry) []*move.Entry{
		"as it is":    func(list []*move.Entry) []*move.Entry { return list },
		"one fewer":   func(list []*move.Entry) []*move.Entry { return list[1:] },
		"one twice":   func(list []*move.Entry) []*move.Entry { return append(list, list[0]) },
		"none at all": func([]*move.Entry) []*move.Entry { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := r.started(t)
			l, err := s.list(t.Context(), s.work.Name())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var list []*move.Entry
			for e, err := range l.All() {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
			err = s.reconcile(t.Context(), func(yield func(*move.Entry, error) bool) {
				for _, e := range change(list) {
					if !yield(e, nil) {
						return
					}
				}
			})
			if (err == nil) != (name == "as it is") {
				t.Errorf("reconcile = %v", err)
			}
		})
	}
}

// started returns a private memcached on a copy.
func (r *Reader) started(t *testing.T) *server {
	t.Helper()
	work := t.TempDir()
	if err := errors.Join(r.copyTo(t.Context(), work), r.copyMeta(t.Context(), work)); err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), r.program, arguments(&r.image), work)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// Nothing is left behind when the consumer stops early, or its context ends.
func TestAReaderThatIsStoppedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := saved(t, 2000)
	r := open(t, dir, Options{})
	for _, err := range r.Items(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range r.Items(ctx) {
		if n++; n == 10 {
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	if n >= 2000 {
		t.Errorf("%d items after the context's end", n)
	}
}
