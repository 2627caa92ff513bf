package router

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"example.com/memcached-operator/drainer/router/wire"
)

const (
	answerNotLoggedIn = "CLIENT_ERROR unauthenticated\r\n"
	answerNoLogin     = "CLIENT_ERROR authentication failure\r\n"
	answerLoginFormat = "CLIENT_ERROR bad authentication token format\r\n"
	answerLoginEnd    = "CLIENT_ERROR bad command line termination\r\n"
	answerStored      = "STORED\r\n"
	// maxLogin is the size of a login's data block at most, in bytes, with its end.
	maxLogin = 4 << 10
)

// login of a client, as memcached has it: the first request is a set, with user and
// password as its value.
type login struct {
	wanted bool
}

func (c *client) logIn(b []byte) int {
	r := &c.loop.request
	n := r.Parse(b)
	switch {
	case n == 0:
		return c.incomplete(b)
	case r.Verb != wire.Set:
		c.reply(answerNotLoggedIn)
		return n
	case r.Data > maxLogin:
		c.swallow = r.Data
		c.reply(answerNoLogin)
		return n
	case len(b) < n+r.Data:
		return 0
	}
	data := b[n : n+r.Data]
	n += r.Data
	value, ended := bytes.CutSuffix(data, []byte("\r\n"))
	words := bytes.Fields(value)
	switch {
	case !ended:
		c.reply(answerLoginEnd)
	case len(words) < 2:
		c.reply(answerLoginFormat)
	case c.loop.router.admits(words[0], words[1]):
		c.login.wanted = false
		c.reply(answerStored)
	default:
		c.reply(answerNoLogin)
	}
	return n
}

// admits compares digests, so that the time it takes tells nothing.
func (r *Router) admits(user, password []byte) bool {
	logins, err := r.config.Logins()
	if err != nil {
		r.config.Logf("logins: %v", err)
		return false
	}
	given := sha256.Sum256(bytes.Join([][]byte{user, password}, []byte(" ")))
	admitted := 0
	for _, l := range logins {
		known := sha256.Sum256([]byte(l.User + " " + l.Password))
		admitted |= subtle.ConstantTimeCompare(given[:], known[:])
	}
	return admitted == 1
}
