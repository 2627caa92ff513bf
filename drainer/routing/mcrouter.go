package routing

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// mcrouter is mcrouter's default hash, Ch3, over a pool's servers in list order. The part of a key after
// "|#|", mcrouter's hash stop, isn't hashed.
//
// Source: mcrouter's lib/fbi/hash.c (furc_hash), lib/Ch3HashFunc.h and
// lib/carbon/Keys-inl.h (the routing key).
func init() {
	register("mcrouter", func(servers []Server) (Owner, error) { return furc(len(servers)), nil })
}

type furc uint32

func (n furc) Owner(key []byte) int {
	if i := bytes.Index(key, []byte("|#|")); i >= 0 {
		key = key[:i]
	}
	return int(furcHash(key, uint32(n)))
}

const (
	furcSeed  = 4193360111
	furcTries = 32
	// furcShift is the gap between the bits that a decision uses.
	furcShift = 23
)

// furcHash walks down a binary tree of m leaves by the bits of the key's hash. If the leaf doesn't exist,
// furcHash tries again from that depth. m is at least 2.
func furcHash(key []byte, m uint32) uint32 {
	b := furcBits{hash: murmurHash64A(key, furcSeed)}
	depth := uint32(bits.Len32(m - 1))
	at := depth
	for range furcTries {
		for b.bit(at) == 0 {
			if depth--; depth == 0 {
				return 0
			}
			at = depth
		}
		at += furcShift
		leaf := uint32(1)
		for range depth - 1 {
			leaf = leaf<<1 | b.bit(at)
			at += furcShift
		}
		if leaf < m {
			return leaf
		}
	}
	return 0
}

// furcBits is an endless stream of bits: the key's hash, then the hash of that,
// and so on. The walk goes forward, or back into the first word.
type furcBits struct {
	hash uint64 // word number 0
	word uint64 // word number at
	at   uint32
}

func (b *furcBits) bit(i uint32) uint32 {
	if i>>6 < b.at || b.at == 0 {
		b.at, b.word = 0, b.hash
	}
	for ; b.at < i>>6; b.at++ {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], b.word)
		b.word = murmurHash64A(word[:], furcSeed)
	}
	return uint32(b.word>>(i&63)) & 1
}

// murmurHash64A is Austin Appleby's MurmurHash2 for 64-bit machines.
func murmurHash64A(key []byte, seed uint32) uint64 {
	const m, r = 0xc6a4a7935bd1e995, 47
	h := uint64(seed) ^ uint64(len(key))*m
	for ; len(key) >= 8; key = key[8:] {
		k := binary.LittleEndian.Uint64(key) * m
		k ^= k >> r
		h = (h ^ k*m) * m
	}
	if len(key) > 0 {
		var tail [8]byte
		copy(tail[:], key)
		h = (h ^ binary.LittleEndian.Uint64(tail[:])) * m
	}
	h ^= h >> r
	h *= m
	return h ^ h>>r
}
