package ringchange

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"example.com/memcached-operator/drainer/wire"
)

// KeepsCAS tells whether a memcached of that version accepts the CAS value for an item (1.6.27 and later).
func KeepsCAS(version string) bool { return atLeast(version, 27) }

// FlushesBySeconds tells whether a flush_all of a memcached of that version leaves items that were stored in
// the same second (1.6.25 and later). Earlier versions also compare CAS values, and leave none.
func FlushesBySeconds(version string) bool { return atLeast(version, 25) }

// atLeast tells whether a version is 1.6.PATCH or later.
func atLeast(version string, patchAtLeast int) bool {
	var major, minor, patch int
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	return major > 1 || major == 1 && (minor > 6 || minor == 6 && patch >= patchAtLeast)
}

// Fetched is an item that was read to be moved. Its value is a part of the answer.
type Fetched struct {
	Value []byte // with its line end
	Flags uint64
	ttl   int64 // in seconds; 0 if it never expires
	cas   uint64
	// Idle is how long ago it was last used, in seconds.
	Idle int64
}

// Fetched reads an answer to Fetch that was Found. ok is false if the item is about to expire.
func (r *Request) Fetched(answer []byte) (f Fetched, ok bool) {
	var a wire.Answer
	if !a.Parse(wire.MetaValue, answer) || a.Code != wire.Value || len(answer) != len(a.Line)+a.Block || !bytes.HasSuffix(answer, []byte("\r\n")) {
		return f, false
	}
	text, _ := returned(&a, 't')
	ttl, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || ttl == 0 {
		return f, false
	}
	idle, _ := returned(&a, 'l')
	f = Fetched{Value: answer[len(a.Line):], Flags: returnedNumber(&a, 'f'), ttl: max(ttl, 0), cas: returnedNumber(&a, 'c')}
	f.Idle, err = strconv.ParseInt(string(idle), 10, 64)
	return f, err == nil
}

// longestRelative is how many seconds memcached reads as relative to now. A larger number is a Unix time.
const longestRelative = 30 * 24 * 3600

// AppendCopy appends a command that stores the item in place of the placeholder. keepCAS means that the owner
// accepts the CAS value for it. A lease of 0 makes it an add. now is in Unix seconds.
func (r *Request) AppendCopy(dst []byte, f *Fetched, s Step, keepCAS bool, now int64) []byte {
	ttl := f.ttl
	if ttl > longestRelative {
		ttl = min(ttl+now, math.MaxInt32) // members accept no later one
	}
	flags := " ME"
	if s.CAS != 0 {
		flags = " C" + strconv.FormatUint(s.CAS, 10)
	}
	flags += " c F" + strconv.FormatUint(f.Flags, 10) + " T" + strconv.FormatInt(ttl, 10)
	if keepCAS {
		flags += " E" + strconv.FormatUint(f.cas, 10)
	}
	return r.store(dst, flags, f.Value)
}
