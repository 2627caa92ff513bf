package move

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBandsHaveEveryAgeOnceAndAboutTheSameBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		sizes := newAgeSizes()
		for range r.IntN(1000) {
			sizes[r.IntN(ages)] += r.Int64N(1000)
		}
		at := 0
		bands := sizes.bands(false)
		for _, b := range bands {
			if b.From != at || b.To <= b.From {
				t.Fatalf("%v", bands)
			}
			at = b.To
		}
		if at != ages || len(bands) > bandCount {
			t.Fatalf("%v", bands)
		}
		reversed := sizes.bands(true)
		if slices.Reverse(reversed); !slices.Equal(bands, reversed) {
			t.Fatalf("%v, from the oldest %v", bands, reversed)
		}
	}
}
