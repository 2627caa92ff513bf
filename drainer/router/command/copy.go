package command

import (
	"strconv"

	"example.com/memcached-operator/drainer/router/change"
	"example.com/memcached-operator/drainer/router/wire"
)

// Fetched is an item that was read to be moved. Its value is a part of the answer.
type Fetched struct {
	Value []byte // with its end
	flags uint64
	ttl   string // in seconds; "0" for ever
	cas   uint64
}

// Fetched takes an answer to Fetch that was Found. ok is false if the item is about to
// expire.
func (r *Request) Fetched(answer []byte) (f Fetched, ok bool) {
	var a wire.Answer
	if !a.Parse(wire.MetaValue, answer) || a.Code != wire.Value || len(answer) != len(a.Line)+a.Block {
		return f, false
	}
	ttl, _ := returned(&a, 't')
	f = Fetched{Value: answer[len(a.Line):], flags: returnedNumber(&a, 'f'), ttl: string(ttl), cas: returnedNumber(&a, 'c')}
	switch f.ttl {
	case "-1":
		f.ttl = "0"
	case "", "0":
		return f, false
	}
	return f, true
}

// AppendCopy appends the item in place of the placeholder. keepCAS: the owner can be told
// which CAS value it gets (memcached 1.6.27 and later). A lease of 0 is an add.
func (r *Request) AppendCopy(dst []byte, f *Fetched, s change.Step, keepCAS bool) []byte {
	flags := " ME"
	if s.CAS != 0 {
		flags = " C" + strconv.FormatUint(s.CAS, 10)
	}
	flags += " c F" + strconv.FormatUint(f.flags, 10) + " T" + f.ttl
	if keepCAS {
		flags += " E" + strconv.FormatUint(f.cas, 10)
	}
	return r.store(dst, flags, f.Value)
}
