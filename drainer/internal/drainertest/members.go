package drainertest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Base64Of returns a key in base64.
func Base64Of(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }

// Leaving returns the volume of a member that has left with objects on it.
func Leaving(t *testing.T, how string, all map[string]Object) string {
	t.Helper()
	dir := t.TempDir()
	s := Serve(t, dir, "-m", "128")
	Store(t, s.Address(), all)
	if how == "killed" {
		s.Settle(len(all))
	}
	s.End(how)
	return dir
}

// Hooked is a source that calls do before its n-th item.
type Hooked struct {
	item.Source
	N  int
	Do func()
}

// Items of the source.
func (h *Hooked) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		n := 0
		for it, err := range h.Source.Items(ctx) {
			if n++; n == h.N {
				h.Do()
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// MoveArgs returns arguments for a live move from source, with a receipt in a separate file.
func MoveArgs(t *testing.T, client, source string, servers []string) contract.Move {
	t.Helper()
	a := contract.Move{Source: source, Transfer: TransferArgs(t, servers)}
	a.Client = client
	return a
}

// Move moves from a running server in this process.
func Move(t *testing.T, a contract.Move) Result {
	t.Helper()
	return withReceipt(t, RunMain(t, a.Args()...), a.Receipt)
}

// StoreByOwner stores each object where the client looks for it.
func StoreByOwner(t *testing.T, client string, servers []string, all map[string]Object) {
	t.Helper()
	owner, err := routing.New(client, MustParse(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]map[string]Object, len(servers))
	for key, o := range all {
		i := owner.Owner([]byte(key))
		if parts[i] == nil {
			parts[i] = map[string]Object{}
		}
		parts[i][key] = o
	}
	for i, part := range parts {
		Store(t, servers[i], part)
	}
}

// ExpectGenerations checks which generations are beside the newest file.
func ExpectGenerations(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	wait.For(t, fmt.Sprintf("the generations to be %v", want), func() error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		got = nil
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), contract.GenerationPrefix) {
				got = append(got, e.Name())
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// KillMemcached ends memcached as a crash would, and its supervisor with it.
func (s *Served) KillMemcached() {
	s.T.Helper()
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		s.T.Fatal(err)
	}
	s.Wait()
}

// ExpectItems waits until the member has exactly these items.
func (s *Served) ExpectItems(all map[string]Object) {
	s.T.Helper()
	wait.For(s.T, "the items", func() error {
		if n := (&memcachedtest.Server{Port: s.Port}).Items(s.T); n != int64(len(all)) {
			return errors.New(strconv.FormatInt(n, 10) + " items")
		}
		return nil
	})
	Check(s.T, "gomemcache", []string{s.Address()}, all)
}

// Packed turns a volume with a warm file into one with its save.
func Packed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := volume.Pack(t.Context(), dir, filepath.Join(to, contract.SaveFile), 1); err != nil {
		t.Fatal(err)
	}
	return to
}

// ForEachSeed runs the test with several seeds in parallel, from a random one on: one seed in the first tier,
// 8 in the second. PROPERTY_SEED sets the first seed, PROPERTY_SEEDS the number.
func ForEachSeed(t *testing.T, test func(t *testing.T, seed uint64)) {
	t.Helper()
	ForSeeds(t, 8, test)
}

// ForSeeds is ForEachSeed with n seeds in the second tier.
func ForSeeds(t *testing.T, n int, test func(t *testing.T, seed uint64)) {
	t.Helper()
	first, n := seeds(t, n)
	t.Logf("%d seeds from %d on; PROPERTY_SEED=N PROPERTY_SEEDS=1 replays one", n, first)
	for i := range n {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			test(t, seed)
		})
	}
}

func seeds(t *testing.T, most int) (first uint64, n int) {
	t.Helper()
	first, n = rand.Uint64N(1<<40), 1
	if tier.All() {
		n = most
	}
	var err, err2 error
	if v := os.Getenv("PROPERTY_SEED"); v != "" {
		first, err = strconv.ParseUint(v, 10, 64)
	}
	if v := os.Getenv("PROPERTY_SEEDS"); v != "" {
		n, err2 = strconv.Atoi(v)
	}
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return first, n
}

// ManifestText returns the manifest in dir.
func ManifestText(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, contract.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// LiveItems counts the live items of the warm file in dir.
func LiveItems(t *testing.T, dir string) (int64, error) {
	t.Helper()
	r, err := volume.Open(dir, volume.Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	live := int64(0)
	for it, err := range r.Items(t.Context()) {
		if err != nil {
			return live, err
		}
		if it.State == item.Live {
			live++
		}
	}
	return live, nil
}
