package router

import (
	"bytes"

	"example.com/memcached-operator/drainer/wire"
)

// admitted is the answer to a successful login.
const admitted = "STORED\r\n"

const (
	answerNotLoggedIn = "CLIENT_ERROR unauthenticated\r\n"
	answerNoLogin     = "CLIENT_ERROR authentication failure\r\n"
	answerFormat      = "CLIENT_ERROR bad authentication token format\r\n"
	answerEnd         = "CLIENT_ERROR bad command line termination\r\n"
	// maxLogin bounds a login's data block, in bytes, with its line end.
	maxLogin = 4 << 10
)

// answerLogin answers a request of a client that is not logged in. memcached's login in the text protocol is
// a set whose value is user and password. data has the bytes after the request's line. The answer is empty if
// more of the data block has to arrive first. block is how many bytes of data belong to the request.
func answerLogin(r *wire.Request, data []byte, admits func(user, password []byte) bool) (answer string, block int) {
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
		return admitted, r.Data
	}
	return answerNoLogin, r.Data
}
