package ringchange

import (
	"bytes"
	"math"
	"strconv"

	"example.com/memcached-operator/drainer/wire"
)

// Kind returns the kind of the answer to a step.
func (r *Request) Kind(s Step) wire.Kind {
	switch s.Action {
	case Ask, AskUpdate:
		return wire.KindOf(r.Verb)
	case Guarded:
		if !r.translated() {
			return wire.KindOf(r.Verb)
		}
	}
	return wire.MetaValue
}

// Result returns the result of a step, from an owner's whole answer, and the client's answer if this step is
// the last: nil if the step has no answer for the client. If the step has failed, the client's answer is the
// error.
func (r *Request) Result(s Step, answer []byte) (Result, []byte) {
	var a wire.Answer
	if !a.Parse(r.Kind(s), answer) || a.Code == wire.Broken {
		return Result{Code: Failed}, nil
	}
	if s.Action == Lease && a.Code == wire.Failure && bytes.HasPrefix(a.Line, []byte("CLIENT_ERROR cannot increment")) {
		return Result{Code: Refused}, nil // there is an item that is no number
	}
	if a.Code == wire.Failure && s.Action != Ask && s.Action != AskUpdate && s.Action != Guarded {
		return Result{Code: Failed, Said: true}, answer
	}
	switch s.Action {
	case Look:
		return r.found(s, &a, answer, a.Code == wire.Header), nil
	case Peek, PeekAsked:
		return r.found(s, &a, answer, a.Code == wire.Value), nil
	case Fetch:
		if result := r.found(s, &a, answer, a.Code == wire.Value); result.Code != Found || !outdated(&a) {
			return result, nil
		}
		return Result{Code: Absent}, nil
	case Lease:
		return leased(&a, answer), nil
	case Erase, EraseIf, Copy:
		return conditional(&a), nil
	case Make, Fill:
		result := made(&a)
		if s.Action == Fill && (a.Code == wire.Exists || a.Code == wire.Miss) {
			result.Code = Changed
		}
		return result, r.madeAnswer(&a, result, answer)
	case Guarded:
		return r.guardedResult(s, &a, answer)
	}
	return r.asked(s, &a, answer)
}

// returned returns a flag of a meta command's answer.
func returned(a *wire.Answer, letter byte) (value []byte, ok bool) {
	_, rest := wire.Next(bytes.TrimRight(a.Line, "\r\n"))
	if a.Code == wire.Value {
		_, rest = wire.Next(rest)
	}
	for {
		var flag []byte
		if flag, rest = wire.Next(rest); len(flag) == 0 {
			return nil, false
		}
		if flag[0] == letter {
			return flag[1:], true
		}
	}
}

func returnedNumber(a *wire.Answer, letter byte) uint64 {
	text, _ := returned(a, letter)
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// leased returns the result of the ma that makes a placeholder. An item of a client may have the CAS value that no
// item should have; the ma has not changed its value.
func leased(a *wire.Answer, answer []byte) Result {
	cas := returnedNumber(a, 'c')
	switch {
	case a.Code == wire.Exists, a.Code == wire.NotStored, a.Code == wire.Value && !isLeaseValue(a, answer):
		return Result{Code: Refused}
	case a.Code == wire.Value && cas != 0 && cas != math.MaxUint64:
		return Result{Code: Leased, CAS: cas}
	}
	return Result{Code: Failed} // also for a member without CAS values
}

// found returns the result of a look, or a fetch.
func (r *Request) found(s Step, a *wire.Answer, answer []byte, hit bool) Result {
	touched := r.touched(s)
	plain := hit && returnedNumber(a, 'f') == 0 && (s.Place == New || !touched) && (touched || expiresSoon(a))
	switch {
	case plain && a.Code == wire.Value && isLeaseValue(a, answer):
		return Result{Code: Leased, CAS: returnedNumber(a, 'c')}
	case plain && a.Code == wire.Header && returnedNumber(a, 's') == uint64(len(LeaseValue)):
		return Result{Code: Occupied, CAS: returnedNumber(a, 'c')}
	case hit:
		return Result{Code: Found, CAS: returnedNumber(a, 'c')}
	case a.Code == wire.Miss:
		return Result{Code: Absent}
	}
	return Result{Code: Failed}
}

// expiresSoon tells whether the item expires as soon as a placeholder does: a client's item may have the same
// value. If the answer doesn't say when, expiresSoon returns true.
func expiresSoon(a *wire.Answer) bool {
	text, ok := returned(a, 't')
	ttl, err := strconv.ParseInt(string(text), 10, 64)
	return !ok || err != nil || ttl >= 0 && ttl <= LeaseSeconds
}

// touched tells whether the step has changed when the item expires, or the placeholder in its place. Then
// only the owner tells an item from a placeholder: an old owner has no placeholders.
func (r *Request) touched(s Step) bool {
	if s.Action != Ask && s.Action != AskUpdate && s.Action != Guarded && s.Action != PeekAsked {
		return false
	}
	return r.Verb == wire.Gat || r.Verb == wire.Gats || r.Verb == wire.Touch || r.Verb == wire.MetaGet && r.Has('T')
}

// isLeaseValue tells whether an answer's value is that of a placeholder.
func isLeaseValue(a *wire.Answer, answer []byte) bool {
	return a.Block == len(LeaseValue+"\r\n") && bytes.HasPrefix(answer[len(a.Line):], []byte(LeaseValue))
}

// outdated tells whether an item is not to be moved, because a client has marked it as stale, or was told to
// store a value and hasn't yet.
func outdated(a *wire.Answer) bool {
	has := func(letter byte) bool { _, ok := returned(a, letter); return ok }
	return has('X') || a.Block == len("\r\n") && (has('W') || has('Z'))
}

// Outdated tells whether the item of an answer to Fetch is not to be moved.
func (r *Request) Outdated(answer []byte) bool {
	var a wire.Answer
	return a.Parse(wire.MetaValue, answer) && a.Code == wire.Value && outdated(&a)
}

// made returns the result of an ms that makes an item.
func made(a *wire.Answer) Result {
	switch a.Code {
	case wire.Header:
		if cas := returnedNumber(a, 'c'); cas != 0 && cas != math.MaxUint64 {
			return Result{Code: Found, CAS: cas}
		}
		return Result{Code: Failed} // a member without CAS values
	case wire.NotStored:
		return Result{Code: Refused}
	}
	return Result{Code: Failed}
}

func conditional(a *wire.Answer) Result {
	result := Result{Code: Failed}
	switch a.Code {
	case wire.Header:
		result.Code = Found
	case wire.Miss:
		result.Code = Absent
	case wire.Exists:
		result.Code = Changed
	}
	if a.Code == wire.Header {
		if cas := returnedNumber(a, 'c'); cas != math.MaxUint64 {
			result.CAS = cas
		}
	}
	return result
}

// asked returns the result of the client's own command.
func (r *Request) asked(s Step, a *wire.Answer, answer []byte) (Result, []byte) {
	switch {
	case a.Code == wire.Failure && (r.Verb == wire.Delete || r.Verb == wire.MetaDelete):
		return Result{Code: Failed}, answer
	case a.Code == wire.Failure && bytes.HasPrefix(a.Line, []byte("SERVER_ERROR")) && r.sets():
		return Result{Code: Found}, answer // memcached has deleted the previous item
	case a.Code == wire.Failure:
		return Result{Code: Refused}, answer
	case r.Verb.Reads():
		if a.Code == wire.End {
			return Result{Code: Absent}, answer
		}
		switch {
		case !isLease(a, answer), r.touched(s) && s.Place == Old:
			return Result{Code: Found}, answer
		case r.touched(s):
			return Result{Code: Leased}, nil
		}
		return Result{Code: Occupied, CAS: lineCAS(a)}, answer
	case r.Verb == wire.MetaGet:
		if a.Code == wire.Miss {
			return Result{Code: Absent}, answer
		}
		result, said := r.found(s, a, answer, true), answer
		for _, letter := range []byte("fsc") {
			if letter != 's' || !r.Has('v') {
				said = r.withoutAdded(said, bytes.IndexByte(said, '\n')+1, letter)
			}
		}
		if result.Code == Leased && !r.touched(s) && !r.Has('t') {
			result.Code = Occupied
		}
		return result, said
	case a.Code == wire.Miss, a.Code == wire.NotStored && r.Verb != wire.Add && r.mode() != 'E':
		return Result{Code: Absent}, answer
	case a.Code == wire.NotStored, a.Code == wire.Exists:
		return Result{Code: Refused}, answer
	}
	return Result{Code: Found}, answer
}

// sets tells whether the request is a plain set.
func (r *Request) sets() bool {
	class, _ := ClassOf(&r.Request)
	return class == Set
}

// isLease tells, by the answer to a classic read, whether the item is a placeholder.
func isLease(a *wire.Answer, answer []byte) bool {
	_, rest := wire.Next(a.Line)
	_, rest = wire.Next(rest)
	flags, _ := wire.Next(rest)
	n, err := strconv.ParseUint(string(flags), 10, 64)
	return err == nil && n == 0 && isLeaseValue(a, answer)
}

// lineCAS returns the CAS value in the answer to a gets, and math.MaxUint64 for a get.
func lineCAS(a *wire.Answer) uint64 {
	rest := bytes.TrimRight(a.Line, "\r\n")
	for range 4 { // VALUE, key, flags, bytes
		_, rest = wire.Next(rest)
	}
	text, _ := wire.Next(rest)
	cas, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return cas
}

// mode returns the mode of an ms, in upper case.
func (r *Request) mode() byte {
	if mode, ok := r.Flag('M'); ok && len(mode) == 1 {
		return mode[0] &^ 0x20
	}
	return 0
}

// withoutAdded removes a flag from an answer's line that the client has not asked for.
func (r *Request) withoutAdded(answer []byte, line int, letter byte) []byte {
	if r.Has(letter) {
		return answer
	}
	for i := 1; i < line; i++ {
		if answer[i-1] == ' ' && answer[i] == letter {
			end := i + bytes.IndexAny(answer[i:line], " \r")
			return append(answer[:i-1:i-1], answer[end:]...)
		}
	}
	return answer
}

// guardedResult returns the result of a request for an item with a CAS value.
func (r *Request) guardedResult(s Step, a *wire.Answer, answer []byte) (Result, []byte) {
	if !r.translated() && (!r.Verb.Meta() || r.Verb == wire.MetaGet || r.Has('C')) {
		result, said := r.asked(s, a, answer)
		switch is := result.Code == Leased || result.Code == Occupied; {
		case is && r.Verb == wire.MetaGet && returnedNumber(a, 'c') == s.CAS:
			result.Code = Found // the item that was looked at
		case result.Code == Leased:
			result.Code = Changed
		}
		return result, said
	}
	switch {
	case r.Verb.Reads():
		return r.guardedRead(s, a, answer)
	case a.Code == wire.Exists:
		return Result{Code: Changed}, nil
	case a.Code == wire.Miss || a.Code == wire.NotStored:
		return Result{Code: Absent}, nil
	case a.Code == wire.Failure:
		return Result{Code: Refused}, answer
	case r.Verb.Meta():
		return Result{Code: Found}, answer
	case a.Code == wire.Value: // from incr and decr
		return Result{Code: Found}, answer[len(a.Line):]
	}
	return Result{Code: Found}, []byte("STORED\r\n")
}

// guardedRead returns the result of a gat that was sent as an mg.
func (r *Request) guardedRead(s Step, a *wire.Answer, answer []byte) (Result, []byte) {
	switch {
	case a.Code == wire.Miss:
		return Result{Code: Absent}, []byte("END\r\n")
	case a.Code == wire.Failure:
		return Result{Code: Refused}, answer
	case returnedNumber(a, 'c') != s.CAS && r.found(s, a, answer, a.Code == wire.Value).Code != Found:
		return Result{Code: Changed}, nil
	}
	flags, _ := returned(a, 'f')
	said := append([]byte("VALUE "), r.Single...)
	said = append(append(said, ' '), flags...)
	said = strconv.AppendInt(append(said, ' '), int64(a.Block-len("\r\n")), 10)
	if r.Verb == wire.Gats {
		said = strconv.AppendUint(append(said, ' '), returnedNumber(a, 'c'), 10)
	}
	said = append(append(said, "\r\n"...), answer[len(a.Line):]...)
	return Result{Code: Found}, append(said, "END\r\n"...)
}

// madeAnswer returns the client's answer for an item that was made for it.
func (r *Request) madeAnswer(a *wire.Answer, result Result, answer []byte) []byte {
	switch {
	case result.Code == Refused:
		return r.Says(Exists)
	case result.Code != Found:
		return nil
	case r.Verb == wire.Add:
		return []byte("STORED\r\n")
	case r.Verb == wire.MetaArithmetic:
		return r.countedAnswer(a)
	}
	return r.withoutAdded(answer, len(a.Line), 'c')
}

// countedAnswer returns the answer to an ma that has made an item.
func (r *Request) countedAnswer(a *wire.Answer) []byte {
	value := r.initial()
	dst := []byte("HD")
	if r.Has('v') {
		dst = strconv.AppendInt([]byte("VA "), int64(len(value)), 10)
	}
	dst = r.echo(dst, func(dst []byte, letter byte) []byte {
		switch letter {
		case 'c':
			return strconv.AppendUint(append(dst, " c"...), returnedNumber(a, 'c'), 10)
		case 't':
			return append(dst, " t"+r.ttl()...)
		}
		return dst
	})
	dst = append(dst, "\r\n"...)
	if r.Has('v') {
		dst = append(append(dst, value...), "\r\n"...)
	}
	return dst
}

// ttl returns the lifetime of an item that N makes.
func (r *Request) ttl() string {
	if ttl := r.Signed('N'); ttl != 0 {
		return strconv.FormatInt(ttl, 10)
	}
	return "-1"
}

// echo appends the parts of the request that an answer repeats. other appends the answers to the other flags.
// A key in base64 is left to the caller that passes the answer on; see wire.Echo.
func (r *Request) echo(dst []byte, other func(dst []byte, letter byte) []byte) []byte {
	for flags := r.Flags(); ; {
		var flag []byte
		if flag, flags = wire.Next(flags); len(flag) == 0 {
			return dst
		}
		switch flag[0] {
		case 'O':
			dst = append(append(dst, ' '), flag...)
		case 'k':
			if !r.Binary {
				dst = append(append(dst, " k"...), r.Key...)
			}
		default:
			if other != nil {
				dst = other(dst, flag[0])
			}
		}
	}
}

// Says returns the answer for an outcome that no owner has answered.
func (r *Request) Says(o Outcome) []byte {
	meta := func(word string) []byte { return append(r.echo([]byte(word), r.noCAS), "\r\n"...) }
	switch {
	case o == Deleted && r.Verb.Meta():
		return meta("HD")
	case o == Deleted:
		return []byte("DELETED\r\n")
	case o == Exists && r.Verb.Meta():
		return meta("NS")
	case o == Exists:
		return []byte("NOT_STORED\r\n")
	}
	switch r.Verb {
	case wire.Get, wire.Gets, wire.Gat, wire.Gats:
		return []byte(wire.AnswerEnd)
	case wire.Append, wire.Prepend, wire.Replace:
		return []byte("NOT_STORED\r\n")
	case wire.MetaGet:
		if r.Has('N') {
			return r.won()
		}
		return meta("EN")
	case wire.MetaDebug:
		return []byte("EN\r\n")
	case wire.MetaSet:
		if r.Has('C') {
			return meta("NF")
		}
		return meta("NS")
	case wire.MetaDelete, wire.MetaArithmetic:
		return meta("NF")
	}
	return []byte("NOT_FOUND\r\n")
}

// noCAS appends the CAS value of an ms that stores nothing, if the client asks for it.
func (r *Request) noCAS(dst []byte, letter byte) []byte {
	if letter == 'c' && r.Verb == wire.MetaSet {
		return append(dst, " c0"...)
	}
	return dst
}

// won returns the answer to an mg with N that has found nothing: the client may store the item. During a ring
// change members don't record that, so other clients get the same answer.
func (r *Request) won() []byte {
	dst := []byte("HD")
	if r.Has('v') {
		dst = []byte("VA 0")
	}
	dst = r.echo(dst, func(dst []byte, letter byte) []byte {
		switch letter {
		case 'f', 's', 'c', 'h', 'l':
			return append(dst, ' ', letter, '0')
		case 't':
			return append(dst, " t"+r.ttl()...)
		}
		return dst
	})
	dst = append(dst, " W\r\n"...)
	if r.Has('v') {
		dst = append(dst, "\r\n"...)
	}
	return dst
}
