package contract

import (
	"fmt"
	"strings"
)

// AuthFileKey is the key of a Secret with logins.
const AuthFileKey = "auth-file"

// maxLogins is how many lines of its auth file memcached reads.
const maxLogins = 8

// Login is what a client logs in with.
type Login struct{ User, Password string }

// FirstLogin of an auth file. Errors never show what is in the file. memcached ends at
// an empty line, ignores a last line without an end, and accepts no blanks.
func FirstLogin(name string, text []byte) (Login, error) {
	lines := strings.Split(string(text), "\n")
	if n := len(lines) - 1; n < 1 || n > maxLogins || lines[n] != "" {
		return Login{}, fmt.Errorf("%s must be 1 to %d lines user:password, each with an end", name, maxLogins)
	}
	var first Login
	for i, line := range lines[:len(lines)-1] {
		user, password, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		if !ok || user == "" || password == "" || strings.ContainsAny(user+password, " \t\r") {
			return Login{}, fmt.Errorf("line %d of %s is not user:password, without blanks", i+1, name)
		}
		if i == 0 {
			first = Login{user, password}
		}
	}
	return first, nil
}
