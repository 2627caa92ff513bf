package wire

import (
	"bytes"
	"encoding/base64"
	"strings"
)

const (
	// maxMeta bounds a meta command's tokens, with the end.
	maxMeta = 20
	// maxOpaque bounds an opaque flag, in bytes.
	maxOpaque = 32
)

// The answers to meta commands with wrong flags.
const (
	tooManyFlags     = "CLIENT_ERROR options flags too long\r\n"
	tooManyReadFlags = "CLIENT_ERROR options flags are too long\r\n"
	badFlags         = "CLIENT_ERROR invalid or duplicate flag\r\n"
	badFlag          = "CLIENT_ERROR invalid flag\r\n"
	duplicateFlag    = "CLIENT_ERROR duplicate flag\r\n"
	badToken         = "CLIENT_ERROR bad token in command line format\r\n"
	badInitial       = "CLIENT_ERROR invalid numeric initial value\r\n"
	badMetaDelta     = "CLIENT_ERROR invalid numeric delta value\r\n"
	badModeLength    = "CLIENT_ERROR incorrect length for M token\r\n"
	badSetMode       = "CLIENT_ERROR invalid mode for ms M token\r\n"
	badCountMode     = "CLIENT_ERROR invalid mode for ma M token\r\n"
	badOpaque        = "CLIENT_ERROR opaque token too long\r\n"
	badKey           = "CLIENT_ERROR error decoding key\r\n"
	noBinaryDebug    = "CLIENT_ERROR me of a key in base64 is not supported\r\n"
)

// letters is a set of flags, by their letters.
type letters uint64

func (l letters) has(letter byte) bool { return l>>(letter-'A')&1 != 0 }

// form is the form of a flag.
type form uint8

const (
	noFlag  form = iota
	bare         // a letter; memcached ignores what follows it
	ignored      // by memcached, so members don't get it
	opaque       // a text that is repeated
	mode         // one more letter
	signed       // a number of 32 bits
	natural      // a number of 64 bits without a sign
)

// forms are the forms of the flags that any known version of memcached has, by their letters from 'A' on.
// Other flags are refused: in a later version they could mean that a request gets no answer.
var forms = func() (f ['z' - 'A' + 1]form) {
	for form, of := range map[form]string{bare: "bcfhklqstuvxI", ignored: "LP", opaque: "O", mode: "M", signed: "NRT", natural: "CDEFJ"} {
		for _, letter := range []byte(of) {
			f[letter-'A'] = form
		}
	}
	return f
}()

func formOf(letter byte) form {
	if letter < 'A' || letter > 'z' {
		return noFlag
	}
	return forms[letter-'A']
}

// meta parses mg, ms, md, ma and me.
func (r *Request) meta(rest []byte) {
	r.Key, rest = next(rest)
	sized, size := true, []byte(nil)
	if r.Verb == MetaSet {
		size, rest = next(rest)
		sized = r.block(size)
	}
	switch {
	case len(r.Key) == 0 && r.Verb != MetaDebug:
		r.refuse(AnswerError)
	case len(r.Key) == 0 || len(r.Key) > MaxKey:
		r.refuse(AnswerBadFormat)
	case r.Verb == MetaDebug:
		// memcached returns a key that is not text unencoded. memcached ignores flags after the first.
		if first, _ := next(rest); string(first) == "b" {
			r.refuse(noBinaryDebug)
		}
	case !sized:
		r.flags = rest
		r.refuseFlags(AnswerBadFormat)
	default:
		r.flags = rest
		if answer := r.checkFlags(); answer != "" {
			r.refuseFlags(answer)
			return
		}
		r.Quiet = r.letters.has('q')
	}
}

// refuseFlags refuses the request, unless there are so many flags that memcached looks at none of them.
func (r *Request) refuseFlags(answer string) {
	var room [maxMeta][]byte
	if split(r.flags, room[:]) > r.mostFlags() {
		answer = tooManyFlags
		if r.Verb == MetaGet {
			answer = tooManyReadFlags
		}
	}
	r.refuse(answer)
}

func (r *Request) mostFlags() int {
	if r.Verb == MetaSet {
		return maxMeta - 4 // the command, the key, the size, and the end
	}
	return maxMeta - 3
}

// checkFlags returns memcached's answer to wrong flags: an unknown or repeated flag comes first, then the
// last of those with a wrong value.
func (r *Request) checkFlags() (answer string) {
	n := 0
	for flags := r.flags; ; n++ {
		var flag []byte
		if flag, flags = next(flags); len(flag) == 0 {
			break
		}
		letter, form := flag[0], formOf(flag[0])
		switch {
		case letter >= 0x7f, form != noFlag && r.letters.has(letter):
			return r.wrong(duplicateFlag)
		case form == noFlag:
			return r.wrong(badFlag)
		}
		r.letters |= 1 << (letter - 'A')
		if form == bare && letter != 'b' {
			continue
		}
		if wrong := r.checkFlag(flag); wrong != "" && (wrong != AnswerBadFormat || answer == "") {
			answer = wrong
		}
	}
	switch {
	case answer != "":
		return r.wrong(answer)
	case r.letters.has('M') && !r.modeFits():
		if r.Verb == MetaSet {
			return badSetMode
		}
		return badCountMode
	case r.letters.has('O'):
		if o, _ := r.Flag('O'); len(o) >= maxOpaque {
			return badOpaque
		} else if bytes.ContainsFunc(o, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return AnswerBadFormat
		}
	}
	if n > r.mostFlags() {
		return tooManyFlags
	}
	return ""
}

// wrong returns memcached's answer to a wrong flag.
func (r *Request) wrong(answer string) string {
	if r.Verb == MetaDelete || r.Verb == MetaArithmetic {
		return badFlags
	}
	return answer
}

// checkFlag returns memcached's answer to a wrong value of a flag.
func (r *Request) checkFlag(flag []byte) string {
	ok := true
	switch formOf(flag[0]) {
	case signed:
		_, ok = number(flag[1:])
	case natural:
		_, ok = unsigned(flag[1:])
	case mode:
		if len(flag) != 2 {
			return badModeLength
		}
	case bare:
		if flag[0] == 'b' {
			if r.Binary = true; !r.decodes() {
				return badKey
			}
		}
	}
	switch {
	case ok:
		return ""
	case flag[0] == 'F':
		return AnswerBadFormat
	case flag[0] == 'J':
		return badInitial
	case flag[0] == 'D':
		return badMetaDelta
	}
	return badToken
}

// modeFits tells whether memcached knows the mode. mg and md ignore their mode.
func (r *Request) modeFits() bool {
	m, _ := r.Flag('M')
	switch r.Verb {
	case MetaSet:
		return strings.IndexByte("EAPRS", m[0]) >= 0
	case MetaArithmetic:
		return strings.IndexByte("I+D-", m[0]) >= 0
	}
	return true
}

// strict is strict base64: memcached's own decoder skips unknown characters, and ignores what follows the
// padding. So one key could be written in several ways, and only memcached would know which key it is.
var strict = base64.StdEncoding.Strict()

func (r *Request) decodes() bool {
	var room [MaxKey]byte
	_, err := strict.Decode(room[:], r.Key)
	return err == nil && bytes.IndexByte(r.Key, '\r') < 0 // Go's decoder skips it
}

// Hashed returns the key that memcached stores and clients hash: decoded if it is in base64. room is for the
// decoded key.
func (r *Request) Hashed(room *[MaxKey]byte) []byte {
	if !r.Binary || len(r.Key) > MaxKey {
		return r.Key
	}
	n, err := strict.Decode(room[:], r.Key)
	if err != nil {
		return r.Key // Parse refuses it
	}
	return room[:n]
}

// Flag returns a flag of a meta command: the text after its letter, as the client has written it.
func (r *Request) Flag(letter byte) (value []byte, ok bool) {
	if !r.letters.has(letter) {
		return nil, false
	}
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

// Has tells whether a meta command has a flag.
func (r *Request) Has(letter byte) bool { return r.letters.has(letter) }

// Signed returns a flag's number; 0 if there is none.
func (r *Request) Signed(letter byte) int64 {
	value, _ := r.Flag(letter)
	n, _ := number(value)
	return n
}

// Unsigned returns a flag's number; 0 if there is none.
func (r *Request) Unsigned(letter byte) uint64 {
	value, _ := r.Flag(letter)
	n, _ := unsigned(value)
	return n
}

// Flags returns the flags of a meta command, separated by blanks, as the client has written them.
func (r *Request) Flags() []byte { return r.flags }
