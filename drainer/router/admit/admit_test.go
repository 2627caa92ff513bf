package admit_test

import (
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router/admit"
	"example.com/memcached-operator/drainer/router/wire"
)

var logins = []contract.Login{{User: "ann", Password: "secret"}, {User: "bob", Password: "other"}}

func TestALoginIsASetOfUserAndPassword(t *testing.T) {
	t.Parallel()
	const (
		failure = "CLIENT_ERROR authentication failure\r\n"
		format  = "CLIENT_ERROR bad authentication token format\r\n"
	)
	for text, want := range map[string]struct {
		answer string
		block  int
	}{
		"get a\r\n":                             {"CLIENT_ERROR unauthenticated\r\n", 0},
		"set a 0 0 10\r\nann secret\r\n":        {admit.Admitted, 12},
		"set a 0 0 9\r\nbob other\r\nget a\r\n": {admit.Admitted, 11},
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
		answer, block := admit.Answer(&r, []byte(text[line:]), func(user, password []byte) bool { return admit.Any(logins, user, password) })
		if answer != want.answer || block != want.block {
			t.Errorf("%q: %q, %d; want %q, %d", text, answer, block, want.answer, want.block)
		}
	}
}

func TestNobodyIsAdmittedWithAnothersPassword(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		user, password string
		want           bool
	}{{"ann", "secret", true}, {"bob", "other", true}, {"ann", "other", false}, {"", "", false}, {"ann", "", false}, {"bob", "secret", false}} {
		if got := admit.Any(logins, []byte(c.user), []byte(c.password)); got != c.want {
			t.Errorf("%s, %s: %t", c.user, c.password, got)
		}
	}
	if admit.Any(nil, []byte("ann"), []byte("secret")) {
		t.Error("there are no logins, and one is admitted")
	}
}
