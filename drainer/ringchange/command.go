package ringchange

import (
	"bytes"
	"math"
	"strconv"

	"example.com/memcached-operator/drainer/wire"
)

const (
	// LeaseValue is the value of a placeholder. Its client flags are 0.
	LeaseValue = "18364758544493064720"
	// LeaseSeconds is how long a lease lasts if its holder dies. memcached counts whole seconds, so the lease
	// may last a second less.
	LeaseSeconds = 6
)

// leaseFlags are those of an ma that makes a placeholder if there is no item. The ma changes no existing
// item, because none has this CAS value. If a client has given the value to an item, the item's own value
// stays. An ms would also do that; but if memcached has no memory for an ms, it deletes the existing item.
var leaseFlags = " N" + strconv.Itoa(LeaseSeconds) + " J" + LeaseValue + " C" + strconv.FormatUint(math.MaxUint64, 10) + " D0 v c"

// Request is a client's request for a key whose owner changes.
type Request struct {
	wire.Request
	// Value is the data block with its line end; nil if there is none.
	Value []byte
	// Single is the key of a classic read, which asks for one key at a time.
	Single []byte
}

// ForKey returns a request that moves a key without a client's request. binary means that the key is in
// base64.
func ForKey(key []byte, binary bool) Request {
	return Request{Request: wire.Request{Verb: wire.MetaGet, Key: key, Binary: binary}}
}

// ClassOf returns the class of a request. vivify means that it asks for a lease of its own, by mg with N.
func ClassOf(r *wire.Request) (class Class, vivify bool) {
	switch r.Verb {
	case wire.Gat, wire.Gats, wire.Replace, wire.Append, wire.Prepend, wire.Cas, wire.Incr, wire.Decr, wire.Touch:
		return Update, false
	case wire.Set:
		return Set, false
	case wire.Add:
		return Create, false
	case wire.Delete:
		return Delete, false
	case wire.MetaGet:
		if r.Has('T') {
			return Update, r.Has('N')
		}
		return Read, r.Has('N')
	case wire.MetaSet:
		return classOfSet(r), false
	case wire.MetaDelete:
		if bytes.ContainsFunc(letters(r), func(l rune) bool { return !bytes.ContainsRune([]byte("kObq"), l) }) {
			return Update, false
		}
		return Delete, false
	case wire.MetaArithmetic:
		if r.Has('N') && !r.Has('C') {
			return Upsert, false
		}
		return Update, false
	}
	return Read, false
}

// Repeatable tells whether a request has the same effect if it is carried out twice: the request changes when
// an item expires, or marks the item as stale, or deletes it.
func Repeatable(r *wire.Request) bool {
	switch r.Verb {
	case wire.Touch, wire.Gat, wire.Gats:
		return true
	case wire.MetaGet:
		return r.Has('T') // N makes nothing in a ring change
	case wire.MetaDelete:
		return !r.Has('C')
	}
	return false
}

// letters returns the letters of a meta command's flags.
func letters(r *wire.Request) (all []byte) {
	for flags := r.Flags(); ; {
		var flag []byte
		if flag, flags = wire.Next(flags); len(flag) == 0 {
			return all
		}
		all = append(all, flag[0])
	}
}

func classOfSet(r *wire.Request) Class {
	mode, _ := r.Flag('M')
	guarded, vivify := r.Has('C'), r.Has('N')
	switch {
	case len(mode) == 1 && (mode[0] == 'E' || mode[0] == 'e'):
		return Create
	case len(mode) == 1 && bytes.ContainsAny(mode, "AaPp"):
		if vivify && !guarded {
			return Upsert
		}
		return Update
	case guarded, len(mode) == 1 && bytes.ContainsAny(mode, "Rr"):
		return Update
	}
	return Set
}

// Append appends the bytes of a step.
func (r *Request) Append(dst []byte, s Step) []byte {
	switch s.Action {
	case Look:
		return r.meta(dst, "mg", " f c s t")
	case Peek, PeekAsked:
		return r.meta(dst, "mg", " v f c t")
	case Lease:
		return r.meta(dst, "ma", leaseFlags)
	case Erase:
		return r.meta(dst, "md", "")
	case EraseIf:
		return r.meta(dst, "md", " C"+strconv.FormatUint(s.CAS, 10))
	case Fetch:
		return r.meta(dst, "mg", " v f t c l u")
	case Guarded:
		return r.guarded(dst, s.CAS)
	case Make:
		return r.create(dst, 0)
	case Fill:
		return r.create(dst, s.CAS)
	case AskUpdate:
		if r.Verb.Meta() {
			return r.client(dst, "N", "")
		}
	case Ask:
		if r.Verb == wire.MetaGet {
			return r.client(dst, "N", "")
		}
	}
	if r.Single != nil {
		return r.AppendRead(dst, r.Single)
	}
	return append(r.AppendTo(dst), r.Value...)
}

// metaKey appends the beginning of a meta command for the request's key.
func (r *Request) metaKey(dst []byte, name string) []byte {
	dst = append(append(dst, name...), ' ')
	if r.Single != nil {
		return append(dst, r.Single...)
	}
	return append(dst, r.Key...)
}

// meta appends a meta command without a data block.
func (r *Request) meta(dst []byte, name, flags string) []byte {
	dst = append(r.metaKey(dst, name), flags...)
	if r.Binary {
		dst = append(dst, " b"...)
	}
	return append(dst, "\r\n"...)
}
