package ring

import (
	"slices"
	"strconv"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Bounds of serials: numbers that only grow, of rings and of leaving marks.
const (
	// MaxSerial is the highest: every number up to it is exact in JSON.
	MaxSerial = 1 << 53
	// MaxSerialStep is more than a cluster ever counts.
	MaxSerialStep = 1 << 32
)

// ParseSerial reads a serial from an annotation, which any client may have written; 0 if it is invalid.
func ParseSerial(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if len(s) > cachev1alpha1.MaxAnnotation || err != nil || n < 0 || n > MaxSerial {
		return 0
	}
	return n
}

// LastSerial is the highest of these serials. One that is more than MaxSerialStep above all lower ones is ignored. So
// the serials of 512 members and a record stay below 2^42, and never reach MaxSerial.
func LastSerial(serials ...int64) int64 {
	last := int64(0)
	for _, serial := range slices.Sorted(slices.Values(serials)) {
		if serial > last+MaxSerialStep {
			break
		}
		last = max(last, serial)
	}
	return last
}
