package volume

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// drainAll reads all of a volume, as a drain would.
func drainAll(ctx context.Context, dir string) (items int, err error) {
	v, err := OpenAll(dir, false)
	if err != nil {
		return 0, err
	}
	defer v.Close()
	for _, err := range v.Items(ctx) {
		if err != nil {
			return items, err
		}
		items++
	}
	return items, nil
}

// Clients flushed the member while it had the newest file, so no value of an earlier generation is live,
// whatever the survivors know of that flush.
func TestNothingOlderThanAFlushIsLive(t *testing.T) {
	t.Parallel()
	dir := savedMember(t)
	older := filepath.Join(dir, contract.GenerationPrefix+"1")
	if err := os.Mkdir(older, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Pack(t.Context(), dir, filepath.Join(older, contract.SaveFile), 1); err != nil {
		t.Fatal(err)
	}
	live := func() (n []int) {
		t.Helper()
		v, err := OpenAll(dir, false)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for i, layer := range v.Layers() {
			n = append(n, 0)
			for it, err := range layer.Items(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if it.State == item.Live {
					n[i]++
				}
			}
		}
		return n
	}
	if got := live(); !slices.Equal(got, []int{500, 500}) {
		t.Fatalf("before a flush, %v items are live", got)
	}
	meta, err := os.ReadFile(filepath.Join(dir, contract.MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	// All items of the newest file were stored after the flush.
	meta = regexp.MustCompile(`(?m)^Koldest_live .*$`).ReplaceAll(meta, []byte("Koldest_live 1"))
	if err := os.WriteFile(filepath.Join(dir, contract.MetaFile), meta, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := live(); !slices.Equal(got, []int{500, 0}) {
		t.Errorf("after a flush, %v items are live", got)
	}
}

// A volume may have several, and the offset alone doesn't say which one is damaged.
func TestDamagedGenerationIsNamed(t *testing.T) {
	tier.Second(t, "TestASaveIsWorthItsWholePages")
	t.Parallel()
	dir := savedMember(t)
	generation := func(number string) string {
		to := filepath.Join(dir, contract.GenerationPrefix+number)
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Pack(t.Context(), dir, filepath.Join(to, contract.SaveFile), 1); err != nil {
			t.Fatal(err)
		}
		return to
	}
	damage := func(t *testing.T, of string, at int64) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(of, contract.SaveFile))
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, of, contract.SaveFile, at, []byte{b[at] ^ 1})
		t.Cleanup(func() { overwrite(t, of, contract.SaveFile, at, []byte{b[at]}) })
	}
	each, err := drainAll(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	older := generation("1")
	newer := generation("2")
	const header = 20
	save, err := os.ReadFile(filepath.Join(older, contract.SaveFile))
	if err != nil {
		t.Fatal(err)
	}
	page := int64(bytes.Index(save, []byte("key100")))
	for _, test := range []struct {
		name, of string
		at       int64
		begins   string
		newer    int // whole generations that are read before
	}{
		{"the header of an older one", older, header, "generation-1: ", 2},
		{"a page of an older one", older, page, "generation-1: ", 2},
		{"a page of one between", newer, page, "generation-2: ", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			damage(t, test.of, test.at)
			items, err := drainAll(t.Context(), dir)
			var failure contract.Failure
			if !errors.Is(err, warmfile.ErrUnrecoverable) || !errors.As(err, &failure) || !strings.HasPrefix(err.Error(), test.begins) {
				t.Errorf("got %v, want %q", err, test.begins)
			}
			if items < test.newer*each || items >= (test.newer+1)*each {
				t.Errorf("%d items, want those of %d generations of %d each, and not all of one more", items, test.newer, each)
			}
		})
	}
	remove(t, dir, contract.WarmFile)
	remove(t, dir, contract.MetaFile)
	damage(t, newer, header)
	if _, err := drainAll(t.Context(), dir); err == nil || !strings.HasPrefix(err.Error(), "generation-2: ") {
		t.Errorf("the newest that there is: %v", err)
	}
}
