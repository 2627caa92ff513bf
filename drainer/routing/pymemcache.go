package routing

import (
	"unicode/utf8"

	"github.com/twmb/murmur3"
)

// pymemcache is pymemcache's HashClient with its RendezvousHash: the server with the highest MurmurHash3 (32
// bits, seed 0) of "host:port-key"; if two are equal, the one with the larger name.
//
// The hash uses the lowest byte of each Python character. Keys are str, so the bytes that memcached has are
// decoded first; a key that isn't UTF-8 was given as bytes. pymemcache-bytes is for applications that give
// all their keys as bytes: such keys are hashed as Python prints them, b'key'.
//
// Source: pymemcache's client/hash.py, client/rendezvous.py and
// client/murmur3.py.
func init() {
	register("pymemcache", func(servers []Server) (Owner, error) {
		return newRendezvous(servers, false), nil
	})
	register("pymemcache-bytes", func(servers []Server) (Owner, error) {
		return newRendezvous(servers, true), nil
	})
	hashWithoutPrefix("pymemcache", "pymemcache-bytes")
	hashEachServer("pymemcache", "pymemcache-bytes")
}

// rendezvous has the hashed form of "host:port-" for each server.
type rendezvous struct {
	names     [][]byte
	bytesKeys bool // all keys are Python bytes
}

func newRendezvous(servers []Server, bytesKeys bool) rendezvous {
	r := rendezvous{bytesKeys: bytesKeys}
	for _, s := range servers {
		r.names = append(r.names, appendLowBytes(nil, []byte(hostPortName(s)+"-")))
	}
	return r
}

func (r rendezvous) Owner(key []byte) int {
	// A host's longest name fits, with memcached's longest key, each byte of which is written as four. Longer
	// texts are hashed, too.
	var keyBuf [1024]byte
	var buf [1024 + 512]byte
	if r.bytesKeys || !utf8.Valid(key) {
		key = appendPythonBytes(keyBuf[:0], key)
	} else {
		key = appendLowBytes(keyBuf[:0], key)
	}
	best, winner := uint32(0), -1
	for i, name := range r.names {
		score := murmur3.Sum32(append(append(buf[:0], name...), key...))
		if winner < 0 || score > best || score == best && string(name) > string(r.names[winner]) {
			best, winner = score, i
		}
	}
	return winner
}

// appendLowBytes appends the lowest byte of each character of s.
func appendLowBytes(dst, s []byte) []byte {
	for len(s) > 0 {
		c, size := utf8.DecodeRune(s)
		dst = append(dst, byte(c))
		s = s[size:]
	}
	return dst
}

// appendPythonBytes appends repr(key) of a Python bytes object.
func appendPythonBytes(dst, key []byte) []byte {
	const hex = "0123456789abcdef"
	quote := pythonQuote(key)
	dst = append(dst, 'b', quote)
	for _, c := range key {
		switch {
		case c == quote || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c < ' ' || c >= 0x7f:
			dst = append(dst, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, quote)
}

// pythonQuote returns a double quote if the key has single quotes only.
func pythonQuote(key []byte) byte {
	single := false
	for _, c := range key {
		switch c {
		case '"':
			return '\''
		case '\'':
			single = true
		}
	}
	if single {
		return '"'
	}
	return '\''
}
