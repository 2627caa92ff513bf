package routing

import "unicode/utf8"

// hashCode is java.lang.String.hashCode of a key in UTF-8: it runs over the UTF-16 units of the string. A
// character outside the basic plane has two.
func hashCode(key []byte) uint32 {
	var h uint32
	for len(key) > 0 {
		r, size := utf8.DecodeRune(key)
		key = key[size:]
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xd800 + uint32(r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + uint32(r)
	}
	return h
}
