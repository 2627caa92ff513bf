package ringchange

import (
	"strconv"

	"example.com/memcached-operator/drainer/wire"
)

// client appends the client's meta command without q and the flags in drop, with more flags, and with its
// data block. A read also asks for client flags, the CAS value, and the size or the value, which tell an item from a
// placeholder.
func (r *Request) client(dst []byte, drop, more string) []byte {
	dst = r.metaKey(dst, r.Verb.String())
	if r.Verb == wire.MetaSet {
		dst = strconv.AppendInt(append(dst, ' '), int64(len(r.Value)-len("\r\n")), 10)
	}
	dst = r.AppendFlags(dst, drop)
	if r.Verb == wire.MetaGet && !r.Has('f') {
		dst = append(dst, " f"...)
	}
	if r.Verb == wire.MetaGet && !r.Has('v') && !r.Has('s') {
		dst = append(dst, " s"...)
	}
	if r.Verb == wire.MetaGet && !r.Has('c') {
		dst = append(dst, " c"...)
	}
	dst = append(append(dst, more...), "\r\n"...)
	return append(dst, r.Value...)
}

// translated tells whether a guarded request is sent as a meta command.
func (r *Request) translated() bool {
	switch r.Verb {
	case wire.Append, wire.Prepend, wire.Replace, wire.Incr, wire.Decr, wire.Gat, wire.Gats:
		return true
	}
	return false
}

// guarded appends the client's request on condition that the item has this CAS value. A request that has its
// own condition, or only touches, is appended unchanged.
func (r *Request) guarded(dst []byte, cas uint64) []byte {
	guard := " C" + strconv.FormatUint(cas, 10)
	if r.Verb.Meta() {
		switch {
		case r.Verb == wire.MetaGet:
			return r.client(dst, "N", "")
		case r.Has('C'):
			return r.client(dst, "", "")
		}
		return r.client(dst, "N", guard)
	}
	if !r.translated() {
		return append(r.AppendTo(dst), r.Value...)
	}
	if r.Verb.Reads() { // its own answer doesn't tell a placeholder from a client's item
		return r.meta(dst, "mg", " v f c T"+strconv.FormatInt(int64(r.Exptime), 10))
	}
	mode := map[wire.Verb]string{wire.Append: " MA", wire.Prepend: " MP", wire.Replace: " MR", wire.Incr: " MI", wire.Decr: " MD"}[r.Verb]
	if r.Value == nil {
		return r.meta(dst, "ma", guard+mode+" v D"+strconv.FormatUint(r.Number, 10))
	}
	if r.Verb == wire.Replace {
		mode += r.attributes()
	}
	return r.store(dst, guard+mode, r.Value)
}

// attributes returns the attributes of a classic storage command, as flags.
func (r *Request) attributes() string {
	return " F" + strconv.FormatUint(r.ClientFlags, 10) + " T" + strconv.FormatInt(int64(r.Exptime), 10)
}

// store appends an ms of the request's key.
func (r *Request) store(dst []byte, flags string, value []byte) []byte {
	dst = r.metaKey(dst, "ms")
	dst = strconv.AppendInt(append(dst, ' '), int64(len(value)-len("\r\n")), 10)
	dst = append(dst, flags...)
	if r.Binary {
		dst = append(dst, " b"...)
	}
	return append(append(dst, "\r\n"...), value...)
}

// create appends a command that makes the client's item: if there is none, or in place of the item with this
// CAS value.
func (r *Request) create(dst []byte, cas uint64) []byte {
	mode := " ME"
	if cas != 0 {
		mode = " C" + strconv.FormatUint(cas, 10)
	}
	switch r.Verb {
	case wire.Add:
		return r.store(dst, mode+" c"+r.attributes(), r.Value)
	case wire.MetaArithmetic:
		return r.store(dst, mode+" c"+r.lifetime(), append(r.initial(), "\r\n"...))
	}
	more := mode + r.lifetime()
	if !r.Has('c') {
		more += " c"
	}
	drop := "MNIC" // there is no item to compare the CAS value with
	if r.lifetime() != "" {
		drop += "T"
	}
	return r.client(dst, drop, more)
}

// lifetime returns the lifetime of an item that N makes, as a flag. An ms that only adds ignores N.
func (r *Request) lifetime() string {
	if !r.Has('N') || r.mode() == 'E' {
		return ""
	}
	return " T" + strconv.FormatInt(r.Signed('N'), 10)
}

// initial returns the initial value of an ma that makes an item.
func (r *Request) initial() []byte { return strconv.AppendUint(nil, r.Unsigned('J'), 10) }
