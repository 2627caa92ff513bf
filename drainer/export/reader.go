// Package export streams the items of a running memcached that others own. The supervisor reads them from the
// file that memcached has mapped, so that memcached is only asked for the few items that are in use.
//
// An item may change while it is read. So the reader reads its header, then the item, then the header again.
// The copy is right if both headers show the same linked item, which no connection uses: the same CAS, key,
// length and flags. See Reader.slot for the reason.
//
// A mover asks (client.go) and the supervisor serves (serve.go). After TLS and the login, which are memcached's,
// the mover sends one line, "export" and a Request. The answer is a line, "OK" and a Hello, or an error. Then the
// mover asks for one pass after the other with a line "pass". The answer is frames: items, and at the end an End.
package export

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// ErrArchitecture means that the processor is not an amd64. Other processors may show memcached's writes to
// this process in another order.
var ErrArchitecture = errors.New("items are read from memory on amd64 only, this is " + runtime.GOARCH)

// Reader reads the items in a file that a running memcached has mapped.
type Reader struct {
	file *os.File
	mem  []byte
	live *warmfile.Live
	page []byte // room for one page
	// second tells whether the header is read again. Tests turn it off.
	second bool
}

// NewReader maps the file. live describes the memcached that has mapped it. The file stays open until Close.
func NewReader(file *os.File, live *warmfile.Live) (*Reader, error) {
	if runtime.GOARCH != "amd64" {
		return nil, ErrArchitecture
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size() / warmfile.SlabPageSize * warmfile.SlabPageSize
	if size == 0 {
		return nil, fmt.Errorf("%s has %d bytes", file.Name(), info.Size())
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	return &Reader{file: file, mem: mem, live: live, page: make([]byte, warmfile.SlabPageSize), second: true}, nil
}

// Close unmaps the file.
func (r *Reader) Close() { _ = unix.Munmap(r.mem) }

// Pages returns the number of the file's pages.
func (r *Reader) Pages() int { return len(r.mem) / warmfile.SlabPageSize }

// Band is a range of last accesses, from From and before To, in seconds of memcached's own clock.
type Band struct{ From, To uint32 }

// Batch collects the items that were read.
type Batch struct {
	// Records are in the format of AppendItem.
	Records []byte
	Items   int
	// keys are the keys that memcached has to be asked for, one after the other.
	keys []byte
	asks []ask
	// unread counts the slots that could not be read.
	unread int
}

// ask is a key, by its end in keys, and when its item expires if that is known.
type ask struct {
	end      int
	expireAt int64
}

// mark is a position in a batch.
type mark struct{ records, items, keys, asks int }

func (b *Batch) mark() mark { return mark{len(b.Records), b.Items, len(b.keys), len(b.asks)} }

func (b *Batch) rewind(m mark) {
	b.Records, b.Items, b.keys, b.asks = b.Records[:m.records], m.items, b.keys[:m.keys], b.asks[:m.asks]
}

// ask records a key. The key's slot may have been given to another item meanwhile, so elsewhere judges the copy.
func (b *Batch) ask(key []byte, expireAt int64, elsewhere func(key []byte) bool) {
	start := len(b.keys)
	if b.keys = append(b.keys, key...); !elsewhere(b.keys[start:]) {
		b.keys = b.keys[:start]
		return
	}
	b.asks = append(b.asks, ask{len(b.keys), expireAt})
}

// Read adds the items of a page that elsewhere accepts and that were last accessed in the band. An error
// comes from the disk under a mapped file.
func (r *Reader) Read(page int, in Band, elsewhere func(key []byte) bool, b *Batch) (err error) {
	defer item.Faults(&err)()
	mem, class, ok := r.used(page)
	if !ok {
		b.unread++
	}
	if class == 0 {
		return nil
	}
	before, size := b.mark(), r.live.Size(class)
	for at := 0; at+size <= len(mem); at += size {
		r.slot(mem[at:at+size:at+size], class, in, elsewhere, b)
	}
	// If the page has got another class meanwhile, the places of its headers may have had values.
	if again, ok := r.live.Class(mem, head(mem), r.page); !ok || again != class {
		b.rewind(before)
		b.unread++
	}
	return nil
}

// used returns a page and its slab class, 0 if it has none.
func (r *Reader) used(page int) (mem []byte, class uint8, ok bool) {
	at := page * warmfile.SlabPageSize
	mem = r.mem[at : at+warmfile.SlabPageSize : at+warmfile.SlabPageSize]
	// The head of the page is read and the page is not touched: touching a page of a file in memory that
	// memcached has not used would make the kernel allocate it.
	if _, err := r.file.ReadAt(r.page[:warmfile.PageHeader], int64(at)); err != nil {
		panic(&os.PathError{Op: "read", Path: r.file.Name(), Err: err})
	}
	if warmfile.UnusedPage(r.page) {
		return mem, 0, true
	}
	class, ok = r.live.Class(mem, head(mem), r.page)
	return mem, class, ok
}

// word reads a word atomically.
func word(slot []byte, at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&slot[at])))
}

// head reads the CAS before the state; slot says why.
func head(slot []byte) warmfile.Head {
	cas := word(slot, warmfile.WordCAS)
	return warmfile.Head{CAS: cas, State: word(slot, warmfile.WordState), Class: word(slot, warmfile.WordClass), Times: word(slot, warmfile.WordTimes)}
}

// slot adds the item in slot, or asks for it.
//
// Source: memcached's items.c, memcached.c, slabs.c. Everything that changes an item in place (incr, decr,
// touch, a meta delete that marks it as stale, the slab mover) holds a reference to it meanwhile, and an incr
// gives it another CAS. So
//
//   - the first header shows a whole item: its CAS was there before the refcount was 1;
//   - in the second header, the refcount was 1 before the CAS was the same: a change since then would have
//     had a reference at that time, or have left another CAS;
//   - a slot that was given to another item has another CAS, because numbers aren't used twice. For a moment,
//     a new item that is linked but in no LRU yet may show the CAS of the slot's last item. So the item must
//     be in an LRU.
func (r *Reader) slot(slot []byte, class uint8, in Band, elsewhere func(key []byte) bool, b *Batch) {
	if !warmfile.Linked(word(slot, warmfile.WordState)) {
		return
	}
	first := head(slot)
	if at := first.Accessed(); at < in.From || at >= in.To {
		return
	}
	how, p := r.live.Read(first, class)
	switch how {
	case warmfile.Nothing:
		return
	case warmfile.Unreadable:
		b.unread++
		return
	}
	key := slot[p.Key:p.KeyEnd]
	if !elsewhere(key) {
		return
	}
	before := len(b.Records)
	if how == warmfile.Copied && r.copied(slot, first, p, b) {
		b.Items++
		return
	}
	b.Records = b.Records[:before]
	b.ask(key, r.live.ExpireAt(first), elsewhere)
}

// copied appends the item and tells whether the copy is right.
func (r *Reader) copied(slot []byte, first warmfile.Head, p warmfile.Parts, b *Batch) bool {
	at := len(b.Records)
	it := item.Item{Key: slot[p.Key:p.KeyEnd], Value: slot[p.Value:p.ValueEnd], Flags: r.live.ClientFlags(slot, p), CAS: first.CAS,
		ExpireAt: r.live.ExpireAt(first), LastAccess: r.live.LastAccess(first), BinaryKey: r.live.BinaryKey(first), State: r.live.State(first)}
	b.Records = AppendItem(b.Records, &it)
	end := slot[p.ValueEnd : p.ValueEnd+2]
	if end[0] != '\r' || end[1] != '\n' {
		return false
	}
	value := b.Records[len(b.Records)-len(it.Value):]
	return !number(value) && (!r.second || r.same(slot, first, p, b.Records[at:len(b.Records)-len(value)]))
}

// same reads the header again and compares; record ends with the key that was copied.
func (r *Reader) same(slot []byte, first warmfile.Head, p warmfile.Parts, record []byte) bool {
	if !bytes.HasSuffix(record, slot[p.Key:p.KeyEnd]) {
		return false
	}
	second := warmfile.Head{State: word(slot, warmfile.WordState), Class: word(slot, warmfile.WordClass), Times: word(slot, warmfile.WordTimes)}
	inLRU := word(slot, warmfile.WordNext)|word(slot, warmfile.WordPrev) != 0
	state, class := first.Settled()
	stateNow, classNow := second.Settled()
	return inLRU && state == stateNow && class == classNow && first.Times>>32 == second.Times>>32 &&
		word(slot, warmfile.WordCAS) == first.CAS
}

// number tells whether a value may be one that memcached changes in place. With known versions, reading
// such a value is safe. memcached is asked for the value nevertheless, in case a version changes values in another way.
func number(value []byte) bool {
	const longest = 20 // digits of a 64-bit number
	if len(value) == 0 || len(value) > longest {
		return false
	}
	for _, c := range value {
		if (c < '0' || c > '9') && c != ' ' {
			return false
		}
	}
	return true
}
