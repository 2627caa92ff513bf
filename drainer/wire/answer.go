package wire

import "bytes"

// Kind determines how the answer to a request ends.
type Kind uint8

const (
	// OneLine is the answer to storage commands, incr and the like.
	OneLine Kind = iota
	// Values answer a classic read: VALUE lines with their blocks, then END.
	Values
	// MetaValue answers a meta command: one line, and a block if it is a VA.
	MetaValue
)

// KindOf returns the kind of the answer to a verb.
func KindOf(v Verb) Kind {
	switch {
	case v.Reads():
		return Values
	case v == MetaGet || v == MetaSet || v == MetaDelete || v == MetaArithmetic:
		return MetaValue
	}
	return OneLine
}

// Code is the meaning of an answer's first line.
type Code uint8

// The codes. Other is a line that is passed on unchanged, such as incr's number.
const (
	Other  Code = iota
	Value       // VALUE, VA: a hit, with a block
	End         // END: no more values
	Header      // HD
	Miss        // EN, NF, NOT_FOUND
	Exists      // EX, EXISTS
	NotStored
	Done    // STORED, DELETED, TOUCHED, OK
	Failure // ERROR, CLIENT_ERROR, SERVER_ERROR
	Broken  // not memcached's protocol
)

// MaxAnswerLine bounds an answer's line, in bytes: a key in base64, and everything that may be beside it.
const MaxAnswerLine = 4096

// Answer is one line from a member.
type Answer struct {
	Code Code
	// Line includes its line end.
	Line []byte
	// Key is that of a VALUE line.
	Key []byte
	// Block is the length of the data block that follows, with its line end.
	Block int

	word []byte // the first word of the line
}

// Parse reads the line at the beginning of b, and returns false if the end of the line is still to come.
func (a *Answer) Parse(kind Kind, b []byte) bool {
	n := bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		if len(b) > MaxAnswerLine {
			*a = Answer{Code: Broken}
			return true
		}
		return false
	}
	*a = Answer{Line: b[:n]}
	line, ok := bytes.CutSuffix(a.Line, []byte("\r\n"))
	first, rest := next(line)
	a.word = first
	switch {
	case !ok:
		a.Code = Broken
	case kind == Values && string(first) == "VALUE":
		a.value(rest)
	case kind == MetaValue && string(first) == "VA":
		a.Code = Value
		a.block(rest)
	default:
		a.Code = codeOf(first)
		if kind == Values && a.Code != End && a.Code != Failure {
			a.Code = Broken
		}
	}
	return true
}

// value reads KEY FLAGS SIZE [CAS].
func (a *Answer) value(rest []byte) {
	a.Code = Value
	a.Key, rest = next(rest)
	_, rest = next(rest)
	a.block(rest)
}

func (a *Answer) block(rest []byte) {
	token, _ := next(rest)
	size, ok := number(token)
	if !ok || size < 0 || size > 1<<31 {
		a.Code = Broken
		return
	}
	a.Block = int(size) + 2
}

func codeOf(word []byte) Code {
	switch string(word) {
	case "END":
		return End
	case "HD":
		return Header
	case "STORED", "DELETED", "TOUCHED", "OK":
		return Done
	case "EN", "NF", "NOT_FOUND":
		return Miss
	case "EX", "EXISTS":
		return Exists
	case "NS", "NOT_STORED":
		return NotStored
	case "ERROR", "CLIENT_ERROR", "SERVER_ERROR":
		return Failure
	}
	return Other
}

// Fits tells whether the answer can be to a request of this verb and kind. If not, the answer is to another
// request.
func (a *Answer) Fits(kind Kind, v Verb) bool {
	switch {
	case a.Code == Broken:
		return false
	case a.Code == Failure, kind == Values:
		return true
	case kind == MetaValue:
		return len(a.word) == 2 && (a.Code == Header || a.Code == Miss || a.Code == Exists || a.Code == NotStored || a.Code == Value && v != MetaSet && v != MetaDelete)
	case v == Incr || v == Decr:
		return string(a.word) == "NOT_FOUND" || a.Code == Other && onlyDigits(a.word) && len(a.word) == len(a.Line)-len("\r\n")
	case v == MetaDebug:
		return string(a.word) == "ME" || string(a.word) == "EN"
	}
	switch string(a.word) {
	case "STORED", "NOT_STORED", "EXISTS":
		return v.Stores()
	case "NOT_FOUND":
		return v == Cas || v == Touch || v == Delete
	case "TOUCHED":
		return v == Touch
	case "DELETED":
		return v == Delete
	case "OK":
		return v == FlushAll
	}
	return false
}

func onlyDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// Hidden tells whether the client of a quiet request doesn't get this answer.
func Hidden(v Verb, c Code) bool {
	switch v {
	case MetaGet:
		return c == Miss
	case MetaSet, MetaDelete:
		return c == Header
	case MetaArithmetic:
		return c == Header || c == Value
	}
	return true // noreply hides errors, too
}
