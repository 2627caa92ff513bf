package router

import (
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/wire"
)

func TestALoginIsASetOfUserAndPassword(t *testing.T) {
	t.Parallel()
	logins := []contract.Login{{User: "ann", Password: "secret"}, {User: "bob", Password: "other"}}
	const (
		failure = "CLIENT_ERROR authentication failure\r\n"
		format  = "CLIENT_ERROR bad authentication token format\r\n"
	)
	for text, want := range map[string]struct {
		answer string
		block  int
	}{
		"get a\r\n":                             {"CLIENT_ERROR unauthenticated\r\n", 0},
		"set a 0 0 10\r\nann secret\r\n":        {admitted, 12},
		"set a 0 0 9\r\nbob other\r\nget a\r\n": {admitted, 11},
		"set a 0 0 9\r\nann other\r\n":          {failure, 11},
		"set a 0 0 3\r\nann\r\n":                {format, 5},
		"set a 0 0 10\r\nann sec":               {"", 0},
		"set a 0 0 10\r\nann secrets\r":         {"CLIENT_ERROR bad command line termination\r\n", 12},
		"set a 0 0 9999\r\nann secret":          {failure, 10001},
	} {
		var r wire.Request
		line := strings.Index(text, "\n") + 1
		if n := r.Parse([]byte(text)); n != line {
			t.Fatalf("%q has a line of %d bytes", text, n)
		}
		answer, block := answerLogin(&r, []byte(text[line:]), func(user, password []byte) bool { return contract.Admits(logins, string(user)+" "+string(password)) })
		if answer != want.answer || block != want.block {
			t.Errorf("%q: %q, %d; want %q, %d", text, answer, block, want.answer, want.block)
		}
	}
}
