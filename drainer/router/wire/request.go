package wire

import (
	"bytes"
	"encoding/base64"
	"math"
)

// Bounds of memcached's.
const (
	// MaxKey is the length of a key at most, in bytes.
	MaxKey = 250
	// MaxLine is the length of a line at most, in bytes, other than that of a classic read.
	// memcached closes a connection that sends more without a line end.
	MaxLine = 2048
	// maxTokens is what memcached cuts a line into at most, with the end.
	maxTokens = 24
	// maxMeta is the number of a meta command's tokens at most, with the end.
	maxMeta = 20
)

// Answers that need no member.
const (
	AnswerError      = "ERROR\r\n"
	AnswerBadFormat  = "CLIENT_ERROR bad command line format\r\n"
	AnswerBadChunk   = "CLIENT_ERROR bad data chunk\r\n"
	answerLongLine   = "CLIENT_ERROR line too long\r\n"
	AnswerNoShutdown = "ERROR: shutdown not enabled\r\n"
	AnswerOK         = "OK\r\n"
	AnswerNoop       = "MN\r\n"
	AnswerEnd        = "END\r\n"
	badExptime       = "CLIENT_ERROR invalid exptime argument\r\n"
	badDelta         = "CLIENT_ERROR invalid numeric delta argument\r\n"
	tooManyFlags     = "CLIENT_ERROR options flags too long\r\n"
	badDelete        = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
)

// Request is one line of a client. Its slices are parts of the buffer that was parsed.
type Request struct {
	Verb Verb
	// Line without its end, and without what comes after a NUL, as memcached reads it.
	Line []byte
	// Key as it is written; nil for classic reads, which have Keys.
	Key []byte
	// Keys of a classic read, with blanks in between; see NextKey.
	Keys []byte
	// Exptime of gat and gats as it is written.
	Exptime []byte
	// Data is the length of the data block that follows, with its end; 0 if none does.
	Data int
	// Quiet: noreply, or a meta command's flag q.
	Quiet bool
	// Binary: a meta command's key is in base64.
	Binary bool
	// Answer: the request needs no member, and this is what it gets. It may be empty.
	Answer string
	// Close the connection after the answer.
	Close bool

	flags   []byte // of a meta command, with blanks in between
	flagsAt int    // where they begin in the line
	end     int    // of the line without noreply
}

// Parse reads the line at the beginning of b, and returns its length with its end; 0 if
// the end isn't there yet.
func (r *Request) Parse(b []byte) int {
	n := bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		return 0
	}
	line := b[:n-1]
	if len(line) > 1 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	if at := bytes.IndexByte(line, 0); at >= 0 {
		line = line[:at]
	}
	*r = Request{Line: line, end: len(line)}
	name, rest := next(line)
	r.Verb = verbOf(name)
	switch {
	case r.Verb.Reads():
		r.read(rest)
	case len(line) > MaxLine:
		r.refuse(LongLine(line))
	case r.Verb.Meta():
		r.meta(rest)
	case r.Verb >= Set:
		r.classic(rest)
	default:
		r.local(name, rest)
	}
	return n
}

// LongLine is the answer to a line that is too long, or to what there is of it.
func LongLine(line []byte) string {
	if name, _ := next(line); verbOf(name) == Unknown {
		return AnswerError
	}
	return answerLongLine
}

// refuse answers without a member.
func (r *Request) refuse(answer string) {
	r.Data = 0
	if !r.Quiet {
		r.Answer = answer
	}
	r.Verb = Unknown
}

// next is the first token, and what comes after it.
func next(b []byte) (token, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// Next is the first token of a list with blanks in between, and what comes after it.
func Next(list []byte) (token, rest []byte) { return next(list) }

// Flags of a meta command, with blanks in between.
func (r *Request) Flags() []byte { return r.flags }

// NextKey takes the first of Keys; nil after the last.
func (r *Request) NextKey() []byte {
	key, rest := next(r.Keys)
	r.Keys = rest
	if len(key) == 0 {
		return nil
	}
	return key
}

func (r *Request) read(rest []byte) {
	first, after := next(rest)
	if len(first) == 0 {
		r.refuse(AnswerError)
		return
	}
	if r.Verb == Gat || r.Verb == Gats {
		if _, ok := number(first); !ok {
			r.refuse(badExptime)
			return
		}
		r.Exptime, rest = first, after
	}
	// An answer with one key too long is an error as a whole.
	for keys := rest; ; {
		var key []byte
		if key, keys = next(keys); len(key) == 0 {
			break
		} else if len(key) > MaxKey {
			r.refuse(AnswerBadFormat)
			return
		}
	}
	r.Keys = rest
	if key, _ := next(rest); len(key) == 0 {
		r.Verb, r.Answer = Unknown, AnswerEnd // gat without a key
	}
}

// split fills tokens, and returns how many there are; more than there is room for count
// as one more.
func split(b []byte, tokens [][]byte) int {
	for n := 0; ; n++ {
		var token []byte
		if token, b = next(b); len(token) == 0 {
			return n
		}
		if n == len(tokens) {
			return n + 1
		}
		tokens[n] = token
	}
}

// classic is a command with one key: set and the like, incr, decr, touch, delete.
func (r *Request) classic(rest []byte) {
	var room [6][]byte
	n := split(rest, room[:])
	least, most := 4, 5 // KEY FLAGS EXPTIME SIZE [noreply]
	switch r.Verb {
	case Cas:
		least, most = 5, 6
	case Incr, Decr, Touch:
		least, most = 2, 3
	case Delete:
		least, most = 1, 3
	}
	if n < least || n > most {
		r.refuse(AnswerError)
		return
	}
	tokens := room[:n]
	if last := tokens[n-1]; n > 1 && string(last) == "noreply" {
		r.Quiet = true
		r.end = endBefore(r.Line, len("noreply"))
	}
	r.Key = tokens[0]
	switch {
	case r.Verb == Delete && n > 1 && !deletes(tokens[1:], r.Quiet):
		r.refuse(badDelete)
	case len(r.Key) > MaxKey:
		r.refuse(AnswerBadFormat)
	case r.Verb.Stores():
		r.store(tokens)
	case (r.Verb == Incr || r.Verb == Decr) && !unsigned(tokens[1]):
		r.refuse(badDelta)
	case r.Verb == Touch:
		if _, ok := number(tokens[1]); !ok {
			r.refuse(badExptime)
		}
	}
}

// endBefore is where the line ends without its last token of that length.
func endBefore(line []byte, token int) int {
	line = bytes.TrimRight(line, " ")
	return len(bytes.TrimRight(line[:len(line)-token], " "))
}

// deletes: "delete KEY [0] [noreply]".
func deletes(tokens [][]byte, quiet bool) bool {
	zero := string(tokens[0]) == "0"
	return len(tokens) == 1 && (zero || quiet) || len(tokens) == 2 && zero && quiet
}

// store checks all numbers of the line, so that members agree with the router about
// the data block.
func (r *Request) store(tokens [][]byte) {
	size, ok := number(tokens[3])
	_, okExptime := number(tokens[2])
	ok = ok && okExptime && unsigned(tokens[1]) && (r.Verb != Cas || unsigned(tokens[4]))
	if !ok || !r.sized(size) {
		r.refuse(AnswerBadFormat)
	}
}

// sized takes the length of a data block. memcached keeps the lower 32 bits of it.
func (r *Request) sized(size int64) bool {
	size = int64(int32(size))
	if size < 0 || size > math.MaxInt32-2 {
		return false
	}
	r.Data = int(size) + 2
	return true
}

// meta is mg, ms, md, ma and me.
func (r *Request) meta(rest []byte) {
	r.Key, rest = next(rest)
	switch {
	case len(r.Key) == 0 && r.Verb != MetaDebug:
		r.refuse(AnswerError)
		return
	case len(r.Key) == 0 || len(r.Key) > MaxKey:
		r.refuse(AnswerBadFormat)
		return
	}
	if r.Verb == MetaSet && !r.metaSize(&rest) {
		return
	}
	r.flags, r.flagsAt = rest, len(r.Line)-len(rest)
	for flags := rest; ; {
		var flag []byte
		if flag, flags = next(flags); len(flag) == 0 {
			return
		}
		switch flag[0] {
		case 'q':
			r.Quiet = r.Verb != MetaDebug
		case 'b':
			r.Binary = true
		}
	}
}

// metaSize reads ms's length of the data block. If it says false, the request is
// answered.
func (r *Request) metaSize(rest *[]byte) bool {
	token, after := next(*rest)
	size, ok := number(token)
	var room [maxMeta - 2][]byte
	switch n := split(*rest, room[:]); {
	case n == 0:
		ok = false
	case n+2 >= maxMeta: // the command, the key and the end count
		r.refuse(tooManyFlags)
		return false
	}
	if !ok || !r.sized(size) {
		r.refuse(AnswerBadFormat)
		return false
	}
	*rest = after
	return true
}

// Flag of a meta command: what follows its letter.
func (r *Request) Flag(letter byte) (value []byte, ok bool) {
	for flags := r.flags; ; {
		var flag []byte
		if flag, flags = next(flags); len(flag) == 0 {
			return nil, false
		}
		if flag[0] == letter {
			return flag[1:], true
		}
	}
}

// local is what needs no key.
func (r *Request) local(name, rest []byte) {
	var room [maxTokens][]byte
	tokens := room[:min(split(rest, room[:]), maxTokens)]
	if n := len(tokens); n > 0 && string(tokens[n-1]) == "noreply" && (r.Verb == Verbosity || r.Verb == FlushAll) {
		r.Quiet = true
		r.end = endBefore(r.Line, len("noreply"))
		tokens = tokens[:n-1]
	}
	switch r.Verb {
	case MetaNoop:
		r.Answer = AnswerNoop
	case Quit:
		r.Close = true
	case Verbosity:
		r.verbosity(tokens)
	case FlushAll:
		r.flush(tokens)
	case Unknown:
		r.unknown(name, tokens)
	case Version, Stats: // the router knows
		r.Keys = rest
	}
}

func (r *Request) verbosity(tokens [][]byte) {
	switch quiet := r.Quiet; {
	case len(tokens) == 0 && !quiet, len(tokens) > 2:
		r.Quiet = false
		r.refuse(AnswerError)
	case len(tokens) == 0:
		r.refuse(AnswerBadFormat)
	default:
		if !unsigned(tokens[0]) {
			r.refuse(AnswerBadFormat)
		} else if !quiet {
			r.Answer = AnswerOK
		}
	}
}

func (r *Request) flush(tokens [][]byte) {
	n := len(tokens)
	if r.Quiet {
		n++
	}
	if n > 2 {
		r.Quiet = false
		r.refuse(AnswerError)
		return
	}
	if len(tokens) > 0 {
		if _, ok := number(tokens[0]); !ok {
			r.refuse(badExptime)
		}
	}
}

func (r *Request) unknown(name []byte, tokens [][]byte) {
	last := name
	if len(tokens) > 0 {
		last = tokens[len(tokens)-1]
	}
	switch {
	case string(name) == "shutdown":
		r.Answer = AnswerNoShutdown
	case len(name) > 1 && bytes.HasPrefix(last, []byte("HTTP/")):
		r.Close = true // as memcached: a browser was talked into this
	default:
		r.Answer = AnswerError
	}
}

// AppendTo appends the request for a member, without noreply and q: whether its answer
// is passed on is the router's to decide, so that each request has an answer. The data
// block follows.
func (r *Request) AppendTo(dst []byte) []byte {
	if !r.Quiet || !r.Verb.Meta() {
		dst = append(dst, r.Line[:r.end]...)
		return append(dst, '\r', '\n')
	}
	dst = append(dst, r.Line[:r.flagsAt]...)
	for rest := r.flags; ; {
		var flag []byte
		if flag, rest = next(rest); len(flag) == 0 {
			return append(dst, '\r', '\n')
		}
		if flag[0] == 'q' {
			continue
		}
		if dst[len(dst)-1] != ' ' {
			dst = append(dst, ' ')
		}
		dst = append(dst, flag...)
	}
}

// AppendRead appends a classic read of one key.
func (r *Request) AppendRead(dst, key []byte) []byte {
	dst = append(dst, names[r.Verb]...)
	dst = append(dst, ' ')
	if r.Exptime != nil {
		dst = append(dst, r.Exptime...)
		dst = append(dst, ' ')
	}
	dst = append(dst, key...)
	return append(dst, '\r', '\n')
}

// Hashed is the key that memcached stores and clients hash: decoded, if it is in base64.
// room is for the decoded key.
func (r *Request) Hashed(room *[MaxKey]byte) []byte {
	if !r.Binary || len(r.Key) > MaxKey {
		return r.Key
	}
	n, err := base64.StdEncoding.Decode(room[:], r.Key)
	if err != nil {
		return r.Key // any member refuses it
	}
	return room[:n]
}
