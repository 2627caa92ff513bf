package wire

import (
	"bytes"
	"strconv"
	"strings"
)

// AppendTo appends the request for a member, in a form that all versions of memcached read alike: single
// blanks, and numbers without redundant signs or zeros. AppendTo leaves out noreply and q: the router decides
// whether the answer is passed on, so that each request has an answer. The data block follows.
//
// The longest line is an mg with all flags, of less than 700 bytes.
func (r *Request) AppendTo(dst []byte) []byte {
	dst = append(dst, names[r.Verb]...)
	if r.Verb == FlushAll {
		if r.delayed {
			dst = appendInt(dst, int64(r.Exptime))
		}
		return append(dst, '\r', '\n')
	}
	dst = append(append(dst, ' '), r.Key...)
	switch {
	case r.Verb.Meta():
		if r.Verb == MetaSet {
			dst = appendInt(dst, int64(r.Data-len("\r\n")))
		}
		dst = r.AppendFlags(dst, "")
	case r.Verb.Stores():
		dst = appendUint(dst, r.ClientFlags)
		dst = appendInt(dst, int64(r.Exptime))
		dst = appendInt(dst, int64(r.Data-len("\r\n")))
		if r.Verb == Cas {
			dst = appendUint(dst, r.Number)
		}
	case r.Verb == Incr || r.Verb == Decr:
		dst = appendUint(dst, r.Number)
	case r.Verb == Touch:
		dst = appendInt(dst, int64(r.Exptime))
	case string(r.Key) == "noreply":
		dst = append(dst, " 0"...) // memcached 1.6.40 and later take a delete's last word for the 0, wherever it is
	}
	return append(dst, '\r', '\n')
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(append(dst, ' '), n, 10) }

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(append(dst, ' '), n, 10) }

// AppendFlags appends a meta command's flags for a member, without q and those in drop. AppendFlags doesn't
// ask for a key in base64; see Echo.
func (r *Request) AppendFlags(dst []byte, drop string) []byte {
	for rest := r.flags; ; {
		var flag []byte
		if flag, rest = next(rest); len(flag) == 0 {
			return dst
		}
		letter, form := flag[0], formOf(flag[0])
		switch {
		case letter == 'q', form == ignored, letter == 'k' && r.Binary, strings.IndexByte(drop, letter) >= 0:
			continue
		case form == mode && (r.Verb == MetaGet || r.Verb == MetaDelete): // these commands ignore it
			continue
		}
		dst = append(dst, ' ', letter)
		switch form {
		case opaque, mode:
			dst = append(dst, flag[1:]...)
		case signed:
			n, _ := number(flag[1:])
			dst = strconv.AppendInt(dst, n, 10)
		case natural:
			n, _ := unsigned(flag[1:])
			dst = strconv.AppendUint(dst, n, 10)
		}
	}
}

// AppendRead appends a classic read of one key.
func (r *Request) AppendRead(dst, key []byte) []byte {
	dst = append(dst, names[r.Verb]...)
	if r.Verb == Gat || r.Verb == Gats {
		dst = appendInt(dst, int64(r.Exptime))
	}
	dst = append(append(dst, ' '), key...)
	return append(dst, '\r', '\n')
}

// AppendMiss appends the answer to mg if there is no item.
func (r *Request) AppendMiss(b []byte) []byte {
	b = append(b, "EN"...)
	for flag, flags := next(r.flags); len(flag) > 0; flag, flags = next(flags) {
		switch flag[0] {
		case 'O':
			b = append(append(b, ' '), flag...)
		case 'k':
			b = append(append(b, " k"...), r.Key...)
			if r.Binary {
				b = append(b, " b"...)
			}
		}
	}
	return append(b, "\r\n"...)
}

// Echo says where in an answer the router inserts a key in base64. Members are not asked for it: they return
// the key decoded, with its line ends, if another command than ms has made the item.
type Echo struct {
	on     bool
	before letters // flags that the request names before k
}

// Echo returns the echo of the request's answer.
func (r *Request) Echo() (e Echo) {
	if e.on = r.Binary && r.letters.has('k'); !e.on {
		return e
	}
	for flags := r.flags; ; {
		var flag []byte
		if flag, flags = next(flags); flag[0] == 'k' {
			return e
		}
		e.before |= 1 << (flag[0] - 'A')
	}
}

// On tells whether a key is repeated at all.
func (e Echo) On() bool { return e.on }

// In returns the offset in the answer's line where the key belongs; ok is false if it is not repeated.
func (e Echo) In(a *Answer) (at int, ok bool) {
	if !e.on || len(a.word) != 2 { // an error
		return 0, false
	}
	line := a.Line[:len(a.Line)-len("\r\n")]
	word := func(from int) int { // the end of the word that begins there
		if i := bytes.IndexByte(line[from:], ' '); i >= 0 {
			return from + i
		}
		return len(line)
	}
	if at = word(0); a.Code == Value {
		at = word(at + 1)
	}
	for at+1 < len(line) && formOf(line[at+1]) != noFlag && e.before.has(line[at+1]) {
		at = word(at + 1)
	}
	return at, true
}
