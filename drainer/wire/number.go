package wire

import (
	"bytes"
	"math"
)

func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// digits reads a number as C's strtol does: white space, a sign, digits, and then the
// end or white space.
func digits(b []byte) (magnitude uint64, negative, ok bool) {
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	n := 0
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		digit := uint64(b[n] - '0')
		if magnitude > (math.MaxUint64-digit)/10 {
			return 0, false, false
		}
		magnitude = magnitude*10 + digit
	}
	return magnitude, negative, n > 0 && (n == len(b) || space(b[n]))
}

// number reads a number as memcached's safe_strtol does, in 64 bits.
func number(b []byte) (int64, bool) {
	magnitude, negative, ok := digits(b)
	switch {
	case !ok || magnitude > math.MaxInt64+1 || magnitude == math.MaxInt64+1 && !negative:
		return 0, false
	case negative:
		return -int64(magnitude), true
	}
	return int64(magnitude), true
}

// exptime reads a number of which memcached keeps the lower 32 bits.
func exptime(b []byte) (int32, bool) {
	n, ok := number(b)
	return int32(n), ok
}

// unsigned reads a number as memcached's safe_strtoull does: a negative number wraps around in 64 bits, and a
// number with the highest bit set must not have a minus anywhere.
func unsigned(b []byte) (uint64, bool) {
	magnitude, negative, ok := digits(b)
	if negative {
		magnitude = -magnitude
	}
	return magnitude, ok && (int64(magnitude) >= 0 || bytes.IndexByte(b, '-') < 0)
}
