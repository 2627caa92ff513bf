package status

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// sketchKeys bounds the counted keys.
	sketchKeys = 64
	// sampled is the sampling rate: one of so many keys is counted.
	sampled = 16
	// hotKeys bounds the reported keys.
	hotKeys = 20
)

// Sketch counts the most frequent keys, in bounded memory. A key that is not counted takes the place and the
// count of the rarest one, so counts are upper bounds.
//
// Source: Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k
// Elements in Data Streams" (2005), the algorithm Space-Saving.
type Sketch struct {
	keys [sketchKeys]counted
	skip int
}

type counted struct {
	hash  uint64
	key   string
	count uint64
}

// See counts a sample of the keys.
func (s *Sketch) See(key []byte) {
	if s.skip++; s.skip < sampled {
		return
	}
	s.skip = 0
	hash := xxhash.Sum64(key)
	rarest := 0
	for i := range s.keys {
		k := &s.keys[i]
		if k.hash == hash && k.count > 0 {
			k.count += sampled
			return
		}
		if k.count < s.keys[rarest].count {
			rarest = i
		}
	}
	k := &s.keys[rarest]
	k.hash, k.key, k.count = hash, string(key), k.count+sampled
}

// Fade halves all counts, so that keys that were hot once are forgotten.
func (s *Sketch) Fade() {
	for i := range s.keys {
		s.keys[i].count /= 2
	}
}

// HotKey is a key that is asked for often.
type HotKey struct {
	Key []byte `json:"key"` // in base64
	// Text is the key if it can be printed.
	Text string `json:"text"`
	// Count is an upper bound of how often it was asked for; older requests count less.
	Count uint64 `json:"count"`
}

// Hottest returns the hottest keys of several loops.
func Hottest(sketches []Sketch) (all []HotKey) {
	sum := map[string]uint64{}
	for i := range sketches {
		for _, k := range sketches[i].keys {
			if k.count > 0 {
				sum[k.key] += k.count
			}
		}
	}
	for key, count := range sum {
		all = append(all, HotKey{[]byte(key), key, count})
	}
	slices.SortFunc(all, func(a, b HotKey) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text)) })
	return all[:min(len(all), hotKeys)]
}
