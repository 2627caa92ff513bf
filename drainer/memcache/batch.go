package memcache

import (
	"encoding/base64"
	"math"
	"strconv"

	"example.com/memcached-operator/drainer/item"
)

// maxKey is the longest key in a request, as it is written there.
const maxKey = 250

// keyForm is how a key is written into a request.
type keyForm uint8

const (
	plainKey keyForm = iota
	base64Key
)

// formOf chooses how to write key, or says that the text protocol can't carry it.
// Sending such a key would be worse than an error: memcached would answer the command
// line and then read the value as further commands.
func formOf(key []byte, preferBinary bool) (keyForm, bool) {
	fits := base64.StdEncoding.EncodedLen(len(key)) <= maxKey
	odd, breaking := preferBinary, false
	for _, c := range key {
		if c <= ' ' || c == 0x7f {
			odd = true
			breaking = breaking || c == ' ' || c == '\n' || c == '\r' || c == 0
		}
	}
	switch {
	case odd && fits:
		return base64Key, len(key) > 0
	case breaking:
		return plainKey, false
	}
	return plainKey, len(key) > 0 && len(key) <= maxKey
}

func (f keyForm) appendTo(b, key []byte) []byte {
	if f == base64Key {
		return base64.StdEncoding.AppendEncode(b, key)
	}
	return append(b, key...)
}

// batch is a run of add commands, closed by a barrier, that is sent, and on a
// broken connection sent again, as a whole.
type batch struct {
	buf []byte
	// sizes of keys and values, by position in the batch: those that the server refuses
	// are subtracted from the bytes that were added.
	sizes []uint32
	bytes int64
	// sent gets a token when a write of buf has returned. The answer may come earlier
	// than that; buf may be filled again only after both.
	sent chan struct{}
}

func newBatch() *batch { return &batch{sent: make(chan struct{}, 1)} }

func (b *batch) reset() {
	b.buf, b.sizes, b.bytes = b.buf[:0], b.sizes[:0], 0
}

// addQuiet appends a meta add that is answered only if it fails, with the item's
// position as the opaque token.
func (b *batch) addQuiet(it *item.Item, form keyForm) {
	buf := append(b.buf, "ms "...)
	buf = form.appendTo(buf, it.Key)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, int64(len(it.Value)), 10)
	buf = append(buf, " ME q O"...)
	buf = strconv.AppendInt(buf, int64(len(b.sizes)), 10)
	if it.ExpireAt != 0 {
		buf = append(buf, " T"...)
		buf = strconv.AppendInt(buf, wireExpiry(it.ExpireAt), 10)
	}
	if it.Flags != 0 {
		buf = append(buf, " F"...)
		buf = strconv.AppendUint(buf, it.Flags, 10)
	}
	if form == base64Key {
		buf = append(buf, " b"...)
	}
	b.finish(buf, it)
}

// addClassic appends a classic add, which is always answered. A server that can't make
// room for a meta add deletes its value for the key, whatever the mode; for a classic
// add it keeps that.
func (b *batch) addClassic(it *item.Item) {
	buf := append(b.buf, "add "...)
	buf = append(buf, it.Key...)
	buf = append(buf, ' ')
	buf = strconv.AppendUint(buf, it.Flags, 10)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, wireExpiry(it.ExpireAt), 10)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, int64(len(it.Value)), 10)
	b.finish(buf, it)
}

func (b *batch) finish(buf []byte, it *item.Item) {
	buf = append(buf, "\r\n"...)
	buf = append(buf, it.Value...)
	b.buf = append(buf, "\r\n"...)
	b.sizes = append(b.sizes, uint32(it.Size()))
	b.bytes += int64(it.Size())
}

// barrier closes the batch: its answer comes after those of all its items.
func (b *batch) barrier() { b.buf = append(b.buf, "mn\r\n"...) }

// wireExpiry is an absolute time as memcached reads it, in a signed 32-bit number. The
// caller has made sure that it is in the future, and so beyond the thirty days up to
// which memcached would read it as relative.
func wireExpiry(expireAt int64) int64 { return min(expireAt, math.MaxInt32) }
