package memcache

import (
	"encoding/base64"
	"math"
	"net"
	"strconv"

	"example.com/memcached-operator/drainer/item"
)

// maxKey bounds a key in a request, in bytes of the request.
const maxKey = 250

// keyForm is how a key is written in a request.
type keyForm uint8

const (
	plainKey keyForm = iota
	base64Key
)

// formOf chooses how to write a key, and tells whether the text protocol can carry it. Sending such a key
// anyway would be worse than an error: memcached would refuse the command line and then read the value as
// further commands.
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

// batch is a run of add commands, closed by a barrier. A batch is sent as a whole, and sent again as a whole
// if the connection breaks.
type batch struct {
	// buf has the bytes to send, except the values that are held.
	buf       []byte
	held      []held
	heldBytes int
	pages     []*item.Page // the pages with these values
	adds      []add
	bytes     int64
	// flushed is the server's last flush, in Unix seconds, that was known when the batch got its first item.
	flushed int64
	// copies means that no value is held.
	copies bool
	// resent means that the batch was sent before, so a value that is present may be the batch's own.
	resent bool
	// sent gets a token when a write of buf has returned. The answer may come earlier; buf may be filled
	// again only after both.
	sent chan struct{}
}

func newBatch(copies bool) *batch { return &batch{sent: make(chan struct{}, 1), copies: copies} }

// held is a value that is sent directly from its source's memory, after so many bytes of buf.
type held struct {
	at    int32
	value []byte
}

// copyUpTo bounds the values that are copied into a batch, in bytes. For a longer value, a second buffer
// costs the kernel less time than the copy.
const copyUpTo = 512

// add is one command of a batch, by the offsets of key and value in the batch's buf.
type add struct {
	key, keyEnd, value, valueEnd int32
	// held is the position, counted from 1, of a value that is held; 0 for none.
	held  int32
	flags uint64
	// bytes is the size of key and value.
	bytes uint32
	// accessed is the item's last access, in Unix seconds.
	accessed int64
	// cas and place are those of the item at its source.
	cas   uint64
	place int64
	form  keyForm
	// classic means that such adds are answered one after the other, without a token.
	classic bool
	// present means that the server had a value for the key, as the answer to a classic add says.
	present bool
	// marked means that the item gets its Mark.
	marked bool
}

func (b *batch) reset() {
	b.buf, b.adds, b.bytes, b.flushed, b.resent = b.buf[:0], b.adds[:0], 0, 0, false
}

// release releases the held pages. The batch is not sent again.
func (b *batch) release() {
	for _, p := range b.pages {
		p.Release()
	}
	clear(b.held)
	clear(b.pages)
	b.held, b.heldBytes, b.pages = b.held[:0], 0, b.pages[:0]
}

// size returns how many bytes are sent in all.
func (b *batch) size() int { return len(b.buf) + b.heldBytes }

// appendTo appends the bytes to send to a list of buffers.
func (b *batch) appendTo(list net.Buffers) net.Buffers {
	from := int32(0)
	for i := range b.held {
		h := &b.held[i]
		list = append(list, b.buf[from:h.at], h.value)
		from = h.at
	}
	return append(list, b.buf[from:])
}

// addQuiet appends a meta add that is answered only if it fails. The answer doesn't say which add failed.
func (b *batch) addQuiet(it *item.Item, form keyForm, marks bool) {
	a := add{form: form, marked: marks && it.Mark != 0}
	buf := append(b.buf, "ms "...)
	a.key = int32(len(buf))
	buf = form.appendTo(buf, it.Key)
	a.keyEnd = int32(len(buf))
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, int64(len(it.Value)), 10)
	if it.Over != 0 {
		buf = strconv.AppendUint(append(buf, " q C"...), it.Over, 10)
	} else {
		buf = append(buf, " ME q"...)
	}
	if a.marked {
		buf = strconv.AppendUint(append(buf, " E"...), it.Mark, 10)
	}
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
	b.finish(buf, it, a)
}

// addClassic appends a classic add, which is always answered. A server that has no room for a meta add
// deletes its value for the key, in every mode; for a classic add it keeps that value.
func (b *batch) addClassic(it *item.Item) {
	a := add{classic: true}
	buf := append(b.buf, "add "...)
	a.key = int32(len(buf))
	buf = append(buf, it.Key...)
	a.keyEnd = int32(len(buf))
	buf = append(buf, ' ')
	buf = strconv.AppendUint(buf, it.Flags, 10)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, wireExpiry(it.ExpireAt), 10)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, int64(len(it.Value)), 10)
	b.finish(buf, it, a)
}

func (b *batch) finish(buf []byte, it *item.Item, a add) {
	buf = append(buf, "\r\n"...)
	if b.holds(it) {
		b.held = append(b.held, held{int32(len(buf)), it.Value})
		b.heldBytes += len(it.Value)
		a.held = int32(len(b.held))
	} else {
		a.value = int32(len(buf))
		buf = append(buf, it.Value...)
		a.valueEnd = int32(len(buf))
	}
	b.buf = append(buf, "\r\n"...)
	a.flags, a.accessed, a.cas, a.place, a.bytes = it.Flags, it.LastAccess, it.CAS, it.Place, uint32(it.Size())
	b.adds = append(b.adds, a)
	b.bytes += int64(a.bytes)
}

// holds makes sure that the item's value stays in its memory until the batch is settled; false if it has to
// be copied.
func (b *batch) holds(it *item.Item) bool {
	if b.copies || it.Page == nil || len(it.Value) <= copyUpTo {
		return false
	}
	if n := len(b.pages); n > 0 && b.pages[n-1] == it.Page {
		return true
	}
	if !it.Page.Hold() {
		return false
	}
	b.pages = append(b.pages, it.Page)
	return true
}

// barrier closes the batch. The barrier's answer comes after those of all items, and tells whether clients
// have flushed the server by then.
func (b *batch) barrier() { b.buf = append(b.buf, barrier...) }

const barrier = "stats settings\r\n"

// places returns the items' places in their source.
func (b *batch) places() []int64 {
	places := make([]int64, len(b.adds))
	for i := range b.adds {
		places[i] = b.adds[i].place
	}
	return places
}

// keyOf returns the item's key in its original form.
func (b *batch) keyOf(a *add) []byte {
	written := b.buf[a.key:a.keyEnd]
	if a.form == plainKey {
		return written
	}
	key, _ := base64.StdEncoding.AppendDecode(nil, written) // this package encoded it
	return key
}

// mayBeOurs tells whether an item may have been added: a value that was present is not the batch's, unless the batch was
// sent before.
func (b *batch) mayBeOurs(a *add) bool { return b.resent || !a.present }

func (b *batch) valueOf(a *add) []byte {
	if a.held > 0 {
		return b.held[a.held-1].value
	}
	return b.buf[a.value:a.valueEnd]
}

// Answered has the items of a batch that the server has answered, in the order in which they were added;
// valid until Options.Answered returns.
type Answered struct {
	b *batch
	// Refused means that the server has refused some of them. The server doesn't say which.
	Refused bool
}

// Len returns the number of items.
func (a Answered) Len() int { return len(a.b.adds) }

// Key returns an item's key, and its CAS at its source.
func (a Answered) Key(i int) (key []byte, cas uint64) {
	it := &a.b.adds[i]
	return a.b.keyOf(it), it.cas
}

// Value returns an item's value, and its client flags.
func (a Answered) Value(i int) (data []byte, flags uint64) {
	it := &a.b.adds[i]
	return a.b.valueOf(it), it.flags
}

// Place returns an item's place in its source. marked means that the item got its Mark.
func (a Answered) Place(i int) (place int64, marked bool) {
	return a.b.adds[i].place, a.b.adds[i].marked
}

// MayBeOurs tells whether the server's value for the key may be this item: it has not answered that there was one.
func (a Answered) MayBeOurs(i int) bool { return a.b.mayBeOurs(&a.b.adds[i]) }

// BinaryKey tells whether an item's key was sent base64-encoded.
func (a Answered) BinaryKey(i int) bool { return a.b.adds[i].form == base64Key }

// wireExpiry returns an absolute time in memcached's form, a signed 32-bit number. The caller has made sure
// that it is in the future, so it exceeds the thirty days up to which memcached would read it as relative.
func wireExpiry(expireAt int64) int64 { return min(expireAt, math.MaxInt32) }
