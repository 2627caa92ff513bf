// Package serial reads numbers that only grow from annotations, which any client may have written: those of
// rings, and those of leaving marks. It is pure.
package serial

import (
	"slices"
	"strconv"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Bounds of serials.
const (
	// Max is the highest: every number up to it is exact in JSON.
	Max = 1 << 53
	// MaxStep is more than a cluster ever counts.
	MaxStep = 1 << 32
)

// Parse reads a serial; 0, which counts nothing, if it is invalid.
func Parse(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if len(s) > cachev1alpha1.MaxAnnotation || err != nil || n < 0 || n > Max {
		return 0
	}
	return n
}

// Last is the highest of these serials. One that is more than MaxStep above all lower ones is ignored. So
// the serials of 512 members and a record stay below 2^42, and never reach Max.
func Last(serials ...int64) int64 {
	last := int64(0)
	for _, serial := range slices.Sorted(slices.Values(serials)) {
		if serial > last+MaxStep {
			break
		}
		last = max(last, serial)
	}
	return last
}
