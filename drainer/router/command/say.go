package command

import (
	"bytes"
	"strconv"

	"example.com/memcached-operator/drainer/router/wire"
)

// client appends the client's meta command without q and the flags in drop, with more
// flags, and with its data block. A read is also asked for client flags, and for the size,
// which tell a placeholder.
func (r *Request) client(dst []byte, drop, more string) []byte {
	dst = r.metaKey(dst, r.Verb.String())
	if r.Verb == wire.MetaSet {
		dst = strconv.AppendInt(append(dst, ' '), int64(len(r.Value)-len("\r\n")), 10)
	}
	for flags := r.Flags(); ; {
		var flag []byte
		if flag, flags = wire.Next(flags); len(flag) == 0 {
			break
		}
		if flag[0] != 'q' && !bytes.ContainsRune([]byte(drop), rune(flag[0])) {
			dst = append(append(dst, ' '), flag...)
		}
	}
	if r.Verb == wire.MetaGet && !r.flag('f') {
		dst = append(dst, " f"...)
	}
	if r.Verb == wire.MetaGet && !r.flag('v') && !r.flag('s') {
		dst = append(dst, " s"...)
	}
	dst = append(append(dst, more...), "\r\n"...)
	return append(dst, r.Value...)
}

func (r *Request) flag(letter byte) bool {
	_, ok := r.Flag(letter)
	return ok
}

// word is a token of the line: the command is 0, the key 1.
func (r *Request) word(n int) (token []byte) {
	for rest := r.Line; n >= 0; n-- {
		token, rest = wire.Next(rest)
	}
	return token
}

// delta of incr and decr; false if memcached would refuse it.
func (r *Request) delta() (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(r.word(2)), 10, 64)
	return n, err == nil
}

// translated tells whether a guarded request is said by a meta command in its place.
func (r *Request) translated() bool {
	switch r.Verb {
	case wire.Append, wire.Prepend, wire.Replace:
		return true
	case wire.Incr, wire.Decr:
		_, ok := r.delta()
		return ok
	}
	return false
}

// guarded is the client's request if the item has this CAS value. What has a guard of its
// own, or only reads and touches, goes as it is.
func (r *Request) guarded(dst []byte, cas uint64) []byte {
	guard := " C" + strconv.FormatUint(cas, 10)
	if r.Verb.Meta() {
		switch {
		case r.Verb == wire.MetaGet:
			return r.client(dst, "N", "")
		case r.flag('C'):
			return r.client(dst, "", "")
		}
		return r.client(dst, "N", guard)
	}
	if !r.translated() {
		if r.Single != nil {
			return r.AppendRead(dst, r.Single)
		}
		return append(r.AppendTo(dst), r.Value...)
	}
	mode := map[wire.Verb]string{wire.Append: " MA", wire.Prepend: " MP", wire.Replace: " MR", wire.Incr: " MI", wire.Decr: " MD"}[r.Verb]
	if r.Value == nil {
		n, _ := r.delta()
		return r.meta(dst, "ma", guard+mode+" v D"+strconv.FormatUint(n, 10))
	}
	if r.Verb == wire.Replace {
		mode += r.attributes()
	}
	return r.store(dst, guard+mode, r.Value)
}

// attributes of a classic storage command, as flags.
func (r *Request) attributes() string {
	return " F" + string(r.word(2)) + " T" + string(r.word(3))
}

// store is an ms of the request's key.
func (r *Request) store(dst []byte, flags string, value []byte) []byte {
	dst = r.metaKey(dst, "ms")
	dst = strconv.AppendInt(append(dst, ' '), int64(len(value)-len("\r\n")), 10)
	dst = append(dst, flags...)
	if r.Binary {
		dst = append(dst, " b"...)
	}
	return append(append(dst, "\r\n"...), value...)
}

// create makes the client's item: where there is none, or in place of the item with this
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
		ttl, _ := r.Flag('N')
		return r.store(dst, mode+" c T"+string(ttl), append(r.initial(), "\r\n"...))
	}
	more := mode
	if ttl, ok := r.Flag('N'); ok {
		more += " T" + string(ttl)
	}
	if !r.flag('c') {
		more += " c"
	}
	return r.client(dst, "MNI"+map[bool]string{true: "T"}[r.flag('N')], more)
}

// initial value of an ma that makes an item.
func (r *Request) initial() []byte {
	if v, ok := r.Flag('J'); ok {
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return strconv.AppendUint(nil, n, 10)
		}
	}
	return []byte("0")
}
