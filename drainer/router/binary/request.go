package binary

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
)

// request is a packet without its value.
type request struct {
	header
	command
	extrasAndKey []byte
}

// refused returns why a packet is not carried out, and whether the connection then ends; statusOK if it is
// carried out. refused is called before the value is read.
func (r *request) refused(loggedIn bool) (why status, ends bool) {
	public := r.kind == mechanisms || r.kind == login || r.kind == loginStep || r.kind == version
	switch {
	case r.keyLen+r.extrasLen > r.bodyLen:
		return statusUnknown, true
	case r.bodyLen > maxBody:
		return statusInvalid, true
	case !loggedIn && !public:
		return statusLogin, true
	case r.keyLen > maxKey, !r.fits(r.kind):
		return statusInvalid, true
	case r.kind == unknown:
		return statusUnknown, false
	case needsKey(r.kind) && tooLong(r.theKey()):
		return statusInvalid, false
	case r.kind == stat && !slices.Contains(statistics, string(r.theKey())):
		return statusNotFound, false
	}
	return statusOK, false
}

// statistics are the kinds of statistics that a client may ask a router for.
var statistics = []string{"", "settings", "items", "slabs", "reset"}

func needsKey(k kind) bool { return k >= get && k <= count }

func (r *request) theKey() []byte { return r.extrasAndKey[r.extrasLen:] }

// number returns the 32 bits of the extras at this offset.
func (r *request) number(at int) uint32 { return binary.BigEndian.Uint32(r.extrasAndKey[at:]) }

// expiration returns the expiration at this offset of the extras. Text has 31 bits for it: later times become
// the last one that fits, in 2038.
func (r *request) expiration(at int) int64 {
	return int64(min(r.number(at), math.MaxInt32))
}

// plain tells whether a line can carry the key unencoded. If not, it is sent in base64.
func plain(key []byte) bool {
	return !bytes.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// tooLong tells whether the key is too long for the text protocol.
func tooLong(key []byte) bool {
	return !plain(key) && base64.StdEncoding.EncodedLen(len(key)) > maxKey
}

// appendText appends the command's line, which the value follows. A request that needs no member becomes an
// mn, which keeps its place in the order.
func (r *request) appendText(b []byte) []byte {
	switch r.kind {
	case get:
		b = append(r.appendKey(b, "mg"), " v f c"...)
	case touch:
		b = appendInt(append(r.appendKey(b, "mg"), " f c T"...), r.expiration(0))
		if r.withValue {
			b = append(b, " v"...)
		}
	case store:
		b = appendInt(append(r.appendKey(b, "ms"), ' '), int64(r.valueLen()))
		b = strconv.AppendUint(append(b, " c F"...), uint64(r.number(0)), 10)
		b = appendInt(append(b, " T"...), r.expiration(4))
		if r.cas == 0 { // with a CAS value, memcached treats all of them as the same
			b = append(b, r.mode...)
		}
	case extend:
		b = appendInt(append(r.appendKey(b, "ms"), ' '), int64(r.valueLen()))
		b = append(append(b, " c"...), r.mode...)
	case remove:
		b = r.appendKey(b, "md")
	case count:
		b = r.appendCount(b)
	case flush:
		b = append(b, "flush_all"...)
		if r.extrasLen > 0 {
			b = appendInt(append(b, ' '), r.expiration(0))
		}
	case stat:
		b = append(append(b, "stats "...), r.theKey()...)
	default:
		b = append(b, "mn"...)
	}
	if needsKey(r.kind) {
		if r.cas != 0 && r.kind >= store {
			b = strconv.AppendUint(append(b, " C"...), r.cas, 10)
		}
		if !plain(r.theKey()) {
			b = append(b, " b"...)
		}
	}
	return append(b, "\r\n"...)
}

func (r *request) appendCount(b []byte) []byte {
	b = append(append(r.appendKey(b, "ma"), " v c"...), r.mode...)
	b = strconv.AppendUint(append(b, " D"...), binary.BigEndian.Uint64(r.extrasAndKey), 10)
	if r.number(16) != noCreate {
		b = strconv.AppendUint(append(b, " J"...), binary.BigEndian.Uint64(r.extrasAndKey[8:]), 10)
		b = appendInt(append(b, " N"...), r.expiration(16))
	}
	return b
}

func (r *request) appendKey(b []byte, name string) []byte {
	b = append(append(b, name...), ' ')
	if key := r.theKey(); !plain(key) {
		return base64.StdEncoding.AppendEncode(b, key)
	}
	return append(b, r.theKey()...)
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }
