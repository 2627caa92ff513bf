package wire

import (
	"bytes"
	"math"
)

// memcached's bounds.
const (
	// MaxKey bounds a key, in bytes.
	MaxKey = 250
	// MaxLine bounds a line, in bytes, except that of a classic read. memcached closes a connection that
	// sends more without a line end. Lines for members are shorter than a third of that; see AppendTo.
	MaxLine = 2048
	// maxTokens bounds the tokens into which memcached splits a line, with the end.
	maxTokens = 24
	// MaxBlock bounds a data block, in bytes, without its line end.
	MaxBlock = math.MaxInt32 - 2
)

// Answers that need no member.
const (
	AnswerError      = "ERROR\r\n"
	AnswerBadFormat  = "CLIENT_ERROR bad command line format\r\n"
	AnswerBadChunk   = "CLIENT_ERROR bad data chunk\r\n"
	AnswerLongLine   = "CLIENT_ERROR line too long\r\n"
	AnswerNoShutdown = "ERROR: shutdown not enabled\r\n"
	AnswerOK         = "OK\r\n"
	AnswerNoop       = "MN\r\n"
	AnswerEnd        = "END\r\n"
	AnswerMiss       = "EN\r\n" // to mg
	badExptime       = "CLIENT_ERROR invalid exptime argument\r\n"
	badDelta         = "CLIENT_ERROR invalid numeric delta argument\r\n"
	badDelete        = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
)

// Request is one line of a client. Its slices are parts of the buffer that was parsed.
//
// A member is never sent these slices, except keys: versions of memcached differ in how they read numbers and
// noreply, and a version that reads another length of the data block than the router would carry out the
// block as requests. So AppendTo writes each request in the only form that all versions read alike, and Parse
// refuses requests that don't have such a form.
type Request struct {
	Verb Verb
	// Line is the line without its end, and without what follows a NUL, as memcached reads it.
	Line []byte
	// Key is the client's text of the key; nil for classic reads, which have Keys.
	Key []byte
	// Keys are those of a classic read, separated by blanks; see NextKey.
	Keys []byte
	// ClientFlags are those of a classic storage command.
	ClientFlags uint64
	// Exptime is that of a classic storage command, of touch, gat and gats; the delay of flush_all.
	Exptime int32
	// Number is a cas's unique value, or the delta of incr and decr.
	Number uint64
	// Data is the length of the data block that follows, with its line end; 0 if there is none.
	Data int
	// Skip is that length for a refused request: no part of the block is a request.
	Skip int
	// Quiet means noreply, or a meta command's flag q.
	Quiet bool
	// Binary means that a meta command's key is in base64.
	Binary bool
	// Answer is the answer if the request needs no member. Answer may be empty.
	Answer string
	// Close means that the connection is closed after the answer.
	Close bool

	delayed bool    // flush_all has a delay
	letters letters // of a meta command's flags
	flags   []byte  // separated by blanks
}

// cut returns the line at the beginning of b as memcached reads it: without its end, and without what follows
// a NUL. n is the line's length with its end; 0 if the end is still to come.
func cut(b []byte) (line []byte, n int) {
	n = bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		return nil, 0
	}
	line = b[:n-1]
	if len(line) > 1 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	if at := bytes.IndexByte(line, 0); at >= 0 {
		line = line[:at]
	}
	return line, n
}

// Parse reads the line at the beginning of b, and returns its length with its end; 0 if the end is still to
// come.
func (r *Request) Parse(b []byte) int {
	line, n := cut(b)
	if n == 0 {
		return 0
	}
	*r = Request{Line: line}
	name, rest := next(line)
	r.Verb = verbOf(name)
	switch {
	case r.Verb.Reads():
		r.read(rest)
	case len(line) > MaxLine:
		r.refuse(LongLine(line))
		r.Close = r.Answer == AnswerLongLine
	case r.Verb.Meta():
		r.meta(rest)
	case r.Verb >= Set:
		r.classic(rest)
	default:
		r.local(name, rest)
	}
	return n
}

// ParseRest continues a classic read that was parsed before: b begins with the remaining keys of its line.
func (r *Request) ParseRest(v Verb, exptime int32, b []byte) int {
	line, n := cut(b)
	*r = Request{Verb: v, Exptime: exptime, Keys: line}
	return n
}

// LongLine returns the answer to a line that is too long, or to the beginning of one. The connection is
// closed after it, because it is unknown whether a data block follows.
func LongLine(line []byte) string {
	if name, _ := next(line); verbOf(name) == Unknown {
		return AnswerError
	}
	return AnswerLongLine
}

// LongRead returns the verb of a line that may be longer than MaxLine, as memcached allows, and the offset of
// its keys; 0 if it may not.
func LongRead(line []byte) (v Verb, n int) {
	name, rest := next(line)
	if v = verbOf(name); v != Get && v != Gets || len(rest) == 0 {
		return Unknown, 0
	}
	return v, len(line) - len(rest)
}

// refuse sets an answer without a member. Errors of meta commands are also sent for quiet ones.
func (r *Request) refuse(answer string) {
	r.Skip, r.Data = r.Data, 0
	if !r.Quiet || r.Verb.Meta() {
		r.Answer = answer
	}
	r.Verb = Unknown
}

// next returns the first token, and the rest.
func next(b []byte) (token, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// Next returns the first token of a list that is separated by blanks, and the rest.
func Next(list []byte) (token, rest []byte) { return next(list) }

// NextKey removes and returns the first of Keys; nil after the last.
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
		var ok bool
		if r.Exptime, ok = exptime(first); !ok {
			r.refuse(badExptime)
			return
		}
		rest = after
	}
	// If one key is too long, the whole answer is an error.
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

// split fills tokens, and returns how many there are; further tokens count as one more.
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

// classic parses a command with one key: set and the like, incr, decr, touch, delete.
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
	sized := r.Verb.Stores() && n >= 4 && r.block(room[3])
	if n < least || n > most {
		r.refuse(AnswerError)
		return
	}
	tokens := room[:n]
	r.Quiet = n > 1 && string(tokens[n-1]) == "noreply"
	r.Key = tokens[0]
	var ok bool
	switch {
	case r.Verb == Delete && n > 1 && !deletes(tokens[1:], r.Quiet):
		r.refuse(badDelete)
	case len(r.Key) > MaxKey:
		r.refuse(AnswerBadFormat)
	case r.Verb.Stores():
		if !sized || !r.store(tokens) {
			r.refuse(AnswerBadFormat)
		}
	case r.Verb == Incr || r.Verb == Decr:
		if r.Number, ok = unsigned(tokens[1]); !ok {
			r.refuse(badDelta)
		}
	case r.Verb == Touch:
		if r.Exptime, ok = exptime(tokens[1]); !ok {
			r.refuse(badExptime)
		}
	}
}

// deletes tells whether the tokens are "delete KEY [0] [noreply]".
func deletes(tokens [][]byte, quiet bool) bool {
	zero := string(tokens[0]) == "0"
	return len(tokens) == 1 && (zero || quiet) || len(tokens) == 2 && zero && quiet
}

// block reads the length of a data block. A block that is too long for memcached is refused, but its bytes
// are no requests either.
func (r *Request) block(token []byte) (ok bool) {
	size, ok := number(token)
	if !ok || size < 0 || size > math.MaxInt-2 {
		return false
	}
	r.Data = int(size) + 2
	return size <= MaxBlock
}

// store reads the other numbers of a classic storage command.
func (r *Request) store(tokens [][]byte) bool {
	var ok [3]bool
	r.ClientFlags, ok[0] = unsigned(tokens[1])
	r.Exptime, ok[1] = exptime(tokens[2])
	if ok[2] = true; r.Verb == Cas {
		r.Number, ok[2] = unsigned(tokens[4])
	}
	return ok == [3]bool{true, true, true}
}

// local parses a request that needs no key.
func (r *Request) local(name, rest []byte) {
	var room [maxTokens][]byte
	tokens := room[:min(split(rest, room[:]), maxTokens)]
	if n := len(tokens); n > 0 && string(tokens[n-1]) == "noreply" && (r.Verb == Verbosity || r.Verb == FlushAll) {
		r.Quiet = true
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
	case Version, Stats: // the router answers these
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
		if _, ok := unsigned(tokens[0]); !ok {
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
	if r.delayed = len(tokens) > 0; r.delayed {
		var ok bool
		if r.Exptime, ok = exptime(tokens[0]); !ok {
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
		r.Close = true // as memcached does: a browser may have been tricked into this
	default:
		r.Answer = AnswerError
	}
}
