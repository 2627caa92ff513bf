// Package admit is memcached's login: which users are let in, and how a client that speaks text asks
// for it. Its first request is a set, with user and password as its value. It is pure.
package admit

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router/wire"
)

// Admitted is the answer to a login that is.
const Admitted = "STORED\r\n"

const (
	answerNotLoggedIn = "CLIENT_ERROR unauthenticated\r\n"
	answerNoLogin     = "CLIENT_ERROR authentication failure\r\n"
	answerFormat      = "CLIENT_ERROR bad authentication token format\r\n"
	answerEnd         = "CLIENT_ERROR bad command line termination\r\n"
	// maxLogin is the size of a login's data block at most, in bytes, with its end.
	maxLogin = 4 << 10
)

// Answer to a request of a client that is not logged in, which may be a login: data is what came
// after its line. It is empty if more of the data block has to come first. block is how many bytes
// of it belong to the request.
func Answer(r *wire.Request, data []byte, admits func(user, password []byte) bool) (answer string, block int) {
	switch {
	case r.Verb != wire.Set:
		return answerNotLoggedIn, 0
	case r.Data > maxLogin:
		return answerNoLogin, r.Data
	case len(data) < r.Data:
		return "", 0
	}
	value, ended := bytes.CutSuffix(data[:r.Data], []byte("\r\n"))
	words := bytes.Fields(value)
	switch {
	case !ended:
		return answerEnd, r.Data
	case len(words) < 2:
		return answerFormat, r.Data
	case admits(words[0], words[1]):
		return Admitted, r.Data
	}
	return answerNoLogin, r.Data
}

// Any tells whether one of the logins is of that user. It compares digests, so that the time it
// takes tells nothing.
func Any(logins []contract.Login, user, password []byte) bool {
	given := sha256.Sum256(bytes.Join([][]byte{user, password}, []byte(" ")))
	admitted := 0
	for _, l := range logins {
		known := sha256.Sum256([]byte(l.User + " " + l.Password))
		admitted |= subtle.ConstantTimeCompare(given[:], known[:])
	}
	return admitted == 1
}
